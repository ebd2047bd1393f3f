"""Reading what others wrote with care, and writing files that appear complete or not at all."""

from __future__ import annotations

import hashlib
import json
import logging
import os
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO, Any, Final

from zerolm.io.full_disk import DiskFull, is_full
from zerolm.settings import shown

logger = logging.getLogger(__name__)

MAX_DIGITS: Final = 1000


def cache_folder(kind: str) -> Path:
    """Return a folder of the cache: below ``ZEROLM_CACHE``, else ``XDG_CACHE_HOME``, else ``~/.cache``."""
    folder = os.environ.get("ZEROLM_CACHE")
    if folder:
        return Path(folder).absolute() / kind
    caches = os.environ.get("XDG_CACHE_HOME", "")
    if os.path.isabs(caches):  # its specification has relative ones ignored
        return Path(caches) / "zerolm" / kind
    try:
        return Path.home() / ".cache" / "zerolm" / kind
    except RuntimeError:
        raise ValueError("there is no home folder for the cache: set ZEROLM_CACHE") from None


@contextmanager
def replacing(path: Path) -> Iterator[IO[bytes]]:
    """Give a file to write to, which takes the place of ``path`` when all went well and is removed else.

    The folder is made where there is none. Raises ``DiskFull`` where there is no room.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            yield file
        os.chmod(name, 0o644)
        os.replace(name, path)
    except OSError as error:
        if is_full(error) and not isinstance(error, DiskFull):
            raise DiskFull(path, Path(name).stat().st_size, least=True) from None
        raise
    finally:
        Path(name).unlink(missing_ok=True)


def store(contents: Mapping[Path, str | bytes]) -> None:
    """Write files, each appearing complete and none before all are written."""
    with ExitStack() as stack:
        for path, content in contents.items():
            file = stack.enter_context(replacing(path))
            file.write(content.encode() if isinstance(content, str) else content)
            file.flush()


def read_text(path: Path, most: int) -> str:
    """Return the text of a regular file of at most ``most`` bytes; ``ValueError`` for another."""
    logger.debug("reading %s", path)
    if not path.exists():
        raise ValueError("it does not exist")
    if not path.is_file():
        raise ValueError("it is a folder, not a file" if path.is_dir() else "it is not a regular file")
    with path.open("rb") as file:
        content = file.read(most + 1)
    if len(content) > most:
        raise ValueError(f"it is larger than {most} bytes")
    try:
        return content.decode("utf-8-sig")  # some editors begin a file with a mark
    except UnicodeDecodeError as error:
        raise ValueError(f"it is not text in UTF-8: byte {error.start} is wrong") from None


class NotJson(json.JSONDecodeError):
    """A text that is not JSON, with the line and column where it stops being JSON."""

    def __str__(self) -> str:
        return f"it is not JSON: {self.msg.lower()}, line {self.lineno}, column {self.colno}"


def parse_json(text: str) -> Any:
    """Return JSON whose objects name each field once and whose integers are short; else ``ValueError``."""

    def fields(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        document = dict(pairs)
        if len(document) < len(pairs):
            twice = next(name for name, count in Counter(name for name, _ in pairs).items() if count > 1)
            raise ValueError(f"field {shown(twice)} is given twice")
        return document

    try:
        return json.loads(text, object_pairs_hook=fields, parse_int=_integer)
    except json.JSONDecodeError as error:
        raise NotJson(error.msg, error.doc, error.pos) from None


def _integer(digits: str) -> int:
    if len(digits) > MAX_DIGITS:  # Python's own refusal tells users to change the interpreter's limit
        raise ValueError(f"a number has {len(digits)} digits; at most {MAX_DIGITS} are read")
    return int(digits)


def write_json(path: Path, value: Any) -> None:
    path.write_text(json.dumps(value, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def sha256_of(file: Path) -> str:
    with file.open("rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()
