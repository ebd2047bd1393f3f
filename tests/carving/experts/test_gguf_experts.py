"""Experts of GGUF files by weights and by a text: bytes that stay, llama.cpp beside it, refusals."""

import json
import shutil
import struct
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from carvings import carve, rebuild
from changed_folders import flip
from hypothesis import given
from hypothesis import strategies as st
from refusals import Zerolm, refused
from saved_mixtures import kept_in, mixture
from tiny import logits_of

from zerolm.checkpoints import Checkpoint
from zerolm.checkpoints.gguf.dequantise import TypedTensor
from zerolm.checkpoints.gguf.header import read_gguf_header
from zerolm.checkpoints.identity import fingerprint
from zerolm.checkpoints.weight_types import BLOCKS
from zerolm.networks.opener import open_model

gguf: Any = pytest.importorskip("gguf", reason="gguf is not installed")
llama_cpp: Any = pytest.importorskip("llama_cpp", reason="llama-cpp-python is not installed")

from gguf_files import fewer_of, logits, quantised, read, written  # noqa: E402
from split_gguf import split, with_byte  # noqa: E402

from zerolm.carving.experts.gguf_mixture import FewerGgufExperts, GgufMixture  # noqa: E402
from zerolm.children.gguf.check import check  # noqa: E402

PLAIN: dict[str, dict[str, Any]] = {
    "qwen3_moe": {
        "attention_bias": False, "norm_topk_prob": True, "mlp_only_layers": [], "hidden_size": 64,
        "moe_intermediate_size": 32,
    },
    "gpt_oss": {"hidden_size": 64, "intermediate_size": 32},
    "deepseek_v3": {"attention_bias": False, "hidden_size": 64, "moe_intermediate_size": 32},
}  # fmt: skip
"""What llama.cpp has of these, and rows that fall into blocks of 32."""


def gguf_parent(folder: Path, kind: str) -> Path:
    return written(mixture(folder / "parent", kind, **PLAIN[kind]), folder / "parent.gguf")


@pytest.mark.parametrize("kind", PLAIN)
def test_a_child_is_the_same_file_by_every_way(kind: str, tmp_path: Path) -> None:
    """Of the file, of the folder as a file, and the folder's child, which is its masked parent, as a file."""
    file, parent = gguf_parent(tmp_path, kind), tmp_path / "parent"
    flags: dict[str, Any] = {"keep_experts": "0.5", "criterion": "random", "seed": 3}
    child, kept = fewer_of(file, tmp_path / "child")
    carve(parent, tmp_path / "folder", **flags)
    assert kept == {layer: row.tolist() for layer, row in kept_in(tmp_path / "folder").items()}
    assert carve(parent, tmp_path / "as file", form="gguf", **flags).verified.difference <= 5e-3
    theirs = read(written(tmp_path / "folder", tmp_path / "folder.gguf"))
    for ours in (read(child), read(tmp_path / "as file" / child.name)):
        assert ours.keys() == theirs.keys()
        assert all(ours[name][0] == theirs[name][0] for name in ours)
        assert all(np.array_equal(ours[name][1], theirs[name][1]) for name in ours)
    checked = check(child, logits_of(open_model(Checkpoint.open(tmp_path / "folder"))), None, tolerance=5e-3)
    assert checked.difference <= 5e-3
    assert not rebuild(tmp_path / "as file" / "recipe.json", parent, tmp_path / "again").notes
    assert (tmp_path / "again" / child.name).is_file()
    assert not list(tmp_path.glob(".zerolm-*"))


@pytest.mark.parametrize(("kind", "name"), [("qwen3_moe", "Q4_0"), ("gpt_oss", "MXFP4"), ("gpt_oss", "Q8_0")])
def test_taken_out_and_quantised_in_either_order(kind: str, name: str, tmp_path: Path) -> None:
    """Blocks lie within rows, so that the child of the quantised file is the quantised child."""
    file = gguf_parent(tmp_path, kind)
    typed = quantised(file, name, tmp_path / "typed.gguf")
    assert name in {tensor[0].name for key, tensor in read(typed).items() if "_exps.weight" in key}
    child, _ = fewer_of(typed, tmp_path / "child")
    plain, _ = fewer_of(file, tmp_path / "plain")
    wanted, ours = read(quantised(plain, name, tmp_path / "other.gguf")), read(child)
    assert ours.keys() == wanted.keys()
    for key, (of_type, data) in ours.items():
        assert of_type == wanted[key][0]
        assert data.tobytes() == wanted[key][1].tobytes(), key


@pytest.mark.parametrize(
    ("kind", "bias"), [("gpt_oss", "ffn_gate_inp.bias"), ("deepseek_v3", "exp_probs_b.bias")]
)
def test_llama_cpp_computes_what_the_masked_parent_does(kind: str, bias: str, tmp_path: Path) -> None:
    """The parent's router cannot choose what has gone: minus 10^9 is added to it."""
    typed = quantised(gguf_parent(tmp_path, kind), "Q8_0", tmp_path / "typed.gguf")
    child, kept = fewer_of(typed, tmp_path / "child", keep_experts="4")
    masked, header = tmp_path / "masked.gguf", read_gguf_header(typed)
    shutil.copyfile(typed, masked)
    for layer, stay in kept.items():
        start, end = header.places[f"blk.{layer}.{bias}"]
        values = np.memmap(masked, np.float32, "r+", start, ((end - start) // 4,))
        values[np.setdiff1d(np.arange(8), stay)] = -1e9
        values.flush()
    ids = [3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8]
    ours, wanted, whole = (logits(place, ids) for place in (child, masked, typed))
    scale = float(np.abs(wanted).max())
    assert float(np.abs(ours - wanted).max()) <= 1e-5 * scale
    assert float(np.abs(whole - wanted).max()) > 1e-3 * scale, "masking does something"


def test_metadata_stay_but_for_the_number_of_experts(tmp_path: Path) -> None:
    typed = quantised(gguf_parent(tmp_path, "qwen3_moe"), "Q8_0", tmp_path / "typed.gguf")
    child, _ = fewer_of(typed, tmp_path / "child")
    ours, theirs = (gguf.GGUFReader(place).fields for place in (child, typed))
    assert list(ours) == list(theirs)
    different = {name for name in ours if ours[name].contents() != theirs[name].contents()}
    assert different == {"qwen3moe.expert_count"}
    assert ours["qwen3moe.expert_count"].contents() == 4


@pytest.mark.parametrize("name", [None, "MXFP4"])
def test_what_goes_by_weights(name: str | None, tmp_path: Path) -> None:
    """The ratio of the paper, over all weights of an expert, from numbers that the library reads."""
    file = gguf_parent(tmp_path, "qwen3_moe")
    file = file if name is None else quantised(file, name, tmp_path / "typed.gguf")
    _, kept = fewer_of(file, tmp_path / "child", criterion="aimer")
    numbers = {
        one.name: np.asarray(gguf.quants.dequantize(one.data, one.tensor_type), np.float64)
        for one in gguf.GGUFReader(file).tensors
        if "_exps.weight" in one.name
    }
    for layer, stay in kept.items():
        parts = [
            numbers[f"blk.{layer}.ffn_{role}_exps.weight"].reshape(8, -1) for role in ("gate", "up", "down")
        ]
        weights = np.concatenate(parts, 1)
        ratios = np.abs(weights).mean(1) / np.sqrt(np.square(weights).mean(1))
        assert stay == sorted(np.argsort(ratios, kind="stable")[:4].tolist())


def test_other_bytes_are_seen(tmp_path: Path) -> None:
    child, kept = fewer_of(gguf_parent(tmp_path, "qwen3_moe"), tmp_path / "child")
    stay = {layer: np.array(row) for layer, row in kept.items()}
    fewer = FewerGgufExperts(GgufMixture.open(tmp_path / "parent.gguf"), stay)
    fewer.compare(child)
    start, end = read_gguf_header(child).places["blk.1.ffn_up_exps.weight"]
    flip(child, end - 1)
    with pytest.raises(ValueError, match=r"blk\.1\.ffn_up_exps.weight' of the written child differs"):
        fewer.compare(child)
    assert end > start


def test_a_recipe_gives_the_same_bytes_again(tmp_path: Path) -> None:
    file = gguf_parent(tmp_path, "qwen3_moe")
    child, _ = fewer_of(file, tmp_path / "child")
    recipe = tmp_path / "child" / "recipe.json"
    assert rebuild(recipe, file, tmp_path / "again").notes == []
    assert (tmp_path / "again" / child.name).read_bytes() == child.read_bytes()
    document = json.loads(recipe.read_text())
    for change, message in (
        ({"parent_header": "0"}, "made for another file: 'parent.gguf'"),
        ({"experts": document["experts"][1:]}, "other numbers of experts"),
        ({"experts": [{"layer": 0, "kept": [0, 8]}]}, "must ascend within 0 to 7"),
        ({"version": 99}, "its version is 99; 1 can be read"),
    ):
        (tmp_path / "wrong.json").write_text(json.dumps(document | change))
        with pytest.raises(ValueError, match=message):
            rebuild(tmp_path / "wrong.json", file, tmp_path / "other")
    with file.open("r+b") as opened:
        opened.seek(read_gguf_header(file).places["output_norm.weight"][0])
        opened.write(b"\0")
    differing = rebuild(recipe, file, tmp_path / "other")
    assert "differs from the child that the recipe describes" in " ".join(differing.notes)


def test_auto_keeps_the_most_within_a_budget(tmp_path: Path) -> None:
    file = gguf_parent(tmp_path, "qwen3_moe")
    flags: dict[str, Any] = {"form": "gguf", "keep_experts": "auto", "criterion": "random"}
    carved = carve(file, budgets={"max_weight_bytes": "0.8x"}, **flags)
    costs = carved.costs
    assert costs["child"]["weight_bytes"] <= 0.8 * costs["parent"]["weight_bytes"]
    more = carve(file, **flags | {"keep_experts": str(carved.experts.child + 1)})
    assert more.costs["child"]["weight_bytes"] > 0.8 * costs["parent"]["weight_bytes"]
    folder = carve(tmp_path / "parent", keep_experts=str(carved.experts.child), criterion="random")
    for name in ("params", "active_params"):
        assert costs["child"][name] == folder.costs["child"][name]
    with pytest.raises(ValueError, match="max_macs is not known of this parent; params, active_params"):
        carve(file, budgets={"max_macs": 10}, **flags)


def test_blocks_of_all_types_are_those_of_the_library() -> None:
    assert {number.value: sizes for number, sizes in gguf.GGML_QUANT_SIZES.items()} == BLOCKS


def torn(file: Path, **changes: Any) -> Path:
    """Return a small file with a layer of four experts, changed: None takes a tensor away."""
    writer = gguf.GGUFWriter(file, "some")
    for key, value in {"expert_count": 4, "expert_used_count": 2, "block_count": 1}.items():
        value = changes.pop(key, value)
        if isinstance(value, str):
            writer.add_string(f"some.{key}", value)
        elif value is not None:
            writer.add_uint32(f"some.{key}", value)
    shapes: dict[str, Any] = {
        "blk.0.ffn_gate_inp.weight": (4, 32), "blk.0.ffn_up_exps.weight": (4, 8, 32),
        "blk.0.ffn_down_exps.weight": (4, 32, 8), "blk.0.ffn_norm_exps.weight": (32,),
    } | changes  # fmt: skip
    for name, shape in shapes.items():
        if shape is not None:
            writer.add_tensor(name, np.ones(shape, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return file


TORN: dict[str, tuple[dict[str, Any], str]] = {
    "no experts": ({"expert_count": None}, "has no experts to take out"),
    "no number": ({"expert_count": "four"}, "some.expert_count is four, which is no size"),
    "more active than there are": ({"expert_used_count": 5}, "it has 4 experts, 5 active"),
    "a router with other rows": ({"blk.0.ffn_gate_inp.weight": (3, 32)}, "no part for each of 4 experts"),
    "other experts": ({"blk.0.ffn_up_exps.weight": (5, 8, 32)}, "no part for each of 4 experts"),
    "one matrix": ({"blk.0.ffn_up_exps.weight": (8, 4)}, "no part for each of 4 experts"),
    "no router": ({"blk.0.ffn_gate_inp.weight": None}, "layer 0 has experts without a router"),
    "not all matrices": ({"blk.0.ffn_down_exps.weight": None}, "not all of their matrices"),
    "another kind": ({"blk.0.ffn_up_chexps.weight": (2, 8, 32)}, "may be one of experts"),
}


@pytest.mark.parametrize("fault", TORN)
def test_files_that_do_not_fit_are_refused(fault: str, zerolm: Zerolm, here: Path) -> None:
    changes, words = TORN[fault]
    torn(here / "x.gguf", **changes)
    flags = ("--keep-experts", "2", "--format", "gguf", "--out", "child")
    refused(zerolm, "carve", "x.gguf", *flags, words=words)


WRONG: dict[str, tuple[list[str], str]] = {
    "into a folder": (["--format", "hf"], "give --format gguf"),
    "a text": (["--format", "gguf", "--text", "random"], "--criterion aimer needs no text"),
    "another cut": (["--format", "gguf", "--keep-heads", ".5"], "is not read as a parent"),
    "neurons": (["--format", "gguf", "--keep-expert-ffn", "8"], "in blocks, so that none can be pruned"),
    "too few": (["--format", "gguf", "--keep-experts", "1"], "the nearest that can be is 2"),
    "the parent's folder": (["--force", "--out", "."], "holds the parent, which is never touched"),
    "bits and no budget": (["--keep-experts", "auto", "--max-bits", "1"], "would have to be at least"),
}
OUT = ("--out", "child")


@pytest.mark.parametrize("fault", WRONG)
def test_what_is_not_done_is_refused(fault: str, zerolm: Zerolm, here: Path) -> None:
    flags, words = WRONG[fault]
    torn(here / "x.gguf")
    count = () if "--keep-experts" in flags else ("--keep-experts", "2")
    refused(zerolm, "carve", "x.gguf", *count, *flags, *(() if "--out" in flags else OUT), words=words)


def test_types_that_are_not_known_are_refused(tmp_path: Path) -> None:
    content, name = torn(tmp_path / "x.gguf").read_bytes(), b"blk.0.ffn_up_exps.weight"
    at = content.index(name) + len(name) + 4 + 3 * 8
    (tmp_path / "y.gguf").write_bytes(content[:at] + struct.pack("<I", 99) + content[at + 4 :])
    with pytest.raises(ValueError, match="has type number 99, whose size is not known"):
        GgufMixture.open(tmp_path / "y.gguf")


def test_metadata_that_are_there_twice_are_refused(tmp_path: Path) -> None:
    """Readers take the one or the other."""
    writer = gguf.GGUFWriter(tmp_path / "x.gguf", "some")
    writer.add_uint32("some.expert_count", 4)
    writer.add_uint32("some.expert_counu", 8)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    content = (tmp_path / "x.gguf").read_bytes().replace(b"expert_counu", b"expert_count")
    (tmp_path / "x.gguf").write_bytes(content)
    with pytest.raises(ValueError, match=r"two entries of its metadata are 'some\.expert_count'"):
        read_gguf_header(tmp_path / "x.gguf")


SIZES: dict[str, Any] = {"hidden_size": 96}
BY_TEXT: dict[str, dict[str, Any]] = {
    "qwen3_moe": {
        "moe_intermediate_size": 32, "mlp_only_layers": [], "attention_bias": False, "norm_topk_prob": True,
    },
    "qwen2_moe": {
        "moe_intermediate_size": 32, "mlp_only_layers": [], "tie_word_embeddings": False,
        "norm_topk_prob": False, "shared_expert_intermediate_size": 64,
    },
    "olmoe": {
        "intermediate_size": 32, "num_key_value_heads": 6, "attention_bias": False, "clip_qkv": None,
        "tie_word_embeddings": False, "norm_topk_prob": False,
    },
    "mixtral": {"intermediate_size": 32, "sliding_window": None},
}  # fmt: skip
"""What files of these are read as, and rows that fall into blocks of 32."""
IDS = [3, 1, 4, 1, 5, 9, 2, 6]
TEXT: dict[str, Any] = {"text": "random", "sequences": 6, "length": 16}


def readable_parent(folder: Path, kind: str, **changes: Any) -> Path:
    place = mixture(folder / "parent", kind, **SIZES | BY_TEXT[kind] | changes)
    return written(place, folder / "parent.gguf")


@pytest.mark.parametrize("kind", BY_TEXT)
def test_a_file_is_read_as_the_mixture_that_it_was_written_of(kind: str, tmp_path: Path) -> None:
    file = readable_parent(tmp_path, kind)
    ours, theirs = Checkpoint.open(file, packed=True), Checkpoint.open(tmp_path / "parent")
    assert set(ours.layout.slots) == set(theirs.layout.slots)
    assert fingerprint(ours) == fingerprint(theirs)
    ids = torch.tensor([IDS])
    with torch.no_grad():
        assert torch.equal(*(open_model(e)(input_ids=ids, use_cache=False).logits for e in (ours, theirs)))


@pytest.mark.parametrize(("kind", "name"), [("qwen3_moe", "Q8_0"), *((kind, "Q4_0") for kind in BY_TEXT)])
def test_a_quantised_file_sends_what_llama_cpp_computes(kind: str, name: str, tmp_path: Path) -> None:
    """Its matrices stay in the file; llama.cpp rounds what it multiplies them by to eight bits."""
    file = quantised(readable_parent(tmp_path, kind), name, tmp_path / "typed.gguf")
    checkpoint = Checkpoint.open(file, packed=True)
    lazy = [each for each in checkpoint.tensors.values() if isinstance(each, TypedTensor)]
    assert {each.dtype for each in lazy} == {name} == {*checkpoint.packed}
    assert sum("expert" in each.name for each in lazy) >= 3 * 8 * 3
    with torch.no_grad():
        sent: Any = open_model(checkpoint)(input_ids=torch.tensor([IDS]), use_cache=False).logits[0]
        whole: Any = open_model(Checkpoint.open(tmp_path / "parent"))(torch.tensor([IDS])).logits[0]
    theirs = logits(file, IDS)
    apart, rounded = np.abs(sent.numpy() - theirs).max(), np.abs(sent.numpy() - whole.numpy()).max()
    assert apart <= 0.05 * np.abs(theirs).max()
    assert name == "Q8_0" or rounded > 3 * apart


@pytest.mark.parametrize("criterion", ["reap", "hope_moments"])
def test_a_text_tells_of_a_file_what_it_tells_of_its_folder(criterion: str, tmp_path: Path) -> None:
    file = readable_parent(tmp_path, "qwen3_moe")
    ours = carve(file, tmp_path / "child", form="gguf", keep_experts="0.5", criterion=criterion, **TEXT)
    theirs = carve(tmp_path / "parent", keep_experts="0.5", criterion=criterion, **TEXT)
    for mine, other in zip(ours.experts.layers, theirs.experts.layers, strict=True):
        assert mine == other
        assert 0 < mine.tokens < 1
    assert ours.optimal == theirs.optimal


def test_parts_have_the_child_of_the_whole(tmp_path: Path) -> None:
    """Byte for byte, but that it is said to be in no parts."""
    file = quantised(readable_parent(tmp_path, "qwen3_moe"), "Q4_0", tmp_path / "typed.gguf")
    first = split(file, 3, tmp_path / "parts")
    flags = {"criterion": "reap", **TEXT}
    (whole, kept), (parts, others) = (
        fewer_of(place, tmp_path / name, **flags) for place, name in ((file, "a"), (first, "b"))
    )
    assert kept == others
    assert parts.name == "typed-carved.gguf"
    assert np.array_equal(logits(whole, IDS), logits(parts, IDS))
    rebuild(tmp_path / "b" / "recipe.json", first, tmp_path / "again")
    assert (tmp_path / "again" / parts.name).read_bytes() == parts.read_bytes()


def test_nothing_is_repaired_and_that_is_told(tmp_path: Path) -> None:
    """A text repairs where nothing else is told, and experts of a file stay as they are."""
    file = readable_parent(tmp_path, "qwen3_moe")
    flags: dict[str, Any] = {"form": "gguf", "keep_experts": "4", "criterion": "reap", **TEXT}
    told = carve(file, tmp_path / "told", repair="least-squares", **flags)
    assert told.notes == ["experts of a gguf file are copied as they are, and none is repaired"]
    carve(file, tmp_path / "plain", **flags)
    names = [tmp_path / name / "parent-carved.gguf" for name in ("told", "plain")]
    assert names[0].read_bytes() == names[1].read_bytes()


@cache
def sound_file() -> Path:
    folder = Path(tempfile.mkdtemp())
    return quantised(readable_parent(folder, "qwen3_moe"), "Q8_0", folder / "typed.gguf")


def opened(file: Path) -> tuple[Checkpoint | None, str]:
    """Return a file as a checkpoint, or why it is none."""
    try:
        return Checkpoint.open(file, packed=True), ""
    except ValueError as error:
        return None, str(error)


@given(st.integers(0, 10**6), st.integers(0, 255))
def test_a_changed_byte_opens_or_is_refused_in_one_line(at: int, value: int) -> None:
    """Also where all of its tensors are read then."""
    checkpoint, refusal = opened(with_byte(sound_file(), at, value))
    assert "\n" not in refusal
    assert checkpoint is not None or "changed.gguf" in refusal
    for name in checkpoint.layout.slots if checkpoint else ():
        assert checkpoint.read(name).shape == checkpoint.tensors[name].shape


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        (b"qwen3moe.expert_count", b"qwen3moe.expert_fount", "architecture 'qwen3moe' is not read as a"),
        (b"blk.1.ffn_up_exps.weight", b"blk.1.ffn_xp_exps.weight", "blk.1.ffn_xp_exps.weight' is none of"),
        (b"expert_used_count", b"expert_usel_count", "its expert_used_count is None, which is no size"),
        (b"blk.2.ffn_gate_inp.weight", b"blk.9.ffn_gate_inp.weight", "'blk.9.ffn_gate_inp.weight' is none"),
    ],
)
def test_what_is_no_sound_mixture_is_refused(old: bytes, new: bytes, reason: str, tmp_path: Path) -> None:
    content = sound_file().read_bytes()
    assert old in content
    (tmp_path / "x.gguf").write_bytes(content.replace(old, new, 1))
    with pytest.raises(ValueError, match=reason) as error:
        Checkpoint.open(tmp_path / "x.gguf", packed=True)
    assert "\n" not in str(error.value)
    assert "x.gguf" in str(error.value)


def test_what_no_text_tells(zerolm: Zerolm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another architecture, no text, a text that is not read, a worst domain of one, another command."""
    readable_parent(tmp_path, "qwen3_moe")
    other = mixture(tmp_path / "oss", "gpt_oss", hidden_size=64, intermediate_size=32)
    written(other, tmp_path / "other.gguf")
    monkeypatch.chdir(tmp_path)
    reap = ("--criterion", "reap", "--text", "random")
    for flags, words in (
        (("parent.gguf", *reap[:2]), "criterion reap needs tokens: give --text FILE"),
        (("parent.gguf", "--criterion", "aimer", *reap[2:]), "criterion aimer reads no text"),
        (("parent.gguf", *reap, "--domains", "worst"), "--domains worst needs texts of several domains"),
        (("other.gguf", *reap), "architecture 'gpt-oss' is not read"),
    ):
        keep = ("--keep-experts", "4", "--format", "gguf", "--out", "child")
        refused(zerolm, "carve", *flags, *keep, words=words)
    words = "a qwen3_moe in a gguf file is read by carve and eval alone"
    refused(zerolm, "ledger", "parent.gguf", words=words)
