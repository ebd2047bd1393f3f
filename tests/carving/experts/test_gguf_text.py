"""Experts of GGUF files that a text tells: the choice is that of the folder that the file was written of."""

from __future__ import annotations

import json
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from carvings import carve, rebuild
from hypothesis import given
from hypothesis import strategies as st
from refusals import Zerolm, refused
from saved_mixtures import mixture

from zerolm.checkpoints import Checkpoint
from zerolm.checkpoints.gguf.typed_tensor import TypedTensor
from zerolm.checkpoints.identity import fingerprint
from zerolm.networks.opener import open_model

pytest.importorskip("gguf", reason="gguf is not installed")
pytest.importorskip("llama_cpp", reason="llama-cpp-python is not installed")

from gguf_files import fewer_of, logits, quantised, written
from split_gguf import split, with_byte

SIZES: dict[str, Any] = {"hidden_size": 96}
READ: dict[str, dict[str, Any]] = {
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


def parent_of(folder: Path, kind: str, **changes: Any) -> Path:
    """Return the file of a tiny mixture, whose folder is beside it."""
    place = mixture(folder / "parent", kind, **SIZES | READ[kind] | changes)
    return written(place, folder / "parent.gguf")


@pytest.mark.parametrize("kind", READ)
def test_a_file_is_read_as_the_mixture_that_it_was_written_of(kind: str, tmp_path: Path) -> None:
    file = parent_of(tmp_path, kind)
    ours, theirs = Checkpoint.open(file, packed=True), Checkpoint.open(tmp_path / "parent")
    assert set(ours.layout.slots) == set(theirs.layout.slots)
    assert fingerprint(ours) == fingerprint(theirs)
    ids = torch.tensor([IDS])
    with torch.no_grad():
        assert torch.equal(
            *(open_model(each)(input_ids=ids, use_cache=False).logits for each in (ours, theirs))
        )


@pytest.mark.parametrize("name", ["Q8_0", "Q4_0"])
@pytest.mark.parametrize("kind", READ)
def test_a_quantised_file_sends_what_llama_cpp_computes(kind: str, name: str, tmp_path: Path) -> None:
    """Its matrices stay in the file; llama.cpp rounds what it multiplies them by to eight bits."""
    file = quantised(parent_of(tmp_path, kind), name, tmp_path / "typed.gguf")
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


@pytest.mark.parametrize("criterion", ["reap", "hope_moments", "frequency"])
def test_a_text_tells_of_a_file_what_it_tells_of_its_folder(criterion: str, tmp_path: Path) -> None:
    file = parent_of(tmp_path, "qwen3_moe")
    ours = carve(file, tmp_path / "child", form="gguf", keep_experts="0.5", criterion=criterion, **TEXT)
    theirs = carve(tmp_path / "parent", keep_experts="0.5", criterion=criterion, **TEXT)
    assert ours.experts is not None
    assert theirs.experts is not None
    for mine, other in zip(ours.experts.layers, theirs.experts.layers, strict=True):
        assert mine == other
        assert 0 < mine.tokens < 1
    assert ours.optimal == theirs.optimal


def test_budgets_and_recipes(tmp_path: Path) -> None:
    """A budget is that of the file; built again from the recipe alone, the bytes are the same."""
    file = quantised(parent_of(tmp_path, "qwen3_moe"), "Q8_0", tmp_path / "typed.gguf")
    flags = {
        "keep_experts": "auto",
        "criterion": "reap",
        "budgets": {"max_weight_bytes": "0.7x"},
        "form": "gguf",
    }
    carved = carve(file, tmp_path / "child", **flags, **TEXT)
    costs = carved.costs
    assert costs["child"]["weight_bytes"] <= 0.7 * costs["parent"]["weight_bytes"]
    assert carved.note == "", "nothing was to be repaired"
    recipe = json.loads((tmp_path / "child" / "recipe.json").read_text())
    assert recipe["calibration"]["sequences"] == TEXT["sequences"]
    rebuild(tmp_path / "child" / "recipe.json", file, tmp_path / "again")
    same = [place / "typed-carved.gguf" for place in (tmp_path / "child", tmp_path / "again")]
    assert same[0].read_bytes() == same[1].read_bytes()
    again = json.loads((tmp_path / "again" / "recipe.json").read_text())
    assert again["calibration"] == recipe["calibration"]


def test_parts_have_the_child_of_the_whole(tmp_path: Path) -> None:
    """Byte for byte, but that it is said to be in no parts."""
    file = quantised(parent_of(tmp_path, "qwen3_moe"), "Q4_0", tmp_path / "typed.gguf")
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
    file = parent_of(tmp_path, "qwen3_moe")
    flags: dict[str, Any] = {"form": "gguf", "keep_experts": "4", "criterion": "reap", **TEXT}
    told = carve(file, tmp_path / "told", repair="least-squares", **flags)
    assert told.note == "experts of a gguf file are copied as they are, and none is repaired"
    carve(file, tmp_path / "plain", **flags)
    names = [tmp_path / name / "parent-carved.gguf" for name in ("told", "plain")]
    assert names[0].read_bytes() == names[1].read_bytes()


@cache
def sound_file() -> Path:
    folder = Path(tempfile.mkdtemp())
    return quantised(parent_of(folder, "qwen3_moe"), "Q8_0", folder / "typed.gguf")


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
        (
            b"qwen3moe.expert_count",
            b"qwen3moe.expert_fount",
            "architecture 'qwen3moe' is not read as a parent",
        ),
        (b"blk.1.ffn_up_exps.weight", b"blk.1.ffn_xp_exps.weight", "blk.1.ffn_xp_exps.weight' is none of"),
        (b"expert_used_count", b"expert_usel_count", "its expert_used_count is None, which is no size"),
        (
            b"blk.2.ffn_gate_inp.weight",
            b"blk.9.ffn_gate_inp.weight",
            "'blk.9.ffn_gate_inp.weight' is none of",
        ),
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


def test_what_no_text_tells_is_refused(
    zerolm: Zerolm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another architecture, no text, a text that is not read, a worst domain of one, another command."""
    parent_of(tmp_path, "qwen3_moe")
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
