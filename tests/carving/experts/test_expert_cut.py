"""Experts are taken out byte for byte, packed ones too; the child is the parent that cannot choose them."""

import hashlib
import json
from functools import partial
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from carvings import carve, rebuild
from changed_folders import configured, flip, replaced
from covering import chosen
from packed_mixtures import FP8, INT4, WAYS, packed_mixture, plain_twin
from refusals import Zerolm, refused
from safetensors.torch import load_file, save_file
from saved_mixtures import kept_in, logits_of_stock, mixture
from tiny_families import saved
from tiny_mixtures import MIXTURES
from transformers import AutoModelForCausalLM

from zerolm.carving.experts.expert_selection import ExpertSelection
from zerolm.carving.experts.fewer_experts import FewerExperts, renumbered
from zerolm.carving.experts.masked_parent import compare_with_masked
from zerolm.carving.experts.stock_mixture import Routing, StockMixture
from zerolm.carving.request import Methods
from zerolm.checkpoints import Checkpoint, Outgoing, write_shards
from zerolm.children.read_again import ReadAgain
from zerolm.planning.part_costs import StoredCosts
from zerolm.planning.size_request import SizeRequest
from zerolm.progress import silent
from zerolm.settings.compute import ComputeRequest

FILE = "model.safetensors"
BY_CHANCE: dict[str, Any] = {"keep_experts": "0.5", "criterion": "random", "seed": 3}
GROUPED = ("deepseek_v2", "glm4_moe", "nemotron_h")


@torch.no_grad()
@pytest.mark.parametrize("kind", chosen([*MIXTURES, "gemma4_text"]))
def test_a_child_sends_what_the_masked_parent_sends(kind: str, tmp_path: Path) -> None:
    """In the stock class: logits of the experts that have gone are minus infinity in the parent."""
    folder = mixture(tmp_path / "parent", kind)
    assert carve(folder, tmp_path / "child", **BY_CHANCE).verified.by == "outputs"
    kept, ids = kept_in(tmp_path / "child"), torch.arange(1, 25)[None]
    assert set(map(len, kept.values())) == {4}
    sent, wanted, whole = (
        logits_of_stock(place, ids, of)
        for place, of in ((tmp_path / "child", None), (folder, kept), (folder, None))
    )
    scale = float(wanted.abs().max())
    assert float((sent - wanted).abs().max()) <= 1e-5 * scale
    assert float((whole - wanted).abs().max()) > 1e-3 * scale, "masking does something"


def compare(file: Path, tensors: list[Outgoing]) -> dict[Path, str]:
    with ReadAgain() as again:
        for tensor in tensors:
            again.written(file, tensor)
        return again.digests()


def test_other_experts_and_other_bytes_are_seen(tmp_path: Path) -> None:
    folder = mixture(tmp_path / "parent", "deepseek_v3")
    carve(folder, tmp_path / "child", **BY_CHANCE)
    child, parent = Checkpoint.open(tmp_path / "child"), Checkpoint.open(folder)
    kept = kept_in(tmp_path / "child")
    fewer = FewerExperts(parent, kept)
    file = child.shards[0].file
    in_file = {name: place for place, name in enumerate(child.shards[0].tensors)}

    def written(fewer: FewerExperts) -> list[Outgoing]:
        return sorted(fewer.outgoing(), key=lambda tensor: in_file[tensor.name])

    digest = hashlib.sha256(file.read_bytes()).hexdigest()
    assert compare(file, written(fewer)) == {file: digest}
    other = FewerExperts(parent, {layer: np.array([0, 1, 4, 5]) for layer in kept})
    with pytest.raises(ValueError, match="differs from the carved parent"):
        compare_with_masked(child, other)
    with pytest.raises(ValueError, match="differs from what its parent has"):
        compare(file, written(other))
    with pytest.raises(ValueError, match="tensors that were not to be written"):
        compare(file, written(fewer)[:-1])
    more = Outgoing("another", "F32", (1,), lambda: [b"1234"])
    with pytest.raises(ValueError, match="'another' of the written child differs"):
        compare(file, [*written(fewer), more])
    router = child.tensors[str(child.layout.name("router", 2))]
    flip(file, router.start)
    with pytest.raises(ValueError, match=r"gate\.weight.*differs"):
        compare(file, written(fewer))


def test_several_files_are_compared_while_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each tensor as soon as it is there; what a disk gives back otherwise leaves no child."""
    folder = mixture(tmp_path / "parent", "deepseek_v3")
    sizes = partial(write_shards, max_bytes=20_000)
    monkeypatch.setattr("zerolm.carving.formats.write_shards", sizes)
    carve(folder, tmp_path / "child", **BY_CHANCE)
    recipe = json.loads((tmp_path / "child" / "recipe.json").read_text())
    files = sorted((tmp_path / "child").glob("model-*.safetensors"))
    assert len(files) > 3
    digests = {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in files}
    assert {name: digests[name] for name in digests} == recipe["sha256"]

    def spoilt(*args: Any, written: Any, **more: Any) -> list[Path]:
        def hand_on(file: Path, tensor: Outgoing) -> None:
            flip(file, -1)
            written(file, tensor)

        return sizes(*args, written=hand_on, **more)

    monkeypatch.setattr("zerolm.carving.formats.write_shards", spoilt)
    with pytest.raises(ValueError, match="differs from what its parent has"):
        carve(folder, tmp_path / "other", **BY_CHANCE)
    assert {place.name for place in tmp_path.iterdir()} == {"parent", "child"}


@pytest.mark.parametrize("kind", GROUPED)
def test_each_group_keeps_as_many(kind: str, tmp_path: Path) -> None:
    folder = mixture(tmp_path / "parent", kind)
    routing = Routing.of(Checkpoint.open(folder))
    assert (routing.groups, routing.chosen) == (2, 1)
    assert routing.possible() == [4, 6, 8]
    with pytest.raises(ValueError, match=r"2 groups, which do not divide 5; the nearest that can be is 6"):
        carve(folder, tmp_path / "child", keep_experts="5", criterion="random")
    carve(folder, tmp_path / "child", keep_experts="6", criterion="random", seed=1)
    assert all((kept < 4).sum() == 3 for kept in kept_in(tmp_path / "child").values())


@pytest.mark.parametrize("kind", ["qwen3_moe", "deepseek_v3"])
def test_by_pairs_no_others_lose_less(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All choices of each layer are tried, on the sums that the pass leaves."""
    monkeypatch.setenv("ZEROLM_CACHE", str(tmp_path / "cache"))
    folder = mixture(tmp_path / "parent", kind)
    tokens: dict[str, Any] = {"text": "random", "sequences": 4, "length": 12, "criterion": "hope_moments"}
    carved = carve(folder, tmp_path / "child", keep_experts="4", **tokens)
    checkpoint = Checkpoint.open(folder)
    methods = Methods(criterion="hope_moments", text="random", sequences=4, length=12)
    parent = StockMixture(checkpoint, SizeRequest(), StoredCosts(), silent)
    use = ExpertSelection(parent, SizeRequest(), methods, ComputeRequest(), silent).use
    groups, kept = Routing.of(checkpoint).groups, kept_in(tmp_path / "child")
    assert carved.optimal is False, "it is the best, which is not proven"
    for row in carved.experts.layers:
        lost = use[row.layer]["product"]
        sets = [list(g) for g in combinations(range(8), 4) if groups == 1 or sum(e < 4 for e in g) == 2]
        least = min(lost[np.ix_(gone, gone)].sum() for gone in sets)
        gone = np.setdiff1d(np.arange(8), kept[row.layer])
        assert lost[np.ix_(gone, gone)].sum() == pytest.approx(least, rel=1e-7)
        assert (row.loss, row.gap) == (pytest.approx(least, rel=1e-7), None)
    rebuild(tmp_path / "child" / "recipe.json", folder, tmp_path / "again")
    assert (tmp_path / "again" / FILE).read_bytes() == (tmp_path / "child" / FILE).read_bytes()


BY_PAIRS = "--criterion hope_moments"
ON_TOKENS = f"--text random {BY_PAIRS} --sequences 4 --length 12"
TO_HALF = "--max-params .5x --text parent/config.json"
WRONG: dict[str, tuple[str, str]] = {
    "fewer than a token meets": ("--keep-experts 1", "the nearest that can be is 2"),
    "more than there are": ("--keep-experts 9", "a layer has 8 experts; the nearest that can be is 8"),
    "a share that is no number": ("--keep-experts 0.3", "is no whole number; the nearest that can be is 2"),
    "not divisible": ("--keep-experts 6 --expert-parallel 4", "no multiple of 4"),
    "devices that do not divide": ("--keep-experts 6 --expert-parallel 3", "does not divide the 8"),
    "tokens without a text": ("--keep-experts 4 --keep-vocab .5", "--keep-vocab needs --text FILE"),
    "a budget that is too small beside a number": (
        f"--keep-experts 4 --max-params .02x --keep-vocab all {ON_TOKENS}",
        "--max-params 2930 would have to be at least",
    ),
    "a plan by weights of experts and tokens": (
        f"--keep-experts auto --keep-vocab auto --plan weights {TO_HALF}",
        "share budgets with tokens or types by losses on one --text FILE (--plan weights): give numbers",
    ),
    "types for the same bytes": (
        "--keep-experts auto --max-weight-bytes .5x --format gguf --types Q4_K",
        "by losses on one --text FILE (no text is given): give numbers instead of auto",
    ),
    "auto without budgets": ("--keep-experts auto", "give one such as --max-params 0.7x"),
    "no tokens": ("--keep-experts 4 --criterion reap", "criterion reap needs tokens"),
    "another criterion": ("--keep-experts 4 --criterion surgeon", "'surgeon' is not known"),
    "another repair": ("--keep-experts 4 --text random --repair bias", "repair 'bias' is not known"),
    "a repair without tokens": ("--keep-experts 4 --repair least-squares", "needs tokens"),
    "the worst of one text": ("--keep-experts 4 --text random --domains worst", "needs texts of several"),
    "the worst by pairs": (
        f"--keep-experts 4 --text a=random,b=random --domains worst {BY_PAIRS}",
        "not of pairs as hope_moments",
    ),
    "domains alone": ("--domains worst", "--domains is of experts"),
    "domains of other cuts": ("--keep-ffn .5 --text a=random,b=random", "give --keep-experts N"),
    "two texts of a name": ("--keep-experts 4 --text a=random --text a=random", "'a' has two texts"),
    "neurons that are no multiple": ("--keep-expert-ffn 12", "keeps a multiple of 8 that leaves shared"),
    "a share of neurons above one": ("--keep-expert-ffn 1.5", "must lie in 0 to 1"),
    "no number of neurons": ("--keep-expert-ffn half", "a number of neurons, a share such as 0.75, or auto"),
    "neurons that no steps leave": ("--keep-expert-ffn 16 --multiple-of 5", "keeps a multiple of 40"),
    "neurons without budgets": ("--keep-expert-ffn auto", "--keep-expert-ffn auto chooses within budgets"),
    "both planned without a text": (
        "--keep-experts auto --keep-expert-ffn auto --max-params .8x",
        "which aimer does not give: use --criterion hope_moments",
    ),
    "both planned by means": (
        "--keep-experts auto --keep-expert-ffn auto --max-params .8x --text random",
        "which reap does not give",
    ),
    "both within too little": (
        f"--keep-experts auto --keep-expert-ffn auto --max-params .1x {ON_TOKENS}",
        "--max-params 14654 would have to be at least 69648, with 2 experts a layer",
    ),
    "neurons within too little": ("--keep-expert-ffn auto --max-params .1x", "would have to be at least"),
    "one token": ("--keep-experts 4 --text random --sequences 3 --length 1", "length"),
}


@pytest.mark.parametrize("fault", WRONG)
def test_it_is_refused(fault: str, zerolm: Zerolm, here: Path) -> None:
    flags, words = WRONG[fault]
    mixture(here / "parent", "qwen3_moe")
    refused(zerolm, "carve", "parent", *flags.split(), "--out", "child", words=words)


def test_networks_without_experts(zerolm: Zerolm, here: Path) -> None:
    saved(here / "parent", "llama")
    words = "has no experts to take out"
    refused(zerolm, "carve", "parent", "--keep-experts", "4", "--out", "child", words=words)


TOKENS: dict[str, Any] = {"text": "random", "sequences": 4, "length": 12}


@torch.no_grad()
@pytest.mark.parametrize("way", WAYS)
def test_stored_tensors_are_the_parents_and_send_what_the_masked_does(way: str, tmp_path: Path) -> None:
    """Names and rows are found from the recipe alone; torch alone dequantises both for stock classes."""
    folder, out = packed_mixture(tmp_path / "parent", way), tmp_path / "child"
    carved = carve(folder, out, **BY_CHANCE)
    assert carved.verified.by == "outputs"
    parent, child = load_file(folder / FILE), load_file(out / FILE)
    wanted, experts = {}, {layer: kept.tolist() for layer, kept in kept_in(out).items()}
    for name, tensor in parent.items():
        parts = name.split(".")
        layer = int(parts[2]) if parts[1] == "layers" else -1
        kept = experts.get(layer)
        if kept is None:
            wanted[name] = tensor
        elif ".experts." in name and parts[5].isdecimal():
            if int(parts[5]) in kept:
                place = kept.index(int(parts[5]))
                wanted[".".join([*parts[:5], str(place), *parts[6:]])] = tensor
        elif ".experts." in name or "mlp.gate." in name or "router" in name:
            wanted[name] = tensor[kept]
        else:
            wanted[name] = tensor
    assert child.keys() == wanted.keys()
    for name, tensor in wanted.items():
        assert child[name].dtype == tensor.dtype
        assert torch.equal(child[name].view(torch.uint8), tensor.view(torch.uint8)), name
    config = json.loads((out / "config.json").read_text())
    assert (
        config["quantization_config"]
        == json.loads((folder / "config.json").read_text())["quantization_config"]
    )
    assert carved.costs["child"]["weight_bytes"] == sum(x.numel() * x.element_size() for x in wanted.values())

    twins = {
        name: plain_twin(tmp_path / f"plain {name}", place)
        for name, place in (("parent", folder), ("child", out))
    }
    ids = torch.arange(1, 25)[None]
    sent, masked = logits_of_stock(twins["child"], ids), logits_of_stock(twins["parent"], ids, kept_in(out))
    assert float((sent - masked).abs().max()) <= 1e-5 * float(masked.abs().max())
    if "int4" not in way:  # it is dequantised on a CPU
        stock = AutoModelForCausalLM.from_pretrained(out, dtype=torch.float32).eval().float()
        theirs = stock(input_ids=ids, use_cache=False).logits.float()
        assert float((theirs - sent).abs().max()) <= 1e-4 * float(sent.abs().max())


METHODS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("qwen3_moe fp8", {"criterion": "aimer"}),
    ("deepseek_v3 int4", {"criterion": "aimer"}),
    ("gpt_oss mxfp4", {"criterion": "reap", **TOKENS}),
    ("deepseek_v3 fp8", {"criterion": "reap", **TOKENS}),
)


@pytest.mark.parametrize(("way", "method"), METHODS)
def test_what_goes_is_what_goes_of_the_plain_twin(way: str, method: dict[str, Any], tmp_path: Path) -> None:
    folder = packed_mixture(tmp_path / "parent", way)
    plain = plain_twin(tmp_path / "plain", folder)
    ours, theirs = (carve(place, keep_experts="0.5", **method) for place in (folder, plain))
    assert [row.kept for row in ours.experts.layers] == [row.kept for row in theirs.experts.layers]


def test_a_wrapper_says_in_its_text_part_how_it_is_stored(tmp_path: Path) -> None:
    """As Kimi K2.5 does: the part is changed, what sees stays."""
    folder, out = packed_mixture(tmp_path / "parent", "deepseek_v3 int4"), tmp_path / "child"
    inner = {f"language_model.{name}": part for name, part in load_file(folder / FILE).items()}
    save_file(inner | {"vision_tower.x.weight": torch.ones(3, 5)}, folder / FILE, {"format": "pt"})
    before = "language_model.model.layers.2.mlp.experts"
    listed = [f"{before}.{expert}.up_proj" for expert in range(8)]
    text = json.loads((folder / "config.json").read_text())
    text["quantization_config"] = INT4 | {"ignore": [*listed, "re:.*self_attn.*"]}
    whole = {"model_type": "kimi_k25", "architectures": ["KimiK25ForConditionalGeneration"]}
    whole |= {"tie_word_embeddings": False, "text_config": text}
    (folder / "config.json").write_text(json.dumps(whole))
    assert carve(folder, out, **BY_CHANCE).verified is not None
    child = json.loads((out / "config.json").read_text())
    assert child["text_config"]["n_routed_experts"] == 4
    assert child["text_config"]["quantization_config"]["ignore"] == [*listed[:4], "re:.*self_attn.*"]
    tensors = load_file(out / FILE)
    assert torch.equal(tensors["vision_tower.x.weight"], torch.ones(3, 5))
    for place, expert in enumerate(kept_in(out)[2]):
        for part in ("packed", "scale", "shape"):
            ours = tensors[f"{before}.{place}.up_proj.weight_{part}"]
            assert torch.equal(ours, inner[f"{before}.{expert}.up_proj.weight_{part}"])


def test_modules_that_are_listed_get_their_new_numbers() -> None:
    kept, before = {2: np.array([1, 3]), 3: np.array([0, 3])}, "model.layers."
    listed = ["lm_head", f"{before}2.mlp.experts.3.up_proj", f"{before}2.mlp.experts.0", "re:.*attn.*"]
    listed += [f"{before}3.mlp.experts.3.down_proj", f"{before}0.mlp.experts.7", f"{before}3.mlp.gate"]
    wanted = ["lm_head", f"{before}2.mlp.experts.1.up_proj", "re:.*attn.*"]
    wanted += [f"{before}3.mlp.experts.1.down_proj", *listed[-2:]]
    config = {"layers": listed, "quantization_config": FP8 | {"modules_to_not_convert": listed}}
    assert renumbered(config, kept) == {
        "layers": listed, "quantization_config": FP8 | {"modules_to_not_convert": wanted},
    }  # fmt: skip
    assert renumbered({"text_config": config}, kept) == {"text_config": renumbered(config, kept)}
    groups = {"group_0": {"targets": listed}}
    inner = renumbered({"quantization_config": INT4 | {"config_groups": groups}}, kept)["quantization_config"]
    assert inner["config_groups"] == {"group_0": {"targets": wanted}}
    with pytest.raises(ValueError, match="names experts by the pattern"):
        renumbered({"quantization_config": {"ignore": [r"re:.*experts\.[0-3]\..*"]}}, kept)


WRONG_PACKED: dict[str, tuple[dict[str, Any], dict[str, Any], list[str], str]] = {
    "scales without weights": (
        {}, {"model.layers.0.mlp.experts.0.up_proj.weight": None}, ["--keep-experts", "4"],
        "up_proj.weight' is missing",
    ),
    "a router in blocks": (
        {},
        {
            f"model.layers.{layer}.mlp.gate.{part}": tensor
            for layer in (0, 2, 3)
            for part, tensor in (
                ("weight", torch.ones(8, 48).to(torch.float8_e4m3fn)),
                ("weight_scale_inv", torch.ones(2, 12)),
            )
        },
        ["--keep-experts", "4"],
        "gate.weight' is stored in FP8, whose blocks hold rows of several experts",
    ),
    "an embedding in blocks": (
        {},
        {
            "model.embed_tokens.weight": torch.ones(64, 48).to(torch.float8_e4m3fn),
            "model.embed_tokens.weight_scale_inv": torch.ones(16, 12),
        },
        ["--keep-experts", "4"],
        "embed_tokens.weight' is stored quantised",
    ),
    "another method": (
        {"quantization_config": {"quant_method": "gptq"}}, {}, ["--keep-experts", "4"], "quantized by 'gptq'",
    ),
    "another cut": ({}, {}, ["--keep-heads", ".5"], "experts alone can be taken out"),
}  # fmt: skip


@pytest.mark.parametrize("fault", WRONG_PACKED)
def test_a_packed_parent_is_refused(
    fault: str, zerolm: Zerolm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fields, tensors, flags, words = WRONG_PACKED[fault]
    folder = packed_mixture(tmp_path / "parent", "qwen3_moe fp8")
    configured(folder, **fields)
    replaced(folder, tensors)
    monkeypatch.chdir(tmp_path)
    more = ("--criterion", "random") if "--keep-experts" in flags else ()
    refused(zerolm, "carve", "parent", *flags, *more, "--out", "child", words=words)
