"""GGUF files as parents, also in parts: each tensor is that of the folder they are of; lies are refused."""

import re
import shutil
import struct
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tiny_families
import torch
from changed_folders import configured
from hypothesis import given
from hypothesis import strategies as st
from split_gguf import split, with_byte
from tiny import DECODER, saved
from transformers import LlamaConfig, LlamaForCausalLM

from zerolm.checkpoints import Checkpoint
from zerolm.checkpoints.gguf.configuration import LLAMA3, llama3_factors
from zerolm.checkpoints.gguf.header import read_gguf_header
from zerolm.checkpoints.gguf.parts import first_part, read_gguf, stem_of
from zerolm.checkpoints.identity import fingerprint
from zerolm.checkpoints.many_scripts import PAGE
from zerolm.checkpoints.weight_types import BY_NAME
from zerolm.families.config import sizes_of
from zerolm.networks.opener import stock_tokenizer

gguf = pytest.importorskip("gguf", reason="gguf is not installed")
pytest.importorskip("llama_cpp", reason="llama-cpp-python is not installed")

from gguf_files import written  # noqa: E402

from zerolm.carving.bits.kernels import rounded  # noqa: E402
from zerolm.carving.bits.typed_child import TypedChild  # noqa: E402
from zerolm.carving.bits.weighed_child import WeighedChild  # noqa: E402
from zerolm.children.child_tensors import Child  # noqa: E402
from zerolm.children.gguf.rope import factors_of  # noqa: E402
from zerolm.children.gguf.write import write  # noqa: E402
from zerolm.units.kept_units import Cut, dimensions  # noqa: E402

FAMILIES = ("arcee", "ernie4_5", "gemma", "hunyuan_v1_dense", "llama", "olmo2", "phi3", "qwen3")


def same(ours: Checkpoint, theirs: Checkpoint) -> None:
    """Compare all that a network is made of; a norm that is stored as 1 + w is rounded once."""
    assert sizes_of(ours.family, ours.config) == sizes_of(theirs.family, theirs.config)
    names = [n for n, slot in theirs.layout.slots.items() if not (theirs.layout.tied and slot.role == "head")]
    assert set(names) == set(ours.layout.slots)
    for name in names:
        np.testing.assert_allclose(ours.read(name), theirs.read(name), atol=2e-7, err_msg=name)


@pytest.mark.parametrize(
    ("kind", "dtype"), [*((kind, "float32") for kind in FAMILIES), ("llama", "bfloat16"), ("phi3", "float16")]
)
def test_all_tensors_of_a_family_are_read_as_they_were(kind: str, dtype: str, tmp_path: Path) -> None:
    folder = tiny_families.saved(tmp_path / "parent", kind, dtype)
    same(Checkpoint.open(written(folder, tmp_path / "x.gguf")), Checkpoint.open(folder))


@pytest.mark.parametrize("name", ["llama_tied", "llama_biased", "qwen2", "qwen2_tied", "qwen3"])
def test_heads_and_biases_are_those_of_the_file(name: str, tmp_path: Path) -> None:
    folder = saved(tmp_path / "parent", name)
    same(Checkpoint.open(written(folder, tmp_path / "x.gguf")), Checkpoint.open(folder))


def test_a_llama_whose_heads_do_not_divide_its_stream_is_a_mistral(tmp_path: Path) -> None:
    folder = configured(saved(tmp_path / "parent", "mistral_odd"), sliding_window=None)
    ours = Checkpoint.open(written(folder, tmp_path / "x.gguf"))
    assert ours.family.name == "mistral"
    same(ours, Checkpoint.open(folder))


def test_a_trained_model_has_weights_tokens_and_fingerprint(models_folder: Path, tmp_path: Path) -> None:
    theirs = Checkpoint.open(models_folder / "pydec")
    ours = Checkpoint.open(written(theirs.folder, tmp_path / "x.gguf"))
    assert fingerprint(ours) == fingerprint(theirs)
    assert ours.place == tmp_path / "x.gguf"
    text = PAGE + (models_folder / "README.md").read_text()
    one, other = (stock_tokenizer(each.folder) for each in (ours, theirs))
    assert one(text)["input_ids"] == other(text)["input_ids"]
    assert one.decode(one(text)["input_ids"]) == other.decode(other(text)["input_ids"])
    assert Checkpoint.open(tmp_path).place == ours.place


@pytest.mark.parametrize("head", [8, 32, 128])
def test_factors_of_llama_3_are_those_of_transformers(head: int) -> None:
    settings = {"rope_type": "llama3", "rope_theta": 500000.0, "factor": 32.0, **LLAMA3}
    config = LlamaConfig(
        hidden_size=head * 2, num_attention_heads=2, head_dim=head, rope_parameters=dict(settings),
        max_position_embeddings=131072,
    )  # fmt: skip
    theirs = factors_of(config)
    np.testing.assert_allclose(llama3_factors(head, {k: v for k, v in settings.items() if k != "rope_type"}),
                               theirs, rtol=1e-4)  # fmt: skip


@pytest.mark.parametrize(
    "scaling",
    [
        {"rope_type": "linear", "rope_theta": 500.0, "factor": 4.0},
        {"rope_type": "llama3", "rope_theta": 500000.0, "factor": 8.0, **LLAMA3},
    ],
)
def test_scaled_positions_are_read_from_their_factors(scaling: dict[str, Any], tmp_path: Path) -> None:
    torch.manual_seed(0)
    settings = DECODER | {"rope_parameters": dict(scaling), "head_dim": 32, "max_position_embeddings": 4096}
    LlamaForCausalLM(LlamaConfig(**settings)).save_pretrained(tmp_path / "parent")
    ours = Checkpoint.open(written(tmp_path / "parent", tmp_path / "x.gguf"))
    same(ours, Checkpoint.open(tmp_path / "parent"))
    read = ours.config["rope_parameters"]
    assert read["rope_type"] == scaling["rope_type"]
    assert read["factor"] == pytest.approx(scaling["factor"])


def quantised(folder: Path, file: Path, kind: str) -> Path:
    """The whole model of a folder in one type."""
    checkpoint = Checkpoint.open(folder)
    whole = WeighedChild(Child(checkpoint, Cut.whole(dimensions(checkpoint))))
    write(whole.child, file, TypedChild(whole, dict.fromkeys(whole.matrices, kind)))
    return file


@pytest.mark.parametrize("kind", ["Q8_0", "Q4_0", "Q5_1"])
def test_a_quantised_file_has_the_numbers_that_it_is_read_back_as(kind: str, tmp_path: Path) -> None:
    settings = DECODER | {"hidden_size": 96, "intermediate_size": 64, "head_dim": 16}
    torch.manual_seed(0)
    LlamaForCausalLM(LlamaConfig(**settings)).save_pretrained(tmp_path / "parent")
    theirs = Checkpoint.open(tmp_path / "parent")
    ours = Checkpoint.open(quantised(theirs.folder, tmp_path / "x.gguf", kind))
    assert ours.source.quantised == (kind,)
    for name, slot in theirs.layout.slots.items():
        values = theirs.read(name)
        is_matrix = len(slot.axes) == 2
        wanted = rounded(values, BY_NAME[kind], None) if is_matrix else values
        np.testing.assert_array_equal(ours.read(name), wanted)


def edited(file: Path, place: Path, old: bytes, new: bytes) -> Path:
    content = file.read_bytes()
    assert len(old) == len(new)
    assert old in content
    place.write_bytes(content.replace(old, new, 1))
    return place


@cache
def sound() -> Path:
    folder = Path(tempfile.mkdtemp())
    return written(saved(folder / "parent", "llama"), folder / "x.gguf")


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        (b"deci", b"dice", "architecture 'dice' is not read as a parent"),
        (b"blk.1.attn_q.weight", b"blk.7.attn_q.weight", "tensor 'blk.7.attn_q.weight' is none of a llama"),
        (b"blk.1.ffn_up.weight", b"blk.0.ffn_up.weight", "two of its tensors have one name"),
        (b"deci.block_count", b"deci.block_other", "its block_count is None, which is no size"),
        (b"output_norm.weight", b"output_nope.weight", "tensor 'output_nope.weight' is none of a llama"),
        (b"token_embd.weight", b"token_embl.weight", "there is no matrix 'token_embd.weight'"),
        (b"layer_norm_rms_epsilon", b"layer_norm_rms_epsiloX", "its attention.layer_norm_rms_epsilon is"),
    ],
)
def test_what_is_no_sound_parent_is_refused(old: bytes, new: bytes, reason: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=re.escape(reason)) as error:
        Checkpoint.open(edited(sound(), tmp_path / "x.gguf", old, new))
    assert "\n" not in str(error.value)
    assert "x.gguf" in str(error.value)


def test_offsets_that_lie_are_refused(tmp_path: Path) -> None:
    header = read_gguf_header(sound())
    first, second, *_ = sorted(header.places, key=header.places.__getitem__)
    size = header.places[first][1] - header.places[first][0]
    start = struct.pack("<Q", header.places[second][0] - header.places[first][0])
    entry = second.encode() + struct.pack("<I", len(header.tensors[second]))
    entry += b"".join(struct.pack("<Q", axis) for axis in header.tensors[second]) + struct.pack("<I", 0)
    for place, reason in ((0, "overlaps another"), (size * 10**6, "it is cut off"), (7, "multiple of 32")):
        with pytest.raises(ValueError, match=reason):
            Checkpoint.open(
                edited(sound(), tmp_path / "x.gguf", entry + start, entry + struct.pack("<Q", place))
            )


def refusal(file: Path) -> str:
    """What is said of a file that does not open; empty where it does."""
    try:
        Checkpoint.open(file)
    except ValueError as error:
        return str(error)
    return ""


@given(st.integers(0, 10**6), st.integers(0, 255))
def test_a_changed_byte_opens_or_is_refused_in_one_line(at: int, value: int) -> None:
    assert "\n" not in refusal(with_byte(sound(), at, value))


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("parts")
    return written(tiny_families.saved(folder / "parent", "llama", "float32"), folder / "x.gguf")


@pytest.mark.parametrize("count", [2, 5])
def test_parts_are_the_model_that_they_are_of(count: int, whole: Path, tmp_path: Path) -> None:
    """Also by the folder that holds them and nothing else."""
    first = split(whole, count, tmp_path)
    model, one = read_gguf(first), read_gguf(whole)
    assert len(model.files) == count == len(set(model.file_of.values()))
    assert model.header.tensors == one.header.tensors
    assert model.header.metadata.items() >= one.header.metadata.items()
    assert {fingerprint(Checkpoint.open(place)) for place in (first, tmp_path, whole)} == {
        fingerprint(Checkpoint.open(whole.parent / "parent"))
    }
    assert stem_of(first) == "x"


def test_two_models_of_a_folder_name_none(whole: Path, tmp_path: Path) -> None:
    split(whole, 2, tmp_path)
    shutil.copyfile(whole, tmp_path / "y.gguf")
    assert first_part(sorted(tmp_path.glob("*.gguf"))) is None
    with pytest.raises(ValueError, match="holds 3 GGUF files: name one"):
        Checkpoint.open(tmp_path)


def renamed(whole: Path, folder: Path, name: str) -> Path:
    """Return the first of three parts, under another name."""
    return split(whole, 3, folder / "parts").rename(folder / name)


def without_the_second(whole: Path, folder: Path) -> Path:
    first = split(whole, 3, folder)
    (folder / "x-00002-of-00003.gguf").unlink()
    return first


ALONE = "it is one of 3 parts, and its name is not ...-00001-of-00003.gguf"
REFUSED: dict[str, tuple[Callable[[Path, Path], Path], str]] = {
    "a part is missing": (without_the_second, "part 'x-00002-of-00003.gguf' is missing: all 3 parts are"),
    "not the first": (
        lambda whole, folder: split(whole, 3, folder).with_name("x-00003-of-00003.gguf"),
        "it is part 3 of 3: name the first, x-00001-of-00003.gguf",
    ),
    "a name without parts": (lambda whole, folder: renamed(whole, folder, "x.gguf"), ALONE),
    "a name of four": (lambda whole, folder: renamed(whole, folder, "x-00001-of-00004.gguf"), ALONE),
    "another number": (lambda whole, folder: split(whole, 3, folder, no=0), "'x-00003-of-00003.gguf' is not"),
    "another count": (lambda whole, folder: split(whole, 3, folder, count=4), "'x-00003-of-00003.gguf' is"),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_parts_that_do_not_fit_are_refused(
    case: str, whole: Path, tmp_path: Path, zerolm: Callable[..., Any]
) -> None:
    place, words = REFUSED[case]
    zerolm("ledger", str(place(whole, tmp_path)), "-q").refused(words)


def test_missing_or_double_tensors(whole: Path, tmp_path: Path, zerolm: Callable[..., Any]) -> None:
    first, other = split(whole, 2, tmp_path / "a"), split(whole, 4, tmp_path / "b")
    last = first.with_name("x-00002-of-00002.gguf")
    shutil.copyfile(other.with_name("x-00004-of-00004.gguf"), last)
    zerolm("ledger", str(first), "-q").refused("is not marked as part 2 of 2")
    split(whole, 4, tmp_path / "c", no=1, count=2)
    shutil.copyfile(tmp_path / "c" / "x-00004-of-00004.gguf", last)
    zerolm("ledger", str(first), "-q").refused("tensors, its header specifies")
    split(whole, 1, tmp_path / "d", no=1, count=2)
    shutil.copyfile(tmp_path / "d" / "x-00001-of-00001.gguf", last)
    zerolm("ledger", str(first), "-q").refused("two of its parts have a tensor of one name")
