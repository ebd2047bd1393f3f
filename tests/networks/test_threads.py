"""The number of threads by what is idle."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from zerolm.networks import threads


@pytest.fixture(autouse=True)
def restored(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


@pytest.mark.parametrize(("idle", "wanted"), [(0.1, 1), (1.2, 1), (1.8, 2), (4.0, 4), (9.0, 4)])
def test_large_models_take_the_idle_processors(
    idle: float, wanted: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch.set_num_threads(4)
    monkeypatch.setattr(threads, "idle_processors", lambda: idle)
    assert threads.use_idle_processors(threads.SMALL) == torch.get_num_threads() == wanted


def test_small_models_take_one_thread_and_the_environment_decides_for_all(
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
