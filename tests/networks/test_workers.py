"""Work on items in any number of processes: each outcome as it comes, the first error after the others."""

from __future__ import annotations

import os
import time

import pytest
import torch

from zerolm.networks.workers import check_workers, finished


@pytest.mark.parametrize("jobs", [1, 3])
def test_every_item_is_worked_on_once_with_one_thread(jobs: int) -> None:
    def work(item: int) -> tuple[int, int]:
        return item * item, torch.get_num_threads()

    outcomes = dict(finished(range(7), work, jobs=jobs))
    assert outcomes == {i: (i * i, 1) for i in range(7)}


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


def test_settings_that_cannot_be() -> None:
    for jobs, backend, words in ((0, "loky", "at least 1"), (2, "ray", "for loky"), (1, "dask", "loky, ray")):
        with pytest.raises(ValueError, match=words):
            check_workers(jobs, backend)
