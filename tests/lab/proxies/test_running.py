"""What the store lacks is computed once, here or in workers, and nothing that is finished is lost.

Neither by an error, nor where the process is killed: started again it gives the same table.
"""

from __future__ import annotations

import math
import os
import re
import signal
import sqlite3
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NoReturn

import pytest
import torch
from forked import in_another_process
from hypothesis import given
from hypothesis import strategies as st

from zerolm.lab.zero_cost.job import Work, run
from zerolm.lab.zero_cost.store import Evaluation, Key, Store

Asked = tuple[Key, ...]


def key(number: int, proxy: str = "snip") -> Key:
    return Key(f"net {number}", proxy, "{}", "1")


def keys(number: int) -> Asked:
    return key(number), key(number, "synflow")


def evaluation(key: Key) -> Evaluation:
    """What the proxies of these tests give: a digest of the key, and the number of threads at work."""
    value = math.sqrt(sum(map(ord, key.architecture + key.proxy)))
    return Evaluation(key, (value, float(torch.get_num_threads())), 0.25)


def table(numbers: Sequence[int]) -> dict[Key, Evaluation]:
    return {
        each: Evaluation(each, (evaluation(each).value[0], 1.0), 0.25) for i in numbers for each in keys(i)
    }


def until(true: Callable[[], bool]) -> None:
    """Wait for what other processes do."""
    deadline = time.monotonic() + 180
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def logging_to(folder: Path, first_waits_for: int = 0) -> Work[int]:
    """Work that leaves its process in a file of the item's name; nested, for workers cannot import tests."""

    def work(number: int, lacking: Asked) -> list[Evaluation]:
        with (folder / str(number)).open("a") as log:
            log.write(f"{os.getpid()}\n")
        if number == 0:
            until((folder / str(first_waits_for)).exists)
        return [evaluation(each) for each in lacking]

    return work


def failing(number_that_fails: int, error: Callable[[], Exception], before: float = 0.0) -> Work[int]:
    def work(number: int, lacking: Asked) -> list[Evaluation]:
        if number == number_that_fails:
            time.sleep(before)
            raise error()
        return [evaluation(each) for each in lacking]

    return work


def never(number: object, lacking: Asked) -> NoReturn:
    raise AssertionError(f"{number} is computed again")


networks = st.integers(0, 3)
lists = st.lists(st.lists(st.tuples(networks, st.sampled_from("ab")), max_size=4).map(tuple), max_size=5)


@given(lists, st.sets(st.tuples(networks, st.sampled_from("ab"))))
def test_each_key_that_lacks_is_computed_once(items: list[tuple[Any, ...]], stored: set[Any]) -> None:
    """Items that overlap with one another and with the store."""
    calls: list[Asked] = []

    def work(item: object, lacking: Asked) -> list[Evaluation]:
        calls.append(lacking)
        return [evaluation(each) for each in lacking]

    def asked(item: tuple[Any, ...]) -> Asked:
        return tuple(key(*each) for each in item)

    here = {key(*each): Evaluation(key(*each), (-1.0,), 0.0) for each in stored}
    with Store() as store:
        store.put(list(here.values()))
        found = run(items, work, store, asked)
        wanted = dict.fromkeys(each for item in items for each in asked(item))
        assert found == {each: here.get(each, found[each]) for each in wanted}
        computed = [each for lacking in calls for each in lacking]
        assert all(calls)
        assert sorted(map(str, computed)) == sorted(map(str, wanted.keys() - here.keys()))
        assert all(found[each].value[0] == evaluation(each).value[0] for each in computed)
        assert run(items, never, store, asked) == found


def test_workers_give_the_table_of_one_process_in_any_order_of_finishing(tmp_path: Path) -> None:
    numbers = range(7)
    here, there = tmp_path / "here", tmp_path / "there"
    here.mkdir()
    there.mkdir()
    with Store() as store, Store(tmp_path / "s") as other:
        assert run(numbers, logging_to(here), store, keys) == table(numbers)
        order: list[str] = []
        put = other.put

        def in_order(evaluations: Sequence[Evaluation]) -> None:
            order.append(evaluations[0].key.architecture)
            put(evaluations)

        other.put = in_order  # type: ignore[method-assign]
        found = run(numbers, logging_to(there, first_waits_for=6), other, keys, jobs=2)
        assert list(found.items()) == list(table(numbers).items())
        assert sorted(order) == [f"net {number}" for number in numbers]
        assert order.index("net 0") > 4
        assert run(numbers, never, other, keys, jobs=2) == found
    for folder, in_this_process in ((here, True), (there, False)):
        logs = [(folder / str(number)).read_text().split() for number in numbers]
        assert all(len(log) == 1 for log in logs)
        processes = {int(log[0]) for log in logs}
        assert (os.getpid() in processes) is in_this_process
        assert len(processes) == (1 if in_this_process else 2)


@pytest.mark.parametrize("jobs", [1, 2])
def test_an_error_names_its_item_and_costs_nothing_that_is_finished(jobs: int) -> None:
    """Those in the making are finished; none is begun."""
    numbers = range(30)
    work = failing(3, lambda: ValueError("too\n wide"), before=0.3 if jobs > 1 else 0.0)
    with Store() as store:
        with pytest.raises(ValueError, match=r"^the net 3: too wide$"):
            run(numbers, work, store, keys, jobs=jobs, name=lambda number: f"the net {number}")
        kept = store.get(each for number in numbers for each in keys(number))
        done = sorted({int(each.architecture.split()[1]) for each in kept})
        assert kept == table(done)
        assert done[:3] == [0, 1, 2]
        assert 3 not in done
        if jobs == 1:
            assert len(done) == 3
        lacking = [number for number in numbers if number not in done]
        again: list[int] = []

        def note(number: int, lacking: Asked) -> list[Evaluation]:
            again.append(number)
            return [evaluation(each) for each in lacking]

        assert run(numbers, note, store, keys) == table(numbers)
        assert again == lacking


def test_the_threads_of_this_process_are_as_before() -> None:
    torch.set_num_threads(2)
    try:
        with Store() as store:
            assert run([1], computing, store, keys) == table([1])
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(1)


class Unsendable(Exception):
    def __init__(self, one: object, two: object) -> None:
        super().__init__("only one of two arguments")


@pytest.mark.parametrize("jobs", [1, 2])
def test_an_error_that_is_no_wrong_input_keeps_its_traceback(jobs: int) -> None:
    with Store() as store, pytest.raises(RuntimeError, match=r"^1: Unsendable: only one of two") as caught:
        run([0, 1], failing(1, lambda: Unsendable(1, 2)), store, keys, jobs=jobs)
    assert re.search(r"line \d+, in work\n", caught.value.__notes__[0])


def test_a_worker_that_is_killed_is_named_as_the_cause(tmp_path: Path) -> None:
    path = tmp_path / "s"

    def dying(number: int, lacking: Asked) -> list[Evaluation]:
        if number == 3:
            with Store(path) as store:
                until(lambda: len(store.get(e for i in range(3) for e in keys(i))) == 6)
            os._exit(1)
        return [evaluation(each) for each in lacking]

    with Store(path) as store:
        with pytest.raises(ValueError, match="one of 2 worker processes was killed"):
            run(range(4), dying, store, keys, jobs=2)
        assert store.get(e for i in range(4) for e in keys(i)) == table(range(3))


def test_ray_that_is_missing_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with Store() as store:
        store.put([evaluation(each) for each in keys(1)])
        assert len(run([1], never, store, keys, backend="ray")) == 2
        with pytest.raises(ModuleNotFoundError, match=r"pip install 'zerolm\[ray\]'"):
            run([1, 2], never, store, keys, backend="ray")


def test_a_cluster_that_does_not_answer_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("ray")
    monkeypatch.setenv("RAY_ADDRESS", "127.0.0.1:1")
    with Store() as store, pytest.raises(ValueError, match=r"RAY_ADDRESS '127\.0\.0\.1:1'"):
        run([1], never, store, keys, backend="ray")


@given(st.integers(1, 20), st.sets(st.integers(0, 19)))
def test_progress(total: int, stored: set[int]) -> None:
    """What the store holds counts as done, and every network after it one by one."""
    told: list[tuple[int, int]] = []
    reused = sorted(number for number in stored if number < total)

    with Store() as store:
        store.put([evaluation(each) for number in reused for each in keys(number)])
        run(range(total), computing, store, keys, progress=lambda text, done, of: told.append((done, of)))
    assert told == [(done, total) for done in range(len(reused), total + 1)]


FORKED = pytest.mark.skipif(not hasattr(os, "fork"), reason="processes cannot be forked here")
ITEMS = range(5)
KEYS = 2
"""Keys of an item."""
STEPS = KEYS + 2
"""Moments of an item at which a process may be killed: before it, before each insertion, and after all."""


def computing(number: int, lacking: Asked) -> list[Evaluation]:
    return [evaluation(each) for each in lacking]


def rows(path: Path) -> list[tuple[Any, ...]]:
    """All that a store holds, bit for bit, read without it."""
    database = sqlite3.connect(path)
    try:
        return database.execute("SELECT * FROM evaluations ORDER BY 1, 2, 3, 4").fetchall()
    finally:
        database.close()


def uninterrupted(path: Path) -> list[tuple[Any, ...]]:
    with Store(path) as store:
        run(ITEMS, computing, store, keys)
    return rows(path)


class Steps(list[Evaluation]):
    """What an item gave; each look at an evaluation is a step at which the process may be killed."""

    def __init__(self, evaluations: list[Evaluation], step: Callable[[], None]) -> None:
        super().__init__(evaluations)
        self.step = step

    def __iter__(self) -> Iterator[Evaluation]:
        for each in super().__iter__():
            self.step()
            yield each
        self.step()


def dying(moment: int, log: Path) -> Work[int]:
    """Work that is killed at a step of this number: before and after an item, and between its insertions."""
    steps = iter(range(10**6))

    def step() -> None:
        if next(steps) == moment:
            os.kill(os.getpid(), signal.SIGKILL)

    def work(number: int, lacking: Asked) -> list[Evaluation]:
        with log.open("a") as file:
            file.write(f"{number}\n")
        step()
        return Steps(computing(number, lacking), step)

    return work


@FORKED
def test_a_run_goes_on_where_it_was_killed(tmp_path: Path) -> None:
    """Killed at every step in turn, in transactions too, each time with what the earlier runs have kept."""
    path, log = tmp_path / "s", tmp_path / "log"
    whole = uninterrupted(tmp_path / "whole")
    assert len(whole) == len(ITEMS) * KEYS

    def once(moment: int) -> None:
        with Store(path) as store:
            run(ITEMS, dying(moment, log), store, keys)

    kills, kept = 0, 0
    for moment in range(STEPS * len(ITEMS)):
        if not in_another_process(lambda at=moment: once(at)):  # type: ignore[misc]
            break
        kills += 1
        found = rows(path)
        assert len(found) % KEYS == 0  # an item is there or it is not
        assert len(found) == kept + moment // STEPS * KEYS  # those finished before it was killed
        assert set(map(str, found)) <= set(map(str, whole))
        kept = len(found)
    assert kills > 5
    assert rows(path) == whole
    begun = log.read_text().split()
    assert len(begun) == len(ITEMS) + kills  # one item in the making at each kill
