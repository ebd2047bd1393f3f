"""Killed at any moment and started again: the same table, and only the item in the making is done twice."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from forked import in_another_process

from zerolm.lab.zero_cost.executor import Work, run
from zerolm.lab.zero_cost.store import Evaluation, Key, Store

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="processes cannot be forked here")
ITEMS = range(5)
PROXIES = ("fisher", "snip", "synflow")
Asked = tuple[Key, ...]


def keys(number: int) -> Asked:
    return tuple(Key(f"net {number}", proxy, "{}", "1") for proxy in PROXIES)


def evaluate(number: int, lacking: Asked) -> list[Evaluation]:
    return [Evaluation(key, (number / 7, float("nan"), len(key.proxy) / 3), number / 9) for key in lacking]


def rows(path: Path) -> list[tuple[Any, ...]]:
    """All that a store holds, bit for bit, read without it."""
    database = sqlite3.connect(path)
    try:
        return database.execute("SELECT * FROM measurements ORDER BY 1, 2, 3, 4").fetchall()
    finally:
        database.close()


def uninterrupted(path: Path) -> list[tuple[Any, ...]]:
    with Store(path) as store:
        run(ITEMS, evaluate, store, keys)
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
        return Steps(evaluate(number, lacking), step)

    return work


def test_a_run_goes_on_where_it_was_killed(tmp_path: Path) -> None:
    """Killed at every step in turn, in transactions too, each time with what the earlier runs have kept."""
    path, log = tmp_path / "s", tmp_path / "log"
    whole = uninterrupted(tmp_path / "whole")
    assert len(whole) == len(ITEMS) * len(PROXIES)

    def once(moment: int) -> None:
        with Store(path) as store:
            run(ITEMS, dying(moment, log), store, keys)

    kills, kept = 0, 0
    for moment in range(5 * len(ITEMS)):  # five steps an item
        if not in_another_process(lambda at=moment: once(at)):  # type: ignore[misc]
            break
        kills += 1
        found = rows(path)
        assert len(found) % len(PROXIES) == 0  # an item is there or it is not
        assert len(found) == kept + moment // 5 * len(PROXIES)  # those finished before it was killed
        assert set(map(str, found)) <= set(map(str, whole))
        kept = len(found)
    assert kills > 5
    assert rows(path) == whole
    begun = log.read_text().split()
    assert len(begun) == len(ITEMS) + kills  # one item in the making at each kill


def test_killed_while_the_file_is_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = uninterrupted(tmp_path / "whole")
    connect = sqlite3.connect

    def once(moment: int, path: Path) -> None:
        steps = iter(range(10**6))

        def step(*_: object) -> int:
            if next(steps) == moment:
                os.kill(os.getpid(), signal.SIGKILL)
            return 0

        def slow(*arguments: Any, **settings: Any) -> sqlite3.Connection:
            database: sqlite3.Connection = connect(*arguments, **settings)
            database.set_progress_handler(step, 1)  # at every instruction of SQLite's machine
            return database

        monkeypatch.setattr(sqlite3, "connect", slow)
        Store(path).close()

    kills = 0
    for moment in range(0, 1000, 5):
        path = tmp_path / str(moment)
        if not in_another_process(lambda at=moment, to=path: once(at, to)):  # type: ignore[misc]
            break
        kills += 1
        assert uninterrupted(path) == whole
    assert kills > 3


SCRIPT = """
import sys, time
from pathlib import Path
from zerolm.lab.zero_cost.executor import run
from zerolm.lab.zero_cost.store import Store
sys.path[:0] = [sys.argv[1], sys.argv[1] + "/../.."]
from test_killed import ITEMS, evaluate, keys

def work(number, lacking):
    while number > 2 and not Path(sys.argv[2] + ".go").exists():
        time.sleep(0.01)
    return evaluate(number, lacking)

with Store(Path(sys.argv[2])) as store:
    run(ITEMS, work, store, keys, jobs=2)
"""


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_a_run_with_workers_that_is_stopped_goes_on(number: signal.Signals, tmp_path: Path) -> None:
    """Three items are done and the workers are busy with two when the process is stopped."""
    path = tmp_path / "s"
    whole = uninterrupted(tmp_path / "whole")
    command = [sys.executable, "-c", SCRIPT, str(Path(__file__).parent), str(path)]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, start_new_session=True)
    try:
        deadline = time.monotonic() + 180
        done = 3 * len(PROXIES)
        while not path.exists() or not held(path) >= done:
            assert process.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.02)
        os.kill(process.pid, number) if number == signal.SIGKILL else os.killpg(process.pid, number)
        process.wait(timeout=300)
        assert rows(path) == whole[:done]
    finally:
        os.killpg(process.pid, signal.SIGKILL)  # workers outlive their parent by minutes
        assert process.stderr is not None
        process.stderr.close()
    assert uninterrupted(path) == whole


def held(path: Path) -> int:
    try:
        return len(rows(path))
    except sqlite3.OperationalError:  # the table is still to come
        return 0
