"""What a child must be beyond its logits: proven layer by layer, with a card, and nothing in it that runs."""

import hashlib
import json
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import huggingface_hub
import numpy as np
import pytest
import transformers
import yaml
from carvings import BY_WEIGHTS, carve, rebuild, refused
from changed_folders import configured, stored
from gguf_parents import parent_of
from tiny import saved

import zerolm as package
from zerolm.carving.formats import FORMATS
from zerolm.carving.request import Methods
from zerolm.carving.session import Session
from zerolm.checkpoints import Checkpoint, write_shards
from zerolm.checkpoints.origin import origin_of
from zerolm.children import verify
from zerolm.children.card import plain
from zerolm.children.child_tensors import Child
from zerolm.children.folder import configuration, tensors
from zerolm.children.verify import compare_blocks, fits
from zerolm.networks.opener import mapped_model
from zerolm.repairing.walk import repair
from zerolm.text.tokens import random_tokens
from zerolm.units.kept_units import Cut, LayerCut, dimensions
from zerolm.units.pruning import Repaired


def test_layers_attend_as_they_did_when_others_have_gone(tmp_path: Path) -> None:
    """Where a configuration lists no kinds, the stock class tells them by a layer's number."""
    parent = configured(saved(tmp_path / "parent", "gemma2"), layer_types=..., sliding_window=4)
    carve(parent, tmp_path / "first", keep_ffn=0.5)
    recipe = json.loads((tmp_path / "first" / "recipe.json").read_text())
    recipe["layers"] = recipe["layers"][1:]
    (tmp_path / "recipe.json").write_text(json.dumps(recipe))
    rebuild(tmp_path / "recipe.json", parent, tmp_path / "child")
    whole, child = (
        transformers.AutoConfig.from_pretrained(folder).layer_types for folder in (parent, tmp_path / "child")
    )
    assert list(child) == list(whole)[1:]
    assert len(set(whole)) == 2


@pytest.mark.parametrize(
    ("wrong", "dtype"), [("model.layers.1.mlp.up_proj.weight", "bfloat16"), ("lm_head.weight", "float32")]
)
def test_a_wrong_weight_on_the_disk_is_found(wrong: str, dtype: str, tmp_path: Path) -> None:
    parent = Checkpoint.open(saved(tmp_path / "parent", "llama", dtype=dtype))
    whole = Cut.whole(dimensions(parent))
    cut = Cut(whole.parent, tuple(LayerCut.of(x.layer, x["groups"], np.arange(20)) for x in whole.layers))
    carve(parent.folder, tmp_path / "child", keep_ffn=0.5, criterion="prefix")
    run = Session(parent, Methods("prefix"), lambda text: None)
    assert FORMATS["hf"].verified(run, cut, Repaired(), tmp_path / "child").relative <= 1e-4
    stored(tmp_path / "child", lambda tensors: tensors[wrong][0].mul_(0.98))
    with pytest.raises(ValueError, match="differs"):
        FORMATS["hf"].verified(run, cut, Repaired(), tmp_path / "child")


FLOORS: dict[str, tuple[str, dict[str, Any], str]] = {
    "neurons": ("llama", {"keep_ffn": 0.25, "multiple_of": 41}, "no size is left"),
    "no space": ("llama", {"space": "foo"}, "space 'foo' is not known"),
    "no format": ("llama", {"keep_ffn": 0.5, "form": "onnx"}, "format 'onnx' is not known"),
    "tokens without end": ("llama", {"keep_ffn": 0.5, "text": "random", "sequences": 10**12}, "at most"),
    "a seed without end": ("llama", {"keep_ffn": 0.5, "seed": 2**70}, "the seed must lie"),
    "no head": ("llama_body", {"keep_ffn": 0.5}, "without a language-model head"),
}


@pytest.mark.parametrize("case", FLOORS)
def test_what_cannot_be_is_refused(case: str, tmp_path: Path) -> None:
    name, wishes, words = FLOORS[case]
    refused(saved(tmp_path / "parent", name), words, **wishes)


def test_heads_that_the_class_refuses_are_not_planned(tmp_path: Path) -> None:
    """Of 12 heads in groups of one at a hidden size of 48, 8 divide it and 9 to 11 do not."""
    settings = transformers.Gemma2Config(
        vocab_size=64, hidden_size=48, num_hidden_layers=2, num_attention_heads=12, num_key_value_heads=12,
        intermediate_size=40, head_dim=8, query_pre_attn_scalar=8,
        bos_token_id=None, eos_token_id=None, pad_token_id=None,
    )  # fmt: skip
    transformers.Gemma2ForCausalLM(settings).save_pretrained(tmp_path / "parent")
    for wishes in ({"budgets": {"max_kv_bytes": "0.8x"}}, {"keep_heads": 0.75}):
        found = carve(tmp_path / "parent", tmp_path / str(len(wishes)), force=True, **wishes)  # type: ignore[arg-type]
        assert {size.heads for size in found.widths} == {8}


HOSTILE: dict[str, dict[str, Any]] = {
    "quantized": {"quantization_config": {"quant_method": "gptq"}},
    "a kernel": {"_attn_implementation": "evil/kernel"},
    "no such activation": {"hidden_act": "boom"},
    "a norm of words": {"rms_norm_eps": "small"},
    "classes as a number": {"architectures": 5},
    "too few kinds": {"layer_types": ["full_attention"]},
}


@pytest.mark.parametrize("case", HOSTILE)
def test_hostile_configurations(case: str, tmp_path: Path) -> None:
    parent = configured(saved(tmp_path / "parent", "llama"), **HOSTILE[case])
    refused(parent, None, keep_ffn=0.5, text="random", sequences=8, length=16)  # each in words of its own


def test_a_child_of_transformers_needs_no_gguf() -> None:
    """The packages that only files of llama.cpp need are an extra."""
    modules = "sys, zerolm.carving.session, zerolm.carving.formats"
    code = f"import {modules}; assert 'gguf' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


REVISION = "0123456789abcdef0123456789abcdef01234567"
ODD_LICENCE = "other\n---\n# x"


def in_hub(cache: Path, card: str, name: str = "someone/tiny-llama") -> Path:
    """Put a model into the hub's cache as huggingface_hub has it: blobs, and links to them by revision."""
    model = cache / f"models--{name.replace('/', '--')}"
    snapshot, blobs = model / "snapshots" / REVISION, model / "blobs"
    source = saved(cache / "source", "llama")
    (source / "README.md").write_text(card)
    (source / "LICENSE").write_text("terms")
    for folder in (snapshot, blobs, model / "refs"):
        folder.mkdir(parents=True)
    for file in source.iterdir():
        shutil.copyfile(file, blobs / file.name)
        (snapshot / file.name).symlink_to(blobs / file.name)
    shutil.rmtree(source)
    (model / "refs" / "main").write_text(REVISION)
    return snapshot


def front_matter(card: str) -> dict[str, Any]:
    front = re.match(r"---\n(.*?)\n---\n", card, re.S)
    assert front
    return dict(yaml.safe_load(front[1]))


def carved(zerolm: Callable[..., Any], parent: str, out: Path, *flags: str) -> tuple[str, dict[str, Any]]:
    ran = zerolm("carve", parent, "--keep-ffn", "0.5", *BY_WEIGHTS, *flags, "--out", str(out))
    assert ran.status == 0, ran.err
    return (out / "README.md").read_text(), json.loads((out / "recipe.json").read_text())


def test_a_parent_of_the_hub_keeps_its_name_revision_and_licence(
    zerolm: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub = tmp_path / "hub"
    licence = {"license": "other", "license_name": "tiny-1.0", "license_link": "LICENSE"}
    in_hub(hub, f"---\n{yaml.safe_dump(licence | {'tags': ['x']})}---\n# Tiny\n")
    download = partial(huggingface_hub.snapshot_download, cache_dir=hub)
    monkeypatch.setattr(huggingface_hub, "snapshot_download", download)
    monkeypatch.setattr("zerolm.checkpoints.folder.hub_problem", lambda ask: "nobody answers")
    text = ("--text", "random", "--sequences", "6", "--length", "12", "--plan", "prices")
    card, recipe = carved(zerolm, "someone/tiny-llama", tmp_path / "child", *text)
    front = front_matter(card)
    assert front == {
        "base_model": "someone/tiny-llama",
        **licence,
        "library_name": "transformers",
        "tags": ["zerolm", "pruned", "llama"],
    }
    assert recipe.items() >= {"parent": "someone/tiny-llama", "revision": REVISION, **licence}.items()
    versions = {name: version(name) for name in ("torch", "transformers")}
    running = {"device": "cpu", "dtype": "float32"}
    assert recipe["versions"] == {"zerolm": package.__version__, **versions, **running}
    assert REVISION in card
    assert all(f"{name} {number}" in card for name, number in recipe["versions"].items())
    assert all(f"{name} {loss:.4g}" in card for name, loss in recipe["losses"].items())
    assert {"predicted", "measured", "repaired"} == recipe["losses"].keys()
    assert f"{recipe['costs']['child']['params']:,} of {recipe['costs']['parent']['params']:,}" in card
    assert "32-bit weights" in card
    assert "AutoModelForCausalLM.from_pretrained" in card
    content = (tmp_path / "child" / "model.safetensors").read_bytes()
    assert recipe["sha256"] == {"model.safetensors": hashlib.sha256(content).hexdigest()}


CARDS = {
    "none": "# Only a title\n",
    "no YAML": "---\n{{{[\n---\n",
    "a bomb": "---\na: &a [x, x]\nb: &b [*a, *a]\nlicense: [*b, *b]\n---\n",
    "endless": "---\nlicense: " + "x" * 10_000 + "\n---\n",
}


@pytest.mark.parametrize("case", CARDS)
def test_licences_that_cannot_be_read_are_left_out(case: str, tmp_path: Path) -> None:
    (tmp_path / "README.md").write_text(CARDS[case])
    assert origin_of(tmp_path).licence == {}


@pytest.mark.parametrize(
    "name", ["it's: {a} - [b]", "- x", "#1 `rm`", 'a"b\\c', "名前: 🙂", "yes", "a\nb: c\n---\n"]
)
def test_front_matter_is_sound_with_any_names(name: str, zerolm: Callable[..., Any], tmp_path: Path) -> None:
    parent = saved(tmp_path / name, "llama")
    (parent / "README.md").write_text("---\n" + yaml.safe_dump({"license": ODD_LICENCE}) + "---\n")
    card, recipe = carved(zerolm, str(parent), tmp_path / "child")
    front = front_matter(card)
    assert (front["base_model"], front["license"]) == (name, ODD_LICENCE)
    assert (recipe["parent"], recipe["revision"]) == (name, None)
    titles = [line for line in card.splitlines() if line.startswith("# ")]
    assert titles == [f"# Carved from {plain(name)}"]
    assert "local folder" in card


@pytest.mark.parametrize("name", ["my_parent", "it's `rm`"])
def test_gguf_cards_name_the_file(name: str, zerolm: Callable[..., Any], tmp_path: Path) -> None:
    pytest.importorskip("gguf")
    pytest.importorskip("llama_cpp")
    parent = str(saved(tmp_path / name, "llama"))
    card, recipe = carved(zerolm, parent, tmp_path / "child", "--format", "gguf")
    assert front_matter(card)["library_name"] == "gguf"
    (line,) = [line for line in card.splitlines() if line.startswith("llama-cli")]
    (file,) = recipe["sha256"]
    assert shlex.split(line) == ["llama-cli", "-m", file]
    assert (tmp_path / "child" / file).is_file()


def test_gguf_cards_of_encoders_name_the_program_that_embeds(
    zerolm: Callable[..., Any], tmp_path: Path
) -> None:
    pytest.importorskip("gguf")
    pytest.importorskip("llama_cpp")
    parent = parent_of(tmp_path / "parent", "bert", "float32")
    card, _ = carved(zerolm, str(parent), tmp_path / "child", "--format", "gguf")
    assert "llama-embedding -m parent-carved.gguf" in card
    assert "llama-cli" not in card


def test_no_child_refers_to_code_of_its_parent(zerolm: Callable[..., Any], tmp_path: Path) -> None:
    parent = saved(tmp_path / "parent", "llama")
    code = {"auto_map": {"AutoModelForCausalLM": "modeling_x.X"}, "custom_pipelines": {"x": {"impl": "y.Z"}}}
    for name in ("config.json", "tokenizer_config.json", "generation_config.json"):
        file = parent / name
        given = json.loads(file.read_text()) if file.exists() else {}
        file.write_text(json.dumps(given | code | {"deeper": {"auto_map": 1, "kept": 2}}))
    carved(zerolm, str(parent), tmp_path / "child")
    for name in ("config.json", "tokenizer_config.json", "generation_config.json"):
        written = (tmp_path / "child" / name).read_text()
        assert json.loads(written)["deeper"] == {"kept": 2}
        assert "auto_map" not in written
        assert "custom_pipelines" not in written


NAMES = ("llama", "llama_tied", "mistral", "mistral_odd", "qwen2", "qwen3", "gemma2", "gpt2", "bert")
REPAIRED_ON = random_tokens(64, 40, 16, seed=5)


def opened(folder: Path, name: str, dtype: str = "float32", **settings: Any) -> Checkpoint:
    """A parent with some settings changed that change no tensor."""
    return Checkpoint.open(configured(saved(folder, name, dtype=dtype), **settings))


def some_cut(parent: Checkpoint, *, uniform: bool) -> Cut:
    """The outer layers, with neurons drawn at random; in the second as many or fewer."""
    sizes, generator = dimensions(parent), np.random.default_rng(0)
    groups = np.arange(sizes.kv_heads - 1 if parent.family.cut.indivisible == "kept" else sizes.kv_heads)
    counts = [sizes.ffn // 2, sizes.ffn // (2 if uniform else 5)]
    ffn = [np.sort(generator.choice(sizes.ffn, count, replace=False)) for count in counts]
    last = LayerCut.of(2, groups if uniform else groups[-1:], ffn[1])
    return Cut(sizes, (LayerCut.of(0, groups, ffn[0]), last))


def written(parent: Checkpoint, cut: Cut, repaired: Repaired, folder: Path) -> Checkpoint:
    folder.mkdir()
    write_shards(folder, tensors(Child(parent, cut, repaired)), max_bytes=30_000)
    (folder / "config.json").write_text(json.dumps(configuration(parent, cut)))
    return Checkpoint.open(folder)


def flip(child: Checkpoint, role: str, layer: int | None) -> None:
    """Turn the sign of one weight around."""
    name = child.layout.name(role, layer)
    assert name
    info = child.tensors[name]
    with info.file.open("r+b") as file:
        file.seek(info.start + 7 * info.item_bytes - 1)
        byte = file.read(1)[0]
        file.seek(-1, 1)
        file.write(bytes([byte ^ 0x80]))


@pytest.mark.parametrize(("uniform", "dtype"), [(True, "bfloat16"), (False, "float32")], ids=["hf", "padded"])
@pytest.mark.parametrize("name", NAMES)
def test_repaired_children_of_all_are_proven(name: str, uniform: bool, dtype: str, tmp_path: Path) -> None:
    parent = opened(tmp_path / "parent", name, dtype)
    cut = some_cut(parent, uniform=uniform or not parent.family.cut.heads)
    repaired = repair(mapped_model(parent), cut, REPAIRED_ON)
    assert repaired.arrays
    child = written(parent, cut, repaired, tmp_path / "child")
    assert compare_blocks(child, parent, cut, repaired).relative <= 1e-6
    with pytest.raises(ValueError, match=r"layer 0 of the written child differs .* in '.*weight'"):
        compare_blocks(child, parent, cut)


@pytest.mark.parametrize(
    ("role", "dtype"),
    [("k", "float32"), ("v", "bfloat16"), ("o", "float16"), ("gate", "float32"), ("down", "bfloat16"),
     ("ffn_norm", "float16")],
)  # fmt: skip
def test_one_wrong_weight_is_found_and_its_layer_named(role: str, dtype: str, tmp_path: Path) -> None:
    parent = opened(tmp_path / "parent", "qwen3", dtype)
    cut = some_cut(parent, uniform=True)
    child = written(parent, cut, Repaired(), tmp_path / "child")
    assert compare_blocks(child, parent, cut).relative <= 1e-6
    flip(child, role, 1)
    with pytest.raises(ValueError, match=r"layer 1 of .* differs from layer 2 of the carved parent in"):
        compare_blocks(child, parent, cut)


@pytest.mark.parametrize("role", ["embedding", "final_norm", "head"])
def test_what_is_outside_the_layers_is_compared_to_the_last_byte(
    role: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(verify, "COMPARED_BYTES", 10)
    parent = opened(tmp_path / "parent", "llama")
    cut = Cut.whole(dimensions(parent))
    child = written(parent, cut, Repaired(), tmp_path / "child")
    assert compare_blocks(child, parent, cut) == verify.Verified(0.0, 0.0)
    flip(child, role, None)
    name = child.layout.name(role)
    with pytest.raises(ValueError, match=f"^'{name}' of the written child differs from the parent's$"):
        compare_blocks(child, parent, cut)


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("gemma2", {"layer_types": ["full_attention", "full_attention", "sliding_attention"]}),
        ("qwen2", {"layer_types": ["full_attention"] * 2 + ["sliding_attention"]}),
    ],
)
def test_kinds_of_layers_move_with_them(name: str, settings: dict[str, Any], tmp_path: Path) -> None:
    """A child whose configuration still lists the parent's first layers attends to other tokens."""
    settings |= {"sliding_window": 8, "use_sliding_window": True}
    parent = opened(tmp_path / "parent", name, **settings)
    cut = some_cut(parent, uniform=True)
    child = written(parent, cut, Repaired(), tmp_path / "child")
    assert child.config["layer_types"] == ["full_attention", "sliding_attention"]
    compare_blocks(child, parent, cut)
    configured(child.folder, layer_types=["full_attention"] * 2)
    with pytest.raises(ValueError, match="layer_types differ from the parent"):
        compare_blocks(Checkpoint.open(child.folder), parent, cut)


def test_whether_three_copies_fit(tmp_path: Path) -> None:
    parent = opened(tmp_path, "llama_tied", "bfloat16")
    count = sum(tensor.count for tensor in parent.tensors.values())
    assert fits(parent, 12 * count)
    assert not fits(parent, 12 * count - 1)
