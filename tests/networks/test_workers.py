"""Work on items in any number of processes, and threads by what is idle."""

import os
import re
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from zerolm.networks import threads
from zerolm.networks.workers import check_workers, finished


@pytest.mark.parametrize("jobs", [1, 3])
def test_every_item_is_worked_on_once_with_one_thread(jobs: int) -> None:
    def work(item: int) -> tuple[int, int]:
        return item * item, torch.get_num_threads()

    assert dict(finished(range(7), work, jobs=jobs)) == {i: (i * i, 1) for i in range(7)}


@pytest.mark.parametrize("jobs", [1, 2])
def test_the_first_error_names_its_item_and_ends_the_work(jobs: int) -> None:
    def work(item: int) -> int:
        if item == 2:
            raise ValueError("too wide")
        time.sleep(0.02 * (item > 2))  # the error arrives long before all of the others are through
        return os.getpid()

    outcomes = []
    with pytest.raises(ValueError, match="net 2: too wide"):
        outcomes.extend(finished(range(1000), work, name=lambda item: f"net {item}", jobs=jobs))
    assert 2 <= len(outcomes) < 999


class Unsendable(Exception):
    def __init__(self, one: object, two: object) -> None:
        super().__init__("only one of two arguments")


@pytest.mark.parametrize("jobs", [1, 2])
def test_an_error_that_is_no_wrong_input_keeps_its_traceback(jobs: int) -> None:
    def work(item: int) -> int:
        raise Unsendable(1, 2)

    with pytest.raises(RuntimeError, match=r"^0: Unsendable: only one of two") as caught:
        list(finished([0], work, jobs=jobs))
    assert re.search(r"line \d+, in work\n", caught.value.__notes__[0])


def test_a_worker_that_is_killed_is_named_as_the_cause() -> None:
    outcomes = []
    with pytest.raises(ValueError, match="one of 2 worker processes was killed"):
        outcomes.extend(finished(range(4), lambda item: item if item < 3 else os._exit(1), jobs=2))
    assert sorted(outcomes) == [(i, i) for i in range(len(outcomes))]


def test_ray_that_is_missing_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    assert not list(finished([], float, backend="ray"))
    with pytest.raises(ModuleNotFoundError, match=r"pip install 'zerolm\[ray\]'"):
        list(finished([1, 2], float, backend="ray"))


def test_settings_that_cannot_be() -> None:
    for jobs, backend, words in ((0, "loky", "at least 1"), (2, "ray", "for loky"), (1, "dask", "loky, ray")):
        with pytest.raises(ValueError, match=words):
            check_workers(jobs, backend)


@pytest.fixture(autouse=True)
def restored(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


@pytest.mark.parametrize(("idle", "wanted"), [(0.1, 1), (1.2, 1), (1.8, 2), (4.0, 4), (9.0, 4)])
def test_large_models_take_idle_cores(idle: float, wanted: int, monkeypatch: pytest.MonkeyPatch) -> None:
    torch.set_num_threads(4)
    monkeypatch.setattr(threads, "idle_processors", lambda: idle)
    assert threads.use_idle_processors(threads.SMALL) == torch.get_num_threads() == wanted


def test_small_models_take_one_thread_or_what_is_set_for_all(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    torch.set_num_threads(2)
    assert threads.use_idle_processors(threads.SMALL - 1) == torch.get_num_threads() == 1
    torch.set_num_threads(2)
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    assert threads.use_idle_processors(1) == torch.get_num_threads() == 2


def test_idle_time_is_the_difference_of_two_readings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Four processors, of which three idle over the interval, one of them waiting for a disk."""
    first, second = "cpu 100 0 100 800 0 0 0 0 0 0\n", "cpu 200 0 100 1000 100 0 0 0 0 0\n"
    readings = iter([first, second])

    class Load:
        def exists(self) -> bool:
            return True

        def read_text(self) -> str:
            return next(readings)

    monkeypatch.setattr(threads, "LOAD", Load())
    monkeypatch.setattr(threads.os, "cpu_count", lambda: 4)
    monkeypatch.setattr(threads.os, "sched_getaffinity", lambda _: {0, 1, 2, 3}, raising=False)
    assert threads.idle_processors(0.0) == pytest.approx(3.0)
