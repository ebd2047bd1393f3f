"""The store gives back the bits it was given, whoever else writes, and refuses every other file."""

from __future__ import annotations

import os
import sqlite3
import struct
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zerolm.lab.zero_cost import store as module
from zerolm.lab.zero_cost.store import APPLICATION, FORMAT, HEADER, Evaluation, Key, Store, StoreWarning

KEY = Key('{"hidden": 64}', "snip", "{}", "1")
ONE = Evaluation(KEY, (0.1,), 0.5)
doubles = st.one_of(
    st.floats(),
    st.integers(0, 2**64 - 1).map(lambda bits: struct.unpack("<d", bits.to_bytes(8, "little"))[0]),
)
few_keys = st.builds(Key, *[st.sampled_from(["", "a", "A", "a\0b"])] * 2, st.just("{}"), st.just("1"))
keys = st.builds(Key, *[st.text(max_size=9)] * 4)
values = st.lists(doubles, max_size=4).map(tuple)
seconds = st.floats(0, 1e9)
notes = st.text(max_size=3)


def bits(evaluations: dict[Key, Evaluation]) -> dict[Key, tuple[bytes, float, str]]:
    """NaN equals nothing, itself included; its bits do."""
    return {
        key: (struct.pack(f"<{len(found.value)}d", *found.value), found.seconds, found.note)
        for key, found in evaluations.items()
    }


@given(
    st.lists(st.builds(Evaluation, keys, values, seconds, notes), max_size=6, unique_by=lambda each: each.key)
)
def test_values_come_back_bit_for_bit(evaluations: list[Evaluation]) -> None:
    with Store() as store:
        store.put(evaluations)
        found = store.get([each.key for each in evaluations])
    assert bits(found) == bits({each.key: each for each in evaluations})
    assert list(found) == [each.key for each in evaluations] == [each.key for each in found.values()]


@given(st.lists(st.lists(st.builds(Evaluation, few_keys, values, seconds, notes), max_size=4), max_size=5))
def test_a_store_is_a_dictionary_whose_entries_stay(batches: list[list[Evaluation]]) -> None:
    twin: dict[Key, Evaluation] = {}
    asked = [Key(a, b, "{}", "1") for a in ("", "a", "A", "a\0b") for b in ("", "a", "A", "a\0b")]
    with Store() as store:
        for batch in batches:
            store.put(batch)
            for each in batch:
                twin.setdefault(each.key, each)
            assert bits(store.get(iter(asked + asked))) == bits(
                {key: twin[key] for key in asked if key in twin}
            )


def test_what_is_in_the_file_stays_when_it_is_closed(tmp_path: Path) -> None:
    path = tmp_path / "new" / "folder" / "here.sqlite"
    some = [Evaluation(Key("a", "p", str(number), "1"), (number / 7,), 0.0) for number in range(5000)]
    for part in (some[:10], some[10:]):
        with Store(path) as store:
            store.put(part)
    with Store(path) as store:
        assert store.get(each.key for each in some) == {each.key: each for each in some}
    assert [each.name for each in path.parent.iterdir()] == ["here.sqlite"]


def test_all_of_a_put_or_nothing(tmp_path: Path) -> None:
    broken = Evaluation(Key("b", "p", "{}", "1"), ("text",), 0.0)  # type: ignore[arg-type]
    with Store(tmp_path / "s") as store:
        with pytest.raises(struct.error):
            store.put([ONE, broken])
        assert store.get([KEY, broken.key]) == {}
        store.put([ONE])
        assert store.get([KEY]) == {KEY: ONE}


def written(path: Path) -> sqlite3.Connection:
    """The database of a store that holds one evaluation, to be spoilt."""
    with Store(path) as store:
        store.put([ONE])
    return sqlite3.connect(path, isolation_level=None)


def spoilt(statement: str) -> Callable[[Path], object]:
    def spoil(path: Path) -> None:
        database = written(path)
        database.execute(statement)
        database.close()

    return spoil


def other_program(path: Path) -> None:
    database = sqlite3.connect(path)
    database.execute("CREATE TABLE evaluations (a)")
    database.close()


def cut_short(path: Path) -> None:
    written(path).close()
    os.truncate(path, 5000)


def page_of_noise(path: Path) -> None:
    with Store(path) as store:
        store.put([Evaluation(Key("a" * 200, "p", str(n), "1"), (1.0,), 0.0) for n in range(200)])
    content = bytearray(path.read_bytes())
    content[8192:12288] = bytes(range(256)) * 16
    path.write_bytes(content)


WRONG: dict[str, tuple[Callable[[Path], object], str]] = {
    "text": (lambda path: path.write_text("a,b\n1,2\n" * 500), "not a database"),
    "cut short": (cut_short, "malformed|damaged"),
    "noise": (page_of_noise, "malformed|damaged"),
    "another program": (other_program, "another program"),
    "another program's number": (spoilt(f"PRAGMA application_id = {APPLICATION + 1}"), "another program"),
    "a newer format": (spoilt(f"PRAGMA user_version = {FORMAT + 1}"), f"format {FORMAT + 1}"),
    "no format": (spoilt("PRAGMA user_version = 0"), "format 0"),
    "no table": (spoilt("DROP TABLE measurements"), "no such table"),
    "a folder": (lambda path: path.mkdir(), "not a regular file"),
    "a pipe": (lambda path: os.mkfifo(path), "not a regular file"),
    "a link": (lambda path: path.symlink_to("elsewhere"), "not a regular file"),
}


@pytest.mark.parametrize("kind", WRONG)
def test_another_file_is_refused_in_one_line_and_left_alone(kind: str, tmp_path: Path) -> None:
    make, complaint = WRONG[kind]
    path = tmp_path / "s.sqlite"
    make(path)
    before = path.read_bytes() if path.is_file() else b""
    with pytest.raises(ValueError, match=complaint) as caught, Store(path) as store:
        store.get([KEY])
    message = str(caught.value)
    assert "\n" not in message
    assert str(path) in message
    assert "name another with --store, or remove it" in message
    assert (path.read_bytes() if path.is_file() else b"") == before
    assert [each.name for each in tmp_path.iterdir()] == ["s.sqlite"]


@pytest.mark.parametrize(
    "change",
    [
        "value = zeroblob(7)",
        "value = zeroblob(8)",
        "value = 'eight123'",
        "seconds = zeroblob(8)",
        "seconds = 0.25",
        "note = zeroblob(8)",
        "note = 'left out'",
        "checksum = zeroblob(16)",
        "architecture = 'other'",
    ],
)
def test_a_damaged_row_is_missing_and_is_replaced(change: str, tmp_path: Path) -> None:
    """Its neighbours stay."""
    path, beside = tmp_path / "s", Evaluation(Key("b", "p", "{}", "1"), (2.0,), 0.0)
    with Store(path) as store:
        store.put([ONE, beside])
    database = sqlite3.connect(path, isolation_level=None)
    database.execute(f"UPDATE measurements SET {change} WHERE proxy = 'snip'")
    database.close()
    key = Key("other", *KEY.columns[1:]) if "architecture" in change else KEY
    again = Evaluation(key, (0.75,), 0.5)
    with Store(path) as store:
        with pytest.warns(
            StoreWarning, match=r"^1 row is damaged in the store '.*': not used, computed again$"
        ):
            assert store.get([key, beside.key]) == {beside.key: beside}
        store.put([again])
        assert store.get([key, beside.key]) == {key: again, beside.key: beside}


def test_a_store_of_the_older_format_is_not_read_and_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "s"
    database = sqlite3.connect(path, isolation_level=None)
    database.execute(
        "CREATE TABLE evaluations (architecture TEXT, proxy TEXT, settings TEXT, version TEXT, value BLOB,"
        " seconds REAL, note TEXT, PRIMARY KEY (architecture, proxy, settings, version)) WITHOUT ROWID"
    )
    database.execute(
        "INSERT INTO evaluations VALUES (?, ?, ?, ?, ?, 0.5, '')", (*KEY.columns, struct.pack("<d", 0.25))
    )
    database.execute(f"PRAGMA application_id = {APPLICATION}")
    database.execute("PRAGMA user_version = 1")
    database.close()
    for _ in range(2):
        with Store(path) as store:
            assert store.get([KEY]) == ({KEY: ONE} if _ else {})
            store.put([ONE])


def test_a_place_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ValueError, match=r"cannot be used: .*; name another with --store"):
        Store(tmp_path / "file" / "s.sqlite")


def test_reading_goes_on_while_another_writes_and_writing_waits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "s"
    other = written(path)
    other.execute("BEGIN IMMEDIATE")
    other.execute("DELETE FROM measurements")
    two = Evaluation(Key("b", "p", "{}", "1"), (2.0,), 0.0)
    monkeypatch.setattr(module, "PATIENCE", 0.05)
    with Store(path) as store:
        assert store.get([KEY]) == {KEY: ONE}
        with pytest.raises(ValueError, match="another run is writing"):
            store.put([two])
    monkeypatch.setattr(module, "PATIENCE", 30.0)
    opened: list[float] = []

    def write() -> None:
        with Store(path) as store:
            store.put([two])
            opened.append(time.monotonic())

    thread = threading.Thread(target=write)
    thread.start()
    time.sleep(0.3)
    released = time.monotonic()
    other.execute("ROLLBACK")
    thread.join()
    other.close()
    assert opened[0] > released
    with Store(path) as store:
        assert store.get([KEY, two.key]) == {KEY: ONE, two.key: two}


def test_what_is_read_at_once_is_of_one_moment(tmp_path: Path) -> None:
    late = Evaluation(Key("b", "p", "{}", "1"), (2.0,), 0.0)

    class Between(Key):
        """Where it is looked up, another process writes."""

        @property
        def columns(self) -> tuple[str, str, str, str]:
            other.put([late])
            return super().columns

    with Store(tmp_path / "s") as store, Store(tmp_path / "s") as other:
        store.put([ONE])
        assert store.get([KEY, Between("", "", "", ""), late.key]) == {KEY: ONE}
        assert store.get([KEY, late.key]) == {KEY: ONE, late.key: late}


def test_a_file_that_another_makes_at_this_moment_is_shared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other begins when this one has half looked at a file that is still empty."""
    path, connect = tmp_path / "s", sqlite3.connect
    others: list[Future[None]] = []

    def other() -> None:
        with Store(path) as store:
            store.put([ONE])

    with ThreadPoolExecutor(1) as pool:

        class Watched(sqlite3.Connection):
            def execute(self, statement: str, *parameters: Any) -> sqlite3.Cursor:
                if statement == HEADER[1] and not others:
                    others.append(pool.submit(other))
                    wait(others, timeout=0.2)
                return super().execute(statement, *parameters)

        monkeypatch.setattr(sqlite3, "connect", partial(connect, factory=Watched))
        with Store(path) as store:
            others[0].result()
            assert store.get([KEY]) == {KEY: ONE}


def test_a_new_file_that_another_holds_is_waited_for(tmp_path: Path) -> None:
    other = sqlite3.connect(tmp_path / "s", isolation_level=None, check_same_thread=False)
    other.execute("BEGIN IMMEDIATE")
    release = threading.Timer(0.2, other.rollback)
    release.start()
    with Store(tmp_path / "s") as store:
        assert not other.in_transaction
        store.put([ONE])
    release.join()
    other.close()
