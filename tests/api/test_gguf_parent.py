"""A GGUF file as a parent: its children are those of the folder; quantised ones keep all units."""

import re
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from tiny import DECODER
from transformers import LlamaConfig, LlamaForCausalLM

import zerolm
from zerolm.checkpoints import Checkpoint

pytest.importorskip("gguf", reason="gguf is not installed")
pytest.importorskip("llama_cpp", reason="llama-cpp-python is not installed")

from zerolm.children.child_tensors import Child
from zerolm.children.gguf.write import write
from zerolm.units.kept_units import Cut, dimensions


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path, Path]:
    work = tmp_path_factory.mktemp("places")
    torch.manual_seed(0)
    settings = DECODER | {"hidden_size": 96, "intermediate_size": 64, "head_dim": 16}
    LlamaForCausalLM(LlamaConfig(**settings)).save_pretrained(work / "folder")
    checkpoint = Checkpoint.open(work / "folder")
    write(Child(checkpoint, Cut.whole(dimensions(checkpoint))), work / "whole.gguf")
    zerolm.carve(
        work / "whole.gguf", keep=1, format="gguf", max_weight_bytes="0.3x", types="Q8_0",
        criterion="capacity", out=work / "typed",
    )  # fmt: skip
    return work / "folder", work / "whole.gguf", work / "typed"


def test_a_child_of_the_file_is_that_of_the_folder(places: tuple[Path, Path, Path], tmp_path: Path) -> None:
    folder, file, _ = places
    for parent, name in ((folder, "one"), (file, "other")):
        zerolm.carve(parent, keep_ffn=0.5, keep_heads=0.5, criterion="capacity", out=tmp_path / name)
    one, other = (Checkpoint.open(tmp_path / name) for name in ("one", "other"))
    assert one.tensors.keys() == other.tensors.keys()
    for name in one.tensors:
        np.testing.assert_array_equal(one.read(name), other.read(name))
    assert zerolm.ledger(file).total == zerolm.ledger(folder).total


def test_types_of_a_quantised_parent_are_chosen_anew(places: tuple[Path, Path, Path], tmp_path: Path) -> None:
    typed = places[2]
    before = Checkpoint.open(typed)
    result = zerolm.carve(
        typed, keep=1, format="gguf", max_weight_bytes="0.7x", types="Q4_0,Q5_0", requantize=True,
        criterion="capacity", out=tmp_path / "again",
    )  # fmt: skip
    assert "the parent is quantised already" in " ".join(result.notes)
    assert result.costs["parent"]["weight_bytes"] == before.source.bytes
    assert result.costs["child"]["weight_bytes"] <= 0.7 * before.source.bytes
    types = [row.type for row in result.types]
    assert set(types) <= {"Q4_0", "Q5_0", "F16"}
    assert types.count("F16") <= list(before.source.types.values()).count("F16")
    built = zerolm.carve(typed, recipe=tmp_path / "again" / "recipe.json", out=tmp_path / "built")
    assert built.notes == []


@pytest.mark.parametrize(
    ("place", "settings", "reason"),
    [
        (2, {"max_params": "0.7x"}, "the parent is quantised (Q8_0), and only 16 or 32 bits can be cut"),
        (2, {"keep_ffn": 0.5}, "the parent is quantised (Q8_0), and only 16 or 32 bits can be cut"),
        (2, {"keep_tokens": "ids.txt"}, "the parent is quantised (Q8_0), and only 16 or 32 bits can be cut"),
        (2, {"keep": 1, "format": "gguf", "max_weight_bytes": "0.7x"}, "quantised already (Q8_0), and its"),
        (
            1,
            {"keep": 1, "format": "gguf", "max_weight_bytes": "0.3x", "requantize": True},
            "--requantize is for a quantised parent, and this one is not",
        ),
        (1, {"max_params": "0.7x", "requantize": True}, "--requantize is for quantisation types"),
    ],
)
def test_what_a_file_cannot_give_is_refused(
    place: int, settings: dict[str, object], reason: str, places: tuple[Path, Path, Path], tmp_path: Path
) -> None:
    with pytest.raises(ValueError, match=re.escape(reason)) as error:
        zerolm.carve(places[place], out=tmp_path / "child", **settings)
    assert "\n" not in str(error.value)
    assert not (tmp_path / "child").exists()


def test_without_the_package_one_line_names_the_extra(
    places: tuple[Path, Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "gguf", None)
    with pytest.raises(ModuleNotFoundError, match=r"pip install 'zerolm\[gguf\]'"):
        zerolm.carve(places[1], max_params="0.7x")
    with pytest.raises(ModuleNotFoundError, match=r"pip install 'zerolm\[gguf\]'"):
        zerolm.ledger(places[1])
