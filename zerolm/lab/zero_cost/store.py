"""Evaluations in one SQLite file, which a killed run and a second run go on with."""

from __future__ import annotations

import hashlib
import logging
import sqlite3
import struct
import time
import warnings
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from zerolm.io.files import cache_folder

logger = logging.getLogger(__name__)

APPLICATION: Final = 0x7A65726F  # "zero", in the header of the file
FORMAT: Final = 2
OLDER: Final = (1,)
"""Formats whose rows had no checksum: they stay in the file and are not read."""
PATIENCE: Final = 60.0
"""Seconds to wait while another process writes; each write takes milliseconds."""
TABLE: Final = """CREATE TABLE IF NOT EXISTS measurements (
    architecture TEXT NOT NULL, proxy TEXT NOT NULL, settings TEXT NOT NULL, version TEXT NOT NULL,
    value BLOB NOT NULL, seconds REAL NOT NULL, note TEXT NOT NULL, checksum BLOB NOT NULL,
    PRIMARY KEY (architecture, proxy, settings, version)) WITHOUT ROWID"""
LOOK_UP: Final = (
    "SELECT value, seconds, note, checksum FROM measurements"
    " WHERE architecture = ? AND proxy = ? AND settings = ? AND version = ?"
)
HEADER: Final = ("PRAGMA application_id", "PRAGMA user_version", "SELECT count(*) FROM sqlite_master")
PUT: Final = "INSERT OR REPLACE INTO measurements VALUES (?, ?, ?, ?, ?, ?, ?, ?)"


class StoreWarning(UserWarning):
    """Rows of a store are damaged, and are computed again."""


@dataclass(frozen=True)
class Key:
    """All that an evaluation depends on, as canonical text: JSON with sorted keys."""

    architecture: str
    proxy: str
    settings: str
    version: str

    @property
    def columns(self) -> tuple[str, str, str, str]:
        return self.architecture, self.proxy, self.settings, self.version


@dataclass(frozen=True)
class Evaluation:
    """The value of a proxy or the several parts of it, also NaN and infinities, and its seconds.

    ``note`` says why there is no value, where there is none.
    """

    key: Key
    value: tuple[float, ...]
    seconds: float
    note: str = ""

    @property
    def content(self) -> tuple[bytes, float, str, bytes]:
        """The value's bits, seconds and note, and the first 16 bytes of the SHA-256 of these and the key."""
        value = struct.pack(f"<{len(self.value)}d", *self.value)
        whole = (*self.key.columns, value, struct.pack("<d", self.seconds), self.note)
        return value, self.seconds, self.note, hashlib.sha256(repr(whole).encode()).digest()[:16]


class Store:
    """Evaluations in one SQLite file, or with no path in memory; a context manager that closes it.

    One process writes at a time and others wait for it, for a minute at most; reading is always possible.
    Values are kept as their bits, with a checksum: a row that is damaged costs a ``StoreWarning`` and counts
    as missing. A key once evaluated keeps its first evaluation. ``ValueError`` in one line for a file that is
    damaged as a whole, of another program or of a newer format, and where nothing can be written; what a
    store of an older format holds is not used. The file must lie on this machine: SQLite's log does not work
    over a network.
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
        """Return the evaluations of those keys that have one, in the order of the keys, as of one moment."""
        evaluations: dict[Key, Evaluation] = {}
        damaged = 0
        with self._plainly(), self._database:
            self._database.execute("BEGIN")
            for key in dict.fromkeys(keys):
                row = self._database.execute(LOOK_UP, key.columns).fetchone()
                evaluation = None if row is None else _read(key, row)
                if evaluation is not None:
                    evaluations[key] = evaluation
                damaged += row is not None and evaluation is None
        if damaged:
            rows = "1 row is" if damaged == 1 else f"{damaged} rows are"
            message = f"{rows} damaged in the store {str(self._path)!r}: not used, computed again"
            warnings.warn(message, StoreWarning, stacklevel=2)
        return evaluations

    def put(self, evaluations: Sequence[Evaluation]) -> None:
        """Add all of them or, when killed, none; what is there already stays, unless damaged."""
        with self._plainly(), self._database:
            self._database.execute("BEGIN IMMEDIATE")
            for evaluation in evaluations:
                columns = evaluation.key.columns
                row = self._database.execute(LOOK_UP, columns).fetchone()
                if row is None or _read(evaluation.key, row) is None:
                    self._database.execute(PUT, (*columns, *evaluation.content))

    def _opened(self) -> sqlite3.Connection:
        if self._path is None:
            return self._prepared(sqlite3.connect(":memory:", isolation_level=None))
        if self._path.is_symlink() or (self._path.exists() and not self._path.is_file()):
            raise self._refusal("is not a regular file")
        self._path.parent.mkdir(parents=True, exist_ok=True)
        logger.info("opening the store %s", self._path)
        return self._prepared(sqlite3.connect(self._path.absolute(), timeout=PATIENCE, isolation_level=None))

    def _prepared(self, database: sqlite3.Connection) -> sqlite3.Connection:
        """Return the database once it is known to be ours, or new and made ours."""
        try:
            with database:
                database.execute("BEGIN")  # the answers belong to one moment
                application, version, tables = (database.execute(line).fetchone()[0] for line in HEADER)
            ours = application == APPLICATION
            if (application, version, tables) == (0, 0, 0) or (ours and version in OLDER):
                _create(database)
            elif not ours:
                raise self._refusal("was written by another program")
            elif version != FORMAT:
                raise self._refusal(f"has format {version} of another zerolm, where this one has {FORMAT}")
            elif (state := database.execute("PRAGMA quick_check(1)").fetchone()[0]) != "ok":
                raise self._refusal(f"is damaged: {' '.join(str(state).split())}")
        except BaseException:
            database.close()
            raise
        return database

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


def _read(key: Key, row: tuple[Any, Any, Any, Any]) -> Evaluation | None:
    """Return the values of a row, None where it is damaged."""
    value, seconds, note, _ = row
    whole = isinstance(value, bytes) and isinstance(seconds, float) and isinstance(note, str)
    if not whole or len(value) % 8:
        return None
    evaluation = Evaluation(key, struct.unpack(f"<{len(value) // 8}d", value), seconds, note)
    return evaluation if evaluation.content == row else None


def _create(database: sqlite3.Connection) -> None:
    """Make a new database, or one of an older format, ours; several processes may do so at once."""
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
