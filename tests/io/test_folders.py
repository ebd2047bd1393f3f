"""Files and folders that appear when they are complete; a full disk is told in one line."""

import errno
import shutil
from collections import namedtuple
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from carvings import BY_WEIGHTS

from zerolm.io.cache import ArrayCache
from zerolm.io.files import replacing
from zerolm.io.folders import locked, new_file, new_folder, work_folder
from zerolm.io.full_disk import DiskFull, check_room, free, is_full


def fail_at(place: Path) -> None:
    place.write_text("half")
    raise OSError("the disk is full")


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_file_appears_when_all_went_well(tmp_path: Path) -> None:
    out = tmp_path / "out.json"
    with new_file(out, False) as place:
        place.write_text("new")
        assert not out.exists()
    assert (out.read_text(), names(tmp_path)) == ("new", ["out.json"])


def test_what_fails_leaves_what_was_there(tmp_path: Path) -> None:
    out = tmp_path / "out.json"
    out.write_text("old")
    with (
        pytest.raises(ValueError, match="exists; name another, or replace it with --force"),
        new_file(out, False),
    ):
        pass
    with pytest.raises(ValueError, match="cannot be written"), new_file(out, True) as place:
        fail_at(place)
    assert (out.read_text(), names(tmp_path)) == ("old", ["out.json"])
    with new_file(out, True) as place:
        place.write_text("new")
    assert out.read_text() == "new"


def test_no_folder_or_link_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere")
    for name in ("folder", "link"):
        with pytest.raises(ValueError, match="not a regular file"), new_file(tmp_path / name, True):
            pass
    (tmp_path / ".out.zerolm-part").symlink_to(tmp_path / "folder")
    with pytest.raises(ValueError, match="is a link"), new_file(tmp_path / "out", True):
        pass
    with pytest.raises(ValueError, match="does not exist"), new_file(tmp_path / "nowhere" / "out", True):
        pass


def test_two_writers_are_not_let_in(tmp_path: Path) -> None:
    with new_file(tmp_path / "out", False) as place:
        place.write_text("first")
        with pytest.raises(ValueError, match="another command is writing"), new_file(tmp_path / "out", False):
            pass
    assert (tmp_path / "out").read_text() == "first"
    held = tmp_path / "held"
    with locked(held, "busy"), pytest.raises(ValueError, match="busy"), locked(held, "busy"):
        pass
    with locked(held, "busy"):
        pass


Usage = namedtuple("Usage", "total used free")
FULL = OSError(errno.ENOSPC, "No space left on device")
WORDS = {
    "python": FULL,
    "quota": OSError(errno.EDQUOT, "Disk quota exceeded"),
    "numpy": OSError("4096 requested and 0 written"),
    "safetensors": Exception("Error while serializing: I/O error: No space left on device (os error 28)"),
}
LINE = r"^'[^']*out' cannot be written: the disk is full: more than 4.1 kB are needed, 1.5 MB are free$"


def fill(file: Path, error: Exception) -> None:
    file.write_bytes(bytes(4100))
    raise error


@pytest.fixture
def nearly_full(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda place: Usage(10**9, 10**9, 1_500_000))


@pytest.mark.usefixtures("nearly_full")
@pytest.mark.parametrize("words", WORDS)
@pytest.mark.parametrize("place", [new_folder, new_file])
def test_whoever_says_it_it_is_one_line(place: Any, words: str, tmp_path: Path) -> None:
    with pytest.raises(DiskFull, match=LINE), place(tmp_path / "out", False) as work:
        fill(work if place is new_file else work / "weights", WORDS[words])
    assert list(tmp_path.iterdir()) == []


@pytest.mark.usefixtures("nearly_full")
def test_a_long_run_and_a_cached_file_say_it_too(tmp_path: Path) -> None:
    with (
        pytest.raises(DiskFull, match="out' cannot be written: the disk is full"),
        work_folder(tmp_path / "out", {}, False) as work,
    ):
        check_room(work / "checkpoint", 2_000_000)
    with pytest.raises(DiskFull, match=LINE), replacing(tmp_path / "out"):
        fill(next(tmp_path.iterdir()), FULL)
    with (
        pytest.raises(DiskFull, match="cache' cannot be written"),
        work_folder(tmp_path / "out", {}, False),
        replacing(tmp_path / "cache"),
    ):
        raise FULL
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("error", [ValueError("wrong"), OSError(errno.EACCES, "No"), RuntimeError("other")])
def test_other_errors_are_left_alone(error: Exception, tmp_path: Path) -> None:
    assert not is_full(error)
    kind = ValueError if isinstance(error, OSError) else type(error)
    with pytest.raises(kind) as caught, new_folder(tmp_path / "out", False):
        raise error
    assert not isinstance(caught.value, DiskFull)


def test_what_does_not_fit_is_refused_before_it_is_written(tmp_path: Path) -> None:
    room = free(tmp_path / "not" / "there")
    check_room(tmp_path, room // 2)
    with pytest.raises(DiskFull, match=r"are needed, .* are free"):
        check_room(tmp_path, 2 * room)


def test_a_cache_that_is_full_is_no_reason_to_fail(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def fail(*_: Any, **more: Any) -> None:
        raise FULL

    monkeypatch.setattr(np, "savez", fail)
    cache = ArrayCache(tmp_path / "cache")
    cache.put("sums", {"a": np.zeros(3)})
    assert cache.get("sums") is None
    assert list((tmp_path / "cache").iterdir()) == []
    assert capfd.readouterr() == ("", "")


def test_arrays_are_computed_once_unless_their_file_is_damaged(tmp_path: Path) -> None:
    cache, calls = ArrayCache(tmp_path), list[int]()

    def compute() -> dict[str, Any]:
        calls.append(len(calls))
        return {"a": np.array(calls[-1])}

    assert [int(cache.once("sums", compute)["a"]) for _ in range(3)] == [0, 0, 0]
    (tmp_path / "sums.npz").write_bytes(b"damaged")
    assert [int(cache.once("sums", compute)["a"]) for _ in range(2)] == [1, 1]
    assert [int(ArrayCache().once("sums", compute)["a"]) for _ in range(2)] == [2, 3]  # nothing is stored


def test_a_file_of_a_child_that_does_not_fit(
    small_disk: Callable[[int], Path], zerolm: Callable[..., Any], tmp_path: Path
) -> None:
    """Folders are in ``test_carve_bad_input.py``."""
    pytest.importorskip("llama_cpp", reason="llama-cpp-python is not installed")
    pytest.importorskip("torch")
    from tiny import saved

    parent, disk = saved(tmp_path / "parent", "llama"), small_disk(16)
    out = disk / "child"
    flags = ("--keep-ffn", ".5", *BY_WEIGHTS, "--format", "gguf", "--out", str(out))
    told = f"{str(out)!r} cannot be written: the disk is full: "
    zerolm("carve", str(parent), *flags).refused(told, " are needed, 65.5 kB are free")
    assert list(disk.iterdir()) == []


def test_a_full_cache_stops_what_lives_on_it_in_one_line(
    small_disk: Callable[[int], Path],
    zerolm: Callable[..., Any],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A plan goes on without its cache; a healing maps its tokens from there."""
    pytest.importorskip("torch")
    from tiny import saved, word_tokenizer

    parent, text = saved(tmp_path / "parent", "llama"), tmp_path / "text.txt"
    word_tokenizer(parent)
    text.write_text(" ".join(f"w{i % 63}" for i in range(60_000)))
    monkeypatch.setenv("ZEROLM_CACHE", str(small_disk(16) / "cache"))
    flags = ("--keep-ffn", ".5", "--text", str(text), "--sequences", "8", "--length", "16", "--quiet")
    ran = zerolm("carve", str(parent), *flags, "--out", str(tmp_path / "child"))
    assert ran.status == 0, ran.err
    healing = ("--text", str(text), "--tokens", "2k", "--length", "16", "--quiet")
    ran = zerolm(
        "heal", str(tmp_path / "child"), "--parent", str(parent), *healing, "--out", str(tmp_path / "healed")
    )
    if "training needs" in ran.err:
        pytest.skip("accelerate is not installed")
    ran.refused("ids.bin' cannot be written: the disk is full: ")
    assert not (tmp_path / "healed").exists()
