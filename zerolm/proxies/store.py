"""What proxies gave, kept: one SQLite file that a killed run and a second run go on with."""

from __future__ import annotations

import sqlite3
import struct
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from zerolm.io.files import cache_folder

APPLICATION: Final = 0x7A65726F  # "zero", in the header of the file
FORMAT: Final = 1
PATIENCE: Final = 60.0
"""Seconds to wait while another process writes; each write takes milliseconds."""
TABLE: Final = """CREATE TABLE IF NOT EXISTS evaluations (
    architecture TEXT NOT NULL, proxy TEXT NOT NULL, settings TEXT NOT NULL, version TEXT NOT NULL,
    value BLOB NOT NULL, seconds REAL NOT NULL, note TEXT NOT NULL,
    PRIMARY KEY (architecture, proxy, settings, version)) WITHOUT ROWID"""
LOOK_UP: Final = """SELECT value, seconds, note FROM evaluations
    WHERE architecture = ? AND proxy = ? AND settings = ? AND version = ?"""
HEADER: Final = ("PRAGMA application_id", "PRAGMA user_version", "SELECT count(*) FROM sqlite_master")
ADD: Final = "INSERT INTO evaluations VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING"


@dataclass(frozen=True)
class Key:
    """What an evaluation depends on, all of it, as canonical text: JSON with sorted keys."""

    architecture: str
    proxy: str
    settings: str
    version: str

    @property
    def columns(self) -> tuple[str, str, str, str]:
        return self.architecture, self.proxy, self.settings, self.version


@dataclass(frozen=True)
class Evaluation:
    """What a proxy gave: its value or the several parts of it, also NaN and infinities, and its seconds.

    ``note`` says why there is no value, where there is none.
    """

    key: Key
    value: tuple[float, ...]
    seconds: float
    note: str = ""


class Store:
    """Evaluations in one SQLite file, or with no path in memory; a context manager that closes it.

    One process writes at a time and others wait for it, for a minute at most; reading is always possible.
    Values are kept as their bits. A key once evaluated keeps its first evaluation. ``ValueError`` in one line
    for a file that is damaged, of another program or of another format, and where nothing can be written.
    The file must lie on this machine: SQLite's log does not work over a network.
    """

    def __init__(self, path: Path | None = None) -> None:
        self._path = path
        with self._plainly():
            self._database = self._opened()

    @classmethod
    def default_path(cls) -> Path:
        """The file in the user's cache; ``ValueError`` where there is no home folder."""
        return cache_folder("proxies") / "evaluations.sqlite"

    def __enter__(self) -> Store:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._database.close()

    def get(self, keys: Iterable[Key]) -> dict[Key, Evaluation]:
        """The evaluations of those keys that have one, in the order of the keys, all as of one moment."""
        wanted = dict.fromkeys(keys)
        found: dict[Key, Evaluation] = {}
        with self._plainly(), self._database:
            self._database.execute("BEGIN")
            for key in wanted:
                row = self._database.execute(LOOK_UP, key.columns).fetchone()
                if row is not None:
                    found[key] = Evaluation(key, *self._read(row))
        return found

    def put(self, evaluations: Sequence[Evaluation]) -> None:
        """Add all of them or, when killed, none; a key that is there already stays as it is."""
        rows = (
            (*each.key.columns, struct.pack(f"<{len(each.value)}d", *each.value), each.seconds, each.note)
            for each in evaluations
        )
        with self._plainly(), self._database:
            self._database.execute("BEGIN IMMEDIATE")
            self._database.executemany(ADD, rows)

    def _opened(self) -> sqlite3.Connection:
        if self._path is None:
            return self._prepared(sqlite3.connect(":memory:", isolation_level=None))
        if self._path.is_symlink() or (self._path.exists() and not self._path.is_file()):
            raise self._refusal("is not a regular file")
        self._path.parent.mkdir(parents=True, exist_ok=True)
        return self._prepared(sqlite3.connect(self._path.absolute(), timeout=PATIENCE, isolation_level=None))

    def _prepared(self, database: sqlite3.Connection) -> sqlite3.Connection:
        """The database once it is known to be ours, or new and made ours."""
        try:
            with database:
                database.execute("BEGIN")  # the answers belong to one moment
                application, version, tables = (database.execute(each).fetchone()[0] for each in HEADER)
            if (application, version, tables) == (0, 0, 0):
                _create(database)
            elif application != APPLICATION:
                raise self._refusal("was written by another program")
            elif version != FORMAT:
                raise self._refusal(f"has format {version} of another zerolm, where this one has {FORMAT}")
            elif (state := database.execute("PRAGMA quick_check(1)").fetchone()[0]) != "ok":
                raise self._refusal(f"is damaged: {' '.join(str(state).split())}")
        except BaseException:
            database.close()
            raise
        return database

    def _read(self, row: tuple[Any, Any, Any]) -> tuple[tuple[float, ...], float, str]:
        value, seconds, note = row
        if not isinstance(value, bytes) or len(value) % 8 or not isinstance(seconds, float):
            raise self._refusal("is damaged: a value is not made of doubles")
        if not isinstance(note, str):
            raise self._refusal("is damaged: a note is no text")
        return struct.unpack(f"<{len(value) // 8}d", value), seconds, note

    def _refusal(self, what: str) -> ValueError:
        return ValueError(f"the store {str(self._path)!r} {what}; name another with --store, or remove it")

    @contextmanager
    def _plainly(self) -> Iterator[None]:
        """Within, what SQLite and the system complain about comes out as ``ValueError``, in one line."""
        try:
            yield
        except (sqlite3.IntegrityError, sqlite3.ProgrammingError):  # the caller's fault, not the file's
            raise
        except (sqlite3.DatabaseError, OSError) as error:
            if _is_busy(error):
                raise ValueError(f"another run is writing {str(self._path)!r}; wait for it") from None
            raise self._refusal(f"cannot be used: {error}") from None


def _create(database: sqlite3.Connection) -> None:
    """Make a new database ours; several processes may do so at once."""
    deadline = time.monotonic() + PATIENCE
    while True:
        try:
            database.execute("PRAGMA journal_mode = WAL")
            break
        except sqlite3.OperationalError as error:  # here SQLite does not wait by itself
            if not _is_busy(error) or time.monotonic() > deadline:
                raise
            time.sleep(0.01)
    with database:
        database.execute("BEGIN IMMEDIATE")
        database.execute(TABLE)
        database.execute(f"PRAGMA application_id = {APPLICATION}")
        database.execute(f"PRAGMA user_version = {FORMAT}")


def _is_busy(error: Exception) -> bool:
    code = getattr(error, "sqlite_errorcode", 0)
    return isinstance(code, int) and code & 0xFF == sqlite3.SQLITE_BUSY
