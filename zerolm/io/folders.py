"""Result folders: they appear when they are complete, and replace nothing but an earlier result."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory, TemporaryFile
from typing import Any, Final

from zerolm.io.files import parse_json, read_text, write_json
from zerolm.io.full_disk import DiskFull, is_full
from zerolm.settings import shown

MAX_RECIPE: Final = 64 << 20
RUN: Final = "run.json"
"""What a folder of an unfinished run says of it."""
REPORT: Final = ("result.json", "report.html", "run.yaml")
"""The files of a result of every command."""
WRITTEN: Final = frozenset(
    {
        *(*REPORT, "pick", "rows.csv", "scores.csv", "benchmarks.json"),
        *("calibration.json", "labels.json", "architecture.json"),
    }
)
"""The files of a result of any command, besides numbered architectures."""
LISTS: Final = {
    "recipe.json": "zerolm-recipe",
    "finetuning.json": "zerolm-finetuned",
    "supernet.json": "zerolm-supernet",
    "path.json": "zerolm-path",
    "training.json": "zerolm-training",
}
"""Files that list all others of a folder with a model, and their formats."""


def check_new(path: Path, force: bool) -> None:
    """Refuse a folder that exists, or that cannot be made.

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
    check_writable(path)


def check_writable(path: Path) -> None:
    """Refuse an output whose folder does not exist or takes no new files, which only an attempt can show."""
    parent = path.absolute().parent
    if not parent.is_dir():
        what = "is not a folder" if parent.exists() else "does not exist"
        raise ValueError(f"the folder {str(parent)!r} for the output {what}")
    try:
        (parent / f".{path.name}.zerolm-part").exists()  # raises for a name that is too long
        with TemporaryFile(dir=parent):  # without a name, so that a killed command leaves nothing
            pass
    except OSError as error:
        raise ValueError(f"{str(path)!r} cannot be written: {error.strerror or error}") from None


def _is_result(folder: Path) -> bool:
    """Return whether a folder is empty, or a result of this program, and not where the user stands."""
    names = {entry.name for entry in folder.iterdir()}
    here = Path.cwd().resolve()
    stands_in = folder.resolve() in (here, *here.parents)
    is_report = "result.json" in names and all(name in WRITTEN or name.isdecimal() for name in names)
    is_model = any(name in names and _lists_all(folder, name, form) for name, form in LISTS.items())
    return not stands_in and (not names or is_report or is_model)


def _lists_all(folder: Path, name: str, form: str) -> bool:
    """Return whether a JSON file of this format lists every file of its folder."""
    document = _run_of(folder / name) or {}
    files = document.get("files")
    if not isinstance(files, list) or document.get("format") != form:
        return False
    held = {entry.relative_to(folder).as_posix() for entry in folder.rglob("*") if not entry.is_dir()}
    return held <= set(map(str, files))


def _next_to(path: Path, end: str) -> Path:
    """Return a hidden place next to a path; ``ValueError`` where it is a link."""
    place = path.parent / f".{path.name}.zerolm-{end}"
    if place.is_symlink():
        raise ValueError(f"{str(place)!r} is a link; remove it")
    return place


@contextmanager
def new_folder(path: Path, force: bool) -> Iterator[Path]:
    """Yield a folder next to ``path`` to write into, renamed to ``path`` when all went well, else removed.

    What a killed command left there is removed by the next one for the same ``path``. ``ValueError`` while
    another is writing.
    """
    path = path.absolute()
    work, old = _next_to(path, "part"), _next_to(path, "old")
    if old.is_dir() and not path.exists():  # killed between the two renames below
        os.rename(old, path)
    check_new(path, force)
    try:
        with _alone(path, work):
            shutil.rmtree(old, ignore_errors=True)
            yield work
            check_new(path, force)  # it may have come into being
            if path.exists():
                os.rename(path, old)
                try:
                    os.rename(work, path)
                except OSError:
                    os.rename(old, path)
                    raise
                shutil.rmtree(old, ignore_errors=True)
            else:
                os.rename(work, path)
    except Exception as error:
        raise _unwritten(error, path, work) from None


@contextmanager
def new_file(path: Path, force: bool) -> Iterator[Path]:
    """Yield a file next to ``path`` to write, renamed to ``path`` when all went well, else removed.

    ``ValueError`` for a path that exists, unless ``force`` replaces a regular file, and while another command
    is writing it.
    """
    path = path.absolute()
    work = _next_to(path, "part")
    check_new_file(path, force)
    try:
        with _alone(path, work):
            yield work / path.name
            check_new_file(path, force)  # it may have come into being
            os.replace(work / path.name, path)
            shutil.rmtree(work, ignore_errors=True)
    except Exception as error:
        raise _unwritten(error, path, work) from None


def _unwritten(error: Exception, path: Path, work: Path) -> Exception:
    """Return the error to report for one while ``path`` was written in ``work``, in one line where
    possible."""
    if isinstance(error, DiskFull):
        return error.at(path) if error.place.absolute().is_relative_to(work) else error
    if is_full(error):
        return DiskFull(path)
    if isinstance(error, OSError):
        return ValueError(f"{str(path)!r} cannot be written: {error.strerror or error}")
    return error


def check_new_file(path: Path, force: bool) -> None:
    """Refuse a file that exists, unless ``force`` replaces it, or that cannot be made."""
    if path.is_symlink() or (path.exists() and not path.is_file()):
        raise ValueError(f"output {str(path)!r} exists and is not a regular file; name another")
    if path.exists() and not force:
        raise ValueError(f"output {str(path)!r} exists; name another, or replace it with --force")
    check_writable(path)


@contextmanager
def work_folder(path: Path, identity: Mapping[str, Any], force: bool) -> Iterator[Path]:
    """Yield a folder next to ``path`` for a long run, which a killed one finds again as it left it.

    It is removed when all went well, or nothing was begun. ``identity`` says what run it is of;
    ``ValueError`` names what differs where another was begun there, which ``force`` throws away, and while
    another process is at it.
    """
    path = path.absolute()
    work = _next_to(path, "run")
    check_writable(path)
    work.mkdir(exist_ok=True)
    record, file = json.loads(json.dumps(identity)), work / RUN
    with locked(work, _busy(path)):
        before = _run_of(file)
        if before is not None and before != record and not force:
            name = next(name for name in {**record, **before} if record.get(name) != before.get(name))
            raise ValueError(
                f"a run that was killed left its checkpoints in {str(work)!r}, with {name} "
                f"{shown(before.get(name))}, not {shown(record.get(name))}: give the same to go on, or "
                f"--force to restart"
            )
        if before != record:
            _empty(work)
            write_json(file, record)
        try:
            yield work
        except BaseException as error:
            if not any(entry.is_dir() for entry in work.iterdir()):  # nothing to go on with
                shutil.rmtree(work, ignore_errors=True)
            if isinstance(error, Exception) and is_full(error):
                raise _unwritten(error, path, work) from None
            raise
        shutil.rmtree(work, ignore_errors=True)


@contextmanager
def scratch_folder(path: Path | None) -> Iterator[Path]:
    """Yield an empty folder next to ``path`` for temporary files of a run.

    It is removed in the end, and what a killed run left of it before. Without a path, or where its folder
    does not exist yet, it is among the system's temporary files.
    """
    if path is None or not path.absolute().parent.is_dir():
        with TemporaryDirectory(prefix="zerolm-") as folder:
            yield Path(folder)
        return
    path = path.absolute()
    work = _next_to(path, "parts")
    with _alone(path, work):
        yield work
        shutil.rmtree(work, ignore_errors=True)


def _run_of(file: Path) -> dict[str, Any] | None:
    """Return the identity of the run of a folder; None where there is no record."""
    try:
        record = parse_json(read_text(file, MAX_RECIPE))
    except (OSError, ValueError, RecursionError):
        return None
    return record if isinstance(record, dict) else None


@contextmanager
def locked(folder: Path, busy: str) -> Iterator[None]:
    """Hold a folder for this process alone, made where there is none; else ``ValueError`` says ``busy``."""
    folder.mkdir(parents=True, exist_ok=True)
    if os.name != "posix":
        yield
        return
    import fcntl

    handle = os.open(folder, os.O_RDONLY)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ValueError(busy) from None
        yield
    finally:
        os.close(handle)


@contextmanager
def _alone(path: Path, work: Path) -> Iterator[None]:
    """Yield while ``work`` is a new empty folder that no other process writes into; after it, it is gone."""
    with locked(work, _busy(path)):
        _empty(work)
        try:
            yield
        except BaseException as error:
            written = sum(file.stat().st_size for file in work.rglob("*") if file.is_file())
            shutil.rmtree(work, ignore_errors=True)
            if is_full(error) and not isinstance(error, DiskFull):
                raise DiskFull(work, written, least=True) from None
            raise


def _busy(path: Path) -> str:
    return f"another command is writing {str(path)!r}; wait for it"


def _empty(work: Path) -> None:
    for entry in work.iterdir():
        shutil.rmtree(entry) if entry.is_dir() and not entry.is_symlink() else entry.unlink()


@contextmanager
def new_result(out: str | None, force: bool) -> Iterator[Path | None]:
    """Yield the file (``NAME.json``) or folder to write into, which no other run writes; None for neither.

    ``ValueError`` for a name of another format.
    """
    if out is None:
        yield None
        return
    if out.lower().endswith((".csv", ".jsonl")):
        raise ValueError(f"output {out!r}: a file is written as JSON, by a name that ends in .json")
    with (new_file if out.endswith(".json") else new_folder)(Path(out), force) as place:
        yield place
