"""What every wrong command does: one line, status 2, nothing changed."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

Zerolm = Callable[..., Any]


def state(folder: Path) -> dict[str, tuple[int, bytes]]:
    """What is in a folder: times of change and contents by path."""
    found = {}
    for path in sorted(folder.rglob("*")):
        content = os.readlink(path).encode() if path.is_symlink() else b""
        content = path.read_bytes() if path.is_file() and not path.is_symlink() else content
        found[str(path.relative_to(folder))] = (path.lstat().st_mtime_ns, content)
    return found


def refused(zerolm: Zerolm, *arguments: str, words: str) -> None:
    """That a command fails in one line, with these words, and changes nothing here."""
    before = state(Path.cwd())
    zerolm(*arguments).refused(words)
    assert state(Path.cwd()) == before
