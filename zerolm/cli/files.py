"""Reading JSON from users, and writing a file that appears only when it is complete."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from zerolm.io.files import parse_json, read_text, store
from zerolm.io.folders import check_writable

MAX_JSON_BYTES: Final = 16 << 20


def read_json(path: Path) -> Any:
    """Return the content of a JSON file; ``ValueError`` in one line if it cannot be read."""
    try:
        return parse_json(read_text(path, MAX_JSON_BYTES))
    except (OSError, ValueError, RecursionError) as error:
        raise ValueError(f"{str(path)!r} cannot be read: {error}") from None


def check_new_file(path: Path, force: bool) -> None:
    """Refuse a file that exists (unless ``force``), or whose folder takes none."""
    if path.is_symlink() or (path.exists() and not path.is_file()):
        raise ValueError(f"output {str(path)!r} exists and is not a regular file; name another")
    if path.exists() and not force:
        raise ValueError(f"output {str(path)!r} exists; name another, or replace it with --force")
    check_writable(path)


def write_new_file(path: Path, text: str, force: bool) -> None:
    """Write a file that appears complete or not at all."""
    check_new_file(path, force)
    store({path: text})
