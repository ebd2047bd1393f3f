"""Networks evaluated here, in worker processes or on a Ray cluster; what is stored is not done again."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing
from typing import Final, TypeVar

from zerolm.lab.zero_cost.store import Evaluation, Key, Store
from zerolm.networks.workers import Backend, check_workers, finished
from zerolm.progress import Progress, silent

logger = logging.getLogger(__name__)

Item = TypeVar("Item")
Work = Callable[[Item, tuple[Key, ...]], Sequence[Evaluation]]
"""Evaluates an item, given those of its keys that the store lacks."""
COMPUTING: Final = "computing proxies of networks"


def run(
    items: Iterable[Item],
    work: Work[Item],
    store: Store,
    keys: Callable[[Item], Iterable[Key]],
    *,
    name: Callable[[Item], str] = str,
    jobs: int = 1,
    backend: Backend = "loky",
    progress: Progress = silent,
) -> dict[Key, Evaluation]:
    """The evaluations of all keys of all items, of which ``work`` computes those that the store lacks.

    ``loky`` works in ``jobs`` processes of this machine (one: in this process), ``ray`` on every CPU of a
    cluster; ``work`` and the items must be picklable then. Only this process writes to the store, each item
    when it is finished (Ray: each round of one item per CPU), so that a run that is killed loses nothing
    but the items in the making. Every item is computed with one thread: no number of jobs changes its bits.

    The first error of an item ends the run once the items in the making are finished and stored. It names
    the item; a ``ValueError`` stays one, another becomes a ``RuntimeError`` with its traceback as a note.
    """
    check_workers(jobs, backend)
    everything = [(item, tuple(keys(item))) for item in items]
    stored = set(store.get(key for _, wanted in everything for key in wanted))
    tasks: list[tuple[Item, tuple[Key, ...]]] = []
    for item, wanted in everything:
        lacking = tuple(key for key in dict.fromkeys(wanted) if key not in stored)
        stored.update(lacking)  # of two items with one key, the first computes it
        if lacking:
            tasks.append((item, lacking))
    done = len(everything) - len(tasks)
    logger.info("%d of %d networks are in the store", done, len(everything))
    progress(COMPUTING, done, len(everything))
    evaluated = finished(
        tasks, lambda task: work(*task), name=lambda task: name(task[0]), jobs=jobs, backend=backend
    )
    with closing(evaluated) as results:
        for _, evaluations in results:
            store.put(evaluations)
            done += 1
            progress(COMPUTING, done, len(everything))
    return store.get(key for _, wanted in everything for key in wanted)
