"""Killed at any moment and started again: the same child, and never half of one at the destination."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from carvings import killed_while
from forked import contents, die, in_another_process, killed_at
from tiny import saved

import zerolm
from zerolm.checkpoints import writer
from zerolm.io.folders import new_folder

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="processes cannot be forked here")
WISHES: dict[str, Any] = {
    "max_body_params": "0.6x",
    "shape": "per-layer",
    "format": "padded",
    "text": "random",
    "sequences": 12,
    "length": 16,
}
MOMENTS = {
    "prices": (
        ("computing Fisher", 2),
        ("scoring units", 2),
        ("estimating the loss of every cut", 2),
        ("repairing", 2),
    ),
    "measured": (("measuring cuts of each layer", 3), ("measuring widths", 5), ("reopening the child", 1)),
}


@pytest.mark.parametrize("plan", MOMENTS)
def test_a_carving_goes_on_where_it_was_killed(
    plan: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed ever later, each time with what the earlier runs have kept."""
    parent, out = saved(tmp_path / "parent", "llama"), tmp_path / "child"
    wishes = WISHES | {"plan": plan}
    monkeypatch.setenv("ZEROLM_CACHE", str(tmp_path / "other"))
    zerolm.carve(parent, tmp_path / "whole", **wishes)
    monkeypatch.setenv("ZEROLM_CACHE", str(tmp_path / "cache"))
    before = contents(parent)
    for words, step in MOMENTS[plan]:
        work = partial(zerolm.carve, parent, out, **wishes, progress=killed_while(words, step))
        assert in_another_process(work) == signal.SIGKILL
        assert not out.exists()
    zerolm.carve(parent, out, **wishes)
    assert contents(out) == contents(tmp_path / "whole")
    assert contents(parent) == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["cache", "child", "other", "parent", "whole"]


def test_no_half_child_when_killed_while_writing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    parent, out = saved(tmp_path / "parent", "llama"), tmp_path / "child"
    zerolm.carve(parent, tmp_path / "whole", keep_ffn=0.5, criterion="capacity")
    write = writer._write
    for moment in (0, 7, 20):
        step = killed_at(moment)

        def some(file: Any, tensor: Any, step: Callable[[object], None] = step) -> None:
            step(tensor)
            write(file, tensor)

        monkeypatch.setattr(writer, "_write", some)
        assert (
            in_another_process(lambda: zerolm.carve(parent, out, keep_ffn=0.5, criterion="capacity"))
            == signal.SIGKILL
        )
        assert not out.exists()
    monkeypatch.setattr(writer, "_write", write)
    zerolm.carve(parent, out, keep_ffn=0.5, criterion="capacity")
    assert contents(out) == contents(tmp_path / "whole")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["child", "parent", "whole"]


def test_an_earlier_child_survives_a_kill_between_the_renames(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The old one has stepped aside and the new one is not there yet: the next run puts the old one back."""
    parent, out = saved(tmp_path / "parent", "llama"), tmp_path / "child"
    zerolm.carve(parent, out, keep_ffn=0.5, criterion="capacity")
    first = contents(out)
    rename = os.rename

    def once(source: Any, target: Any) -> None:
        if Path(target) == out:
            die()
        rename(source, target)

    monkeypatch.setattr(os, "rename", once)
    again: dict[str, Any] = {"keep_ffn": 0.25, "criterion": "capacity", "force": True}
    assert in_another_process(lambda: zerolm.carve(parent, out, **again)) == signal.SIGKILL
    monkeypatch.setattr(os, "rename", rename)
    assert not out.exists()
    with pytest.raises(RuntimeError), new_folder(out, force=True):
        raise RuntimeError
    assert contents(out) == first
    zerolm.carve(parent, out, **again)
    assert contents(out) != first
    assert sorted(path.name for path in tmp_path.iterdir()) == ["child", "parent"]


def test_two_at_once_do_not_mix(tmp_path: Path) -> None:
    out = tmp_path / "child"
    with new_folder(out, force=False) as folder:
        (folder / "a").write_text("mine")
        with pytest.raises(ValueError, match="another command is writing"), new_folder(out, force=False):
            pass
        assert (folder / "a").read_text() == "mine"
    assert (out / "a").read_text() == "mine"
