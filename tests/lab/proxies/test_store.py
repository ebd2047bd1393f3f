"""The store gives back the bits it was given, whoever else writes, and refuses every other file."""

from __future__ import annotations

import os
import sqlite3
import struct
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zerolm.lab.zero_cost import store as module
from zerolm.lab.zero_cost.store import APPLICATION, Evaluation, Key, Store

KEY = Key('{"hidden": 64}', "snip", "{}", "1")
ONE = Evaluation(KEY, (0.1,), 0.5)
TWO = Evaluation(Key("b", "p", "{}", "1"), (2.0,), 0.0)
doubles = st.one_of(
    st.floats(),
    st.integers(0, 2**64 - 1).map(lambda bits: struct.unpack("<d", bits.to_bytes(8, "little"))[0]),
)
few_keys = st.builds(Key, *[st.sampled_from(["", "a", "A", "a\0b"])] * 2, st.just("{}"), st.just("1"))
values = st.lists(doubles, max_size=4).map(tuple)
evaluations = st.builds(Evaluation, few_keys, values, st.floats(0, 1e9), st.text(max_size=3))


def bits(found: dict[Key, Evaluation]) -> dict[Key, tuple[bytes, float, str]]:
    """NaN equals nothing, itself included; its bits do."""
    return {
        key: (struct.pack(f"<{len(each.value)}d", *each.value), each.seconds, each.note)
        for key, each in found.items()
    }


@given(st.lists(st.lists(evaluations, max_size=4), max_size=5))
def test_a_store_is_a_dictionary_whose_entries_stay_bit_for_bit(batches: list[list[Evaluation]]) -> None:
    twin: dict[Key, Evaluation] = {}
    asked = [Key(a, b, "{}", "1") for a in ("", "a", "A", "a\0b") for b in ("", "a", "A", "a\0b")]
    with Store() as store:
        for batch in batches:
            store.put(batch)
            for each in batch:
                twin.setdefault(each.key, each)
            found = bits(store.get(iter(asked + asked)))
            assert list(found.items()) == list(bits({key: twin[key] for key in asked if key in twin}).items())


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


def changed(statement: str) -> Callable[[Path], object]:
    """Return a function that makes a store with one evaluation and runs a statement of SQL on it."""

    def change(path: Path) -> None:
        with Store(path) as store:
            store.put([ONE])
        database = sqlite3.connect(path, isolation_level=None)
        database.execute(statement)
        database.close()

    return change


def other_program(path: Path) -> None:
    database = sqlite3.connect(path)
    database.execute("CREATE TABLE evaluations (a)")
    database.close()


def cut_short(path: Path) -> None:
    changed("VACUUM")(path)
    os.truncate(path, 5000)


WRONG: dict[str, tuple[Callable[[Path], object], str]] = {
    "text": (lambda path: path.write_text("a,b\n1,2\n" * 500), "not a database"),
    "cut short": (cut_short, "malformed|damaged"),
    "another program": (other_program, "another program"),
    "another program's number": (changed(f"PRAGMA application_id = {APPLICATION + 1}"), "another program"),
    "no table": (changed("DROP TABLE evaluations"), "no such table"),
    "a folder": (lambda path: path.mkdir(), "not a regular file"),
    "a pipe": (lambda path: os.mkfifo(path), "not a regular file"),
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


def test_a_place_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ValueError, match=r"cannot be used: .*; name another with --store"):
        Store(tmp_path / "file" / "s.sqlite")


@pytest.mark.parametrize("is_new", [True, False])
def test_another_that_writes_is_waited_for(
    is_new: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "s"
    if not is_new:
        with Store(path) as store:
            store.put([ONE])
    other = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    other.execute("BEGIN IMMEDIATE")
    monkeypatch.setattr(module, "PATIENCE", 0.05)
    with pytest.raises(ValueError, match="another run is writing"):
        Store(path)
    monkeypatch.setattr(module, "PATIENCE", 30.0)
    release = threading.Timer(0.2, other.rollback)
    release.start()
    with Store(path) as store:
        assert not other.in_transaction
        store.put([TWO])
        assert store.get([KEY, TWO.key]) == ({} if is_new else {KEY: ONE}) | {TWO.key: TWO}
    release.join()
    other.close()


def test_two_that_are_open_see_what_the_other_wrote(tmp_path: Path) -> None:
    with Store(tmp_path / "s") as store, Store(tmp_path / "s") as other:
        store.put([ONE])
        other.put([TWO])
        assert store.get([KEY, TWO.key]) == other.get([KEY, TWO.key]) == {KEY: ONE, TWO.key: TWO}
