"""GGUF files as parents: each tensor is that of the folder that they were written of; lies are refused."""

from __future__ import annotations

import json
import re
import struct
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tiny_families
import torch
from hypothesis import given
from hypothesis import strategies as st
from split_gguf import with_byte
from tiny import DECODER, saved
from transformers import LlamaConfig, LlamaForCausalLM

from zerolm.checkpoints import Checkpoint
from zerolm.checkpoints.gguf.configuration import LLAMA3, llama3_factors
from zerolm.checkpoints.gguf.header import read_gguf_header
from zerolm.checkpoints.identity import fingerprint
from zerolm.checkpoints.many_scripts import PAGE
from zerolm.checkpoints.weight_types import BY_NAME
from zerolm.families.config import sizes_of
from zerolm.networks.opener import stock_tokenizer

gguf = pytest.importorskip("gguf", reason="gguf is not installed")
pytest.importorskip("llama_cpp", reason="llama-cpp-python is not installed")

from zerolm.carving.bits.kernels import rounded  # noqa: E402
from zerolm.carving.bits.typed_child import TypedChild  # noqa: E402
from zerolm.carving.bits.weighed_child import WeighedChild  # noqa: E402
from zerolm.children.child_tensors import Child  # noqa: E402
from zerolm.children.gguf.rope import factors_of  # noqa: E402
from zerolm.children.gguf.write import write  # noqa: E402
from zerolm.units.kept_units import Cut, dimensions  # noqa: E402

FAMILIES = ("arcee", "ernie4_5", "gemma", "hunyuan_v1_dense", "llama", "olmo2", "phi3", "qwen3")


def gguf_of(folder: Path, file: Path) -> Path:
    """The whole model of a folder as a file."""
    checkpoint = Checkpoint.open(folder)
    write(Child(checkpoint, Cut.whole(dimensions(checkpoint))), file)
    return file


def same(ours: Checkpoint, theirs: Checkpoint) -> None:
    """Compare all that a network is made of; a norm that is stored as 1 + w is rounded once."""
    assert sizes_of(ours.family, ours.config) == sizes_of(theirs.family, theirs.config)
    names = [
        name for name, slot in theirs.layout.slots.items() if not (theirs.layout.tied and slot.role == "head")
    ]
    assert set(names) == set(ours.layout.slots)
    for name in names:
        np.testing.assert_allclose(ours.read(name), theirs.read(name), atol=2e-7, err_msg=name)


@pytest.mark.parametrize(
    ("kind", "dtype"), [*((kind, "float32") for kind in FAMILIES), ("llama", "bfloat16"), ("phi3", "float16")]
)
def test_all_tensors_of_a_family_are_read_as_they_were(kind: str, dtype: str, tmp_path: Path) -> None:
    folder = tiny_families.saved(tmp_path / "parent", kind, dtype)
    same(Checkpoint.open(gguf_of(folder, tmp_path / "x.gguf")), Checkpoint.open(folder))


@pytest.mark.parametrize("name", ["llama_tied", "llama_biased", "qwen2", "qwen2_tied", "qwen3"])
def test_heads_and_biases_are_those_of_the_file(name: str, tmp_path: Path) -> None:
    folder = saved(tmp_path / "parent", name)
    same(Checkpoint.open(gguf_of(folder, tmp_path / "x.gguf")), Checkpoint.open(folder))


def test_a_llama_whose_heads_do_not_divide_its_stream_is_a_mistral(tmp_path: Path) -> None:
    folder = saved(tmp_path / "parent", "mistral_odd")
    config = json.loads((folder / "config.json").read_text()) | {"sliding_window": None}
    (folder / "config.json").write_text(json.dumps(config))
    ours = Checkpoint.open(gguf_of(folder, tmp_path / "x.gguf"))
    assert ours.family.name == "mistral"
    same(ours, Checkpoint.open(folder))


def test_a_trained_model_has_its_weights_its_tokens_and_its_fingerprint(
    models_folder: Path, tmp_path: Path
) -> None:
    theirs = Checkpoint.open(models_folder / "pydec")
    ours = Checkpoint.open(gguf_of(theirs.folder, tmp_path / "x.gguf"))
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
    ours = Checkpoint.open(gguf_of(tmp_path / "parent", tmp_path / "x.gguf"))
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
    assert ours.source is not None
    assert ours.source.quantised == (kind,)
    for name, slot in theirs.layout.slots.items():
        values = theirs.read(name)
        is_matrix = len(slot.axes) == 2
        wanted = rounded(values, BY_NAME[kind], None) if is_matrix else values
        np.testing.assert_array_equal(ours.read(name), wanted)


def edited(file: Path, place: Path, old: bytes, new: bytes) -> Path:
    """A copy of a file with some bytes replaced by as many."""
    content = file.read_bytes()
    assert len(old) == len(new)
    assert old in content
    place.write_bytes(content.replace(old, new, 1))
    return place


@cache
def sound() -> Path:
    """A tiny sound file."""
    folder = Path(tempfile.mkdtemp())
    return gguf_of(saved(folder / "parent", "llama"), folder / "x.gguf")


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        (b"deci", b"dice", "architecture 'dice' is not read as a parent"),
        (b"blk.1.attn_q.weight", b"blk.7.attn_q.weight", "tensor 'blk.7.attn_q.weight' is none of a llama"),
        (b"blk.1.ffn_up.weight", b"blk.0.ffn_up.weight", "two of its tensors have one name"),
        (b"deci.block_count", b"deci.block_other", "its block_count is None, which is no size"),
        (b"output_norm.weight", b"output_nope.weight", "tensor 'output_nope.weight' is none of a llama"),
        (b"token_embd.weight", b"token_embl.weight", "there is no matrix 'token_embd.weight'"),
        (
            b"layer_norm_rms_epsilon",
            b"layer_norm_rms_epsiloX",
            "its attention.layer_norm_rms_epsilon is None",
        ),
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
