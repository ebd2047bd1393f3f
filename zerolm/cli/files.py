"""Reading JSON from users, and writing a result folder that appears only when it is complete."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from zerolm.files import parse_json, read_text, store

MAX_JSON_BYTES: Final = 16 << 20
WRITTEN: Final = ("result.json", "report.html", "pick", "rows.csv", "scores.csv")
"""What a search and a benchmark run write, besides numbered architectures."""


def read_json(path: Path) -> Any:
    """The content of a JSON file; ``ValueError`` in one line if it cannot be read."""
    try:
        return parse_json(read_text(path, MAX_JSON_BYTES))
    except (OSError, ValueError, RecursionError) as error:
        raise ValueError(f"{str(path)!r} cannot be read: {error}") from None


def write_json(path: Path, value: Any) -> None:
    path.write_text(json.dumps(value, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def check_new(path: Path, force: bool) -> None:
    """Refuse a folder that exists, or whose parent does not.

    With ``force`` a folder that holds nothing but an earlier result may be replaced; no other, for
    replacing deletes.
    """
    if path.is_symlink() or (path.exists() and not path.is_dir()):
        raise ValueError(f"output {str(path)!r} exists and is not a folder; name another")
    if path.exists() and not force:
        raise ValueError(f"output folder {str(path)!r} exists; name another, or replace it with --force")
    if path.exists() and not _is_result(path):
        raise ValueError(
            f"output folder {str(path)!r} holds more than an earlier result, so --force does not replace it; "
            f"name another"
        )
    if not path.absolute().parent.is_dir():
        raise ValueError(f"the folder {str(path.absolute().parent)!r} for the output does not exist")


def _is_result(folder: Path) -> bool:
    """Whether a folder is empty, or a result that this program wrote, and not where the user stands."""
    names = {entry.name for entry in folder.iterdir()}
    here = Path.cwd().resolve()
    stands_in = folder.resolve() in (here, *here.parents)
    return not stands_in and (not names or _is_report(names) or _is_child(folder, names))


def _is_report(names: set[str]) -> bool:
    ours = all(name in WRITTEN or name.isdecimal() for name in names)
    return ours and "result.json" in names


def _is_child(folder: Path, names: set[str]) -> bool:
    """Whether a folder holds a carved checkpoint and nothing that its recipe does not list."""
    if "recipe.json" not in names:
        return False
    try:
        recipe = read_json(folder / "recipe.json")
    except ValueError:
        return False
    files = recipe.get("files") if isinstance(recipe, dict) else None
    if not isinstance(files, list) or recipe.get("format") != "zerolm-recipe":
        return False
    held = {entry.relative_to(folder).as_posix() for entry in folder.rglob("*") if not entry.is_dir()}
    return held <= set(map(str, files))


@contextmanager
def new_folder(path: Path, force: bool) -> Iterator[Path]:
    """A folder beside ``path`` to write into, renamed to ``path`` when all went well, else removed."""
    check_new(path, force)
    path = path.absolute()
    try:
        work = Path(tempfile.mkdtemp(prefix=f".{path.name}.", dir=path.parent))
    except OSError as error:
        raise ValueError(f"cannot write beside {str(path)!r}: {error.strerror}") from None
    try:
        yield work
        work.chmod(0o755)
        if path.exists():
            old = Path(tempfile.mkdtemp(prefix=f".{path.name}.old.", dir=path.parent))
            os.rename(path, old / path.name)
            try:
                os.rename(work, path)
            except OSError:
                os.rename(old / path.name, path)
                raise
            finally:
                shutil.rmtree(old, ignore_errors=True)
        else:
            os.rename(work, path)
    finally:
        shutil.rmtree(work, ignore_errors=True)


def check_new_file(path: Path, force: bool) -> None:
    """Refuse a file that exists (unless ``force``), or whose folder does not."""
    if path.is_symlink() or (path.exists() and not path.is_file()):
        raise ValueError(f"output {str(path)!r} exists and is not a regular file; name another")
    if path.exists() and not force:
        raise ValueError(f"output {str(path)!r} exists; name another, or replace it with --force")
    if not path.absolute().parent.is_dir():
        raise ValueError(f"the folder {str(path.absolute().parent)!r} for the output does not exist")


def write_new_file(path: Path, text: str, force: bool) -> None:
    """Write a file that appears complete or not at all."""
    check_new_file(path, force)
    store({path: text})
