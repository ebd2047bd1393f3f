"""Evaluations in one SQLite file, which a killed run and a second run go on with."""

from __future__ import annotations

import logging
import sqlite3
import struct
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

from zerolm.io.files import cache_folder

logger = logging.getLogger(__name__)

APPLICATION: Final = 0x7A65726F  # "zero", in the header of the file
PATIENCE: Final = 60.0
"""Seconds to wait while another process writes; each write takes milliseconds."""
TABLE: Final = """CREATE TABLE evaluations (
    architecture TEXT NOT NULL, proxy TEXT NOT NULL, settings TEXT NOT NULL, version TEXT NOT NULL,
    value BLOB NOT NULL, seconds REAL NOT NULL, note TEXT NOT NULL,
    PRIMARY KEY (architecture, proxy, settings, version)) WITHOUT ROWID"""
LOOK_UP: Final = (
    "SELECT value, seconds, note FROM evaluations"
    " WHERE architecture = ? AND proxy = ? AND settings = ? AND version = ?"
)
PUT: Final = "INSERT OR IGNORE INTO evaluations VALUES (?, ?, ?, ?, ?, ?, ?)"


class Key(NamedTuple):
    """All that an evaluation depends on, as canonical text: JSON with sorted keys."""

    architecture: str
    proxy: str
    settings: str
    version: str


@dataclass(frozen=True)
class Evaluation:
    """The value of a proxy or the several parts of it, also NaN and infinities, and its seconds.

    ``note`` says why there is no value, where there is none.
    """

    key: Key
    value: tuple[float, ...]
    seconds: float
    note: str = ""


class Store:
    """Evaluations in one SQLite file, or with no path in memory; a context manager that closes it.

    Values are kept as their bits, and a key once evaluated keeps its first evaluation. One process writes at
    a time and others wait for it, for a minute at most. ``ValueError`` in one line for a file that is damaged
    or of another program, and where nothing can be written.
    """

    def __init__(self, path: Path | None = None) -> None:
        self._path = path
        with self._plainly():
            if path is not None:
                if path.exists() and not path.is_file():
                    raise self._refusal("is not a regular file")
                path.parent.mkdir(parents=True, exist_ok=True)
                logger.info("opening the store %s", path)
            self._database = sqlite3.connect(path or ":memory:", timeout=PATIENCE, isolation_level=None)
            try:
                self._prepare()
            except BaseException:
                self._database.close()
                raise

    @classmethod
    def default_path(cls) -> Path:
        """The file in the user's cache; ``ValueError`` where there is no home folder."""
        return cache_folder("proxies") / "evaluations.sqlite"

    def __enter__(self) -> Store:
        return self

    def __exit__(self, *_: object) -> None:
        self._database.close()

    def get(self, keys: Iterable[Key]) -> dict[Key, Evaluation]:
        """Return the evaluations of those keys that have one, in the order of the keys, as of one moment."""
        evaluations: dict[Key, Evaluation] = {}
        with self._plainly(), self._database:
            self._database.execute("BEGIN")
            for key in dict.fromkeys(keys):
                row = self._database.execute(LOOK_UP, key).fetchone()
                if row is not None:
                    value, seconds, note = row
                    numbers = struct.unpack(f"<{len(value) // 8}d", value)
                    evaluations[key] = Evaluation(key, numbers, seconds, note)
        return evaluations

    def put(self, evaluations: Sequence[Evaluation]) -> None:
        """Add all of them or, when killed, none; what is there already stays."""
        with self._plainly(), self._database:
            self._database.execute("BEGIN IMMEDIATE")
            for each in evaluations:
                value = struct.pack(f"<{len(each.value)}d", *each.value)
                self._database.execute(PUT, (*each.key, value, each.seconds, each.note))

    def _prepare(self) -> None:
        """Make a new file ours; refuse one of another program."""
        with self._database as database:
            database.execute("BEGIN IMMEDIATE")  # of several processes the first makes the table
            (application,) = database.execute("PRAGMA application_id").fetchone()
            (tables,) = database.execute("SELECT count(*) FROM sqlite_master").fetchone()
            if (application, tables) == (0, 0):
                database.execute(TABLE)
                database.execute(f"PRAGMA application_id = {APPLICATION}")
            elif application != APPLICATION:
                raise self._refusal("was written by another program")
            elif (state := database.execute("PRAGMA quick_check(1)").fetchone()[0]) != "ok":
                raise self._refusal(f"is damaged: {' '.join(str(state).split())}")

    def _refusal(self, what: str) -> ValueError:
        return ValueError(f"the store {str(self._path)!r} {what}; name another with --store, or remove it")

    @contextmanager
    def _plainly(self) -> Iterator[None]:
        """Within, what SQLite and the system complain about comes out as ``ValueError``, in one line."""
        try:
            yield
        except (sqlite3.DatabaseError, OSError) as error:
            if getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_BUSY:
                raise ValueError(f"another run is writing {str(self._path)!r}; wait for it") from None
            raise self._refusal(f"cannot be used: {error}") from None
