"""GGUF files in several parts: one model, whose parts are all there and fit one another."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import tiny_families

from zerolm.checkpoints import Checkpoint
from zerolm.checkpoints.gguf.parts import first_part, read_gguf, stem_of
from zerolm.checkpoints.identity import fingerprint
from zerolm.cli import main

pytest.importorskip("gguf", reason="gguf is not installed")
pytest.importorskip("llama_cpp", reason="llama-cpp-python is not installed")

from split_gguf import split

from zerolm.children.child_tensors import Child
from zerolm.children.gguf.write import write
from zerolm.units.kept_units import Cut, dimensions


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("parts")
    checkpoint = Checkpoint.open(tiny_families.saved(folder / "parent", "llama", "float32"))
    write(Child(checkpoint, Cut.whole(dimensions(checkpoint))), folder / "x.gguf")
    return folder / "x.gguf"


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


def refusal(place: Path, capsys: pytest.CaptureFixture[str]) -> str:
    capsys.readouterr()
    assert main(["ledger", str(place), "-q"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    return line


def renamed(whole: Path, folder: Path, name: str) -> Path:
    """Return the first of three parts, under another name."""
    return split(whole, 3, folder / "parts").rename(folder / name)


def without_the_second(whole: Path, folder: Path) -> Path:
    first = split(whole, 3, folder)
    (folder / "x-00002-of-00003.gguf").unlink()
    return first


ALONE = "it is one of 3 parts, and its name is not ...-00001-of-00003.gguf"
REFUSED: dict[str, tuple[Callable[[Path, Path], Path], str]] = {
    "a part is missing": (
        without_the_second, "part 'x-00002-of-00003.gguf' is missing: all 3 parts are needed"
    ),
    "not the first": (
        lambda whole, folder: split(whole, 3, folder).with_name("x-00003-of-00003.gguf"),
        "it is part 3 of 3: name the first, x-00001-of-00003.gguf",
    ),
    "a name without parts": (lambda whole, folder: renamed(whole, folder, "x.gguf"), ALONE),
    "a name of four": (lambda whole, folder: renamed(whole, folder, "x-00001-of-00004.gguf"), ALONE),
    "another number": (
        lambda whole, folder: split(whole, 3, folder, no=0), "'x-00003-of-00003.gguf' is not marked as part 3"
    ),
    "another count": (
        lambda whole, folder: split(whole, 3, folder, count=4), "'x-00003-of-00003.gguf' is not marked as"
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_parts_that_do_not_fit_are_refused(
    case: str, whole: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place, words = REFUSED[case]
    assert words in refusal(place(whole, tmp_path), capsys)


def test_tensors_that_are_missing_or_there_twice_are_refused(
    whole: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first, other = split(whole, 2, tmp_path / "a"), split(whole, 4, tmp_path / "b")
    last = first.with_name("x-00002-of-00002.gguf")
    shutil.copyfile(other.with_name("x-00004-of-00004.gguf"), last)
    assert "is not marked as part 2 of 2" in refusal(first, capsys)
    split(whole, 4, tmp_path / "c", no=1, count=2)
    shutil.copyfile(tmp_path / "c" / "x-00004-of-00004.gguf", last)
    assert "tensors, its header specifies" in refusal(first, capsys)
    split(whole, 1, tmp_path / "d", no=1, count=2)
    shutil.copyfile(tmp_path / "d" / "x-00001-of-00001.gguf", last)
    assert "two of its parts have a tensor of one name" in refusal(first, capsys)
