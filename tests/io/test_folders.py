"""A file that appears when it is complete, and nobody else writes."""

from __future__ import annotations

from pathlib import Path

import pytest

from zerolm.io.folders import locked, new_file


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
