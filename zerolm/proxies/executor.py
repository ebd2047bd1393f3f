"""Networks evaluated here, in worker processes or on a Ray cluster; what is stored is not done again."""

from __future__ import annotations

import logging
import traceback
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures.process import BrokenProcessPool
from contextlib import closing
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeVar, get_args

import torch
from joblib import Parallel, delayed, parallel_config

from zerolm.progress import Progress, silent
from zerolm.proxies import cluster
from zerolm.proxies.store import Evaluation, Key, Store

logger = logging.getLogger(__name__)

Item = TypeVar("Item")
Backend = Literal["loky", "ray"]
Work = Callable[[Item, tuple[Key, ...]], Sequence[Evaluation]]
"""Evaluates an item, given those of its keys that the store lacks."""
COMPUTING: Final = "computing proxies of networks"
Call = tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]


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
    if jobs < 1:
        raise ValueError(f"jobs {jobs}: at least 1 is needed")
    if backend not in get_args(Backend):
        raise ValueError(f"backend {backend!r} is not known; there are {', '.join(get_args(Backend))}")
    everything = [(item, tuple(keys(item))) for item in items]
    known = set(store.get(key for _, asked in everything for key in asked))
    tasks: list[tuple[Item, tuple[Key, ...]]] = []
    for item, asked in everything:
        lacking = tuple(key for key in dict.fromkeys(asked) if key not in known)
        known.update(lacking)  # of two items with one key, the first computes it
        if lacking:
            tasks.append((item, lacking))
    failures: list[Exception] = []
    calls = (
        delayed(_attempt)(number, work, *task) for number, task in enumerate(tasks) if not failures
    )  # drawn one by one, so that none starts after a failure
    done = len(everything) - len(tasks)
    logger.info("%d of %d networks are in the store", done, len(everything))
    progress(COMPUTING, done, len(everything))
    with closing(_outcomes(calls, min(jobs, len(tasks)), backend)) as outcomes:
        for number, outcome in outcomes:
            if isinstance(outcome, _Failure):
                failures.append(outcome.error(name(tasks[number][0])))
            else:
                store.put(outcome)
                done += 1
                progress(COMPUTING, done, len(everything))
    if failures:
        raise failures[0]
    return store.get(key for _, asked in everything for key in asked)


@dataclass(frozen=True)
class _Failure:
    """An error as text: not every exception can be sent from one process to another."""

    message: str
    trace: str
    """Empty for wrong input, which is no fault of the program."""

    @classmethod
    def of(cls, error: Exception) -> _Failure:
        text = " ".join(str(error).split())
        if isinstance(error, ValueError):
            return cls(text, "")
        return cls(f"{type(error).__name__}: {text}", traceback.format_exc())

    def error(self, name: str) -> Exception:
        message = self.message if name in self.message else f"{name}: {self.message}"
        if not self.trace:
            return ValueError(message)
        error = RuntimeError(message)
        error.add_note(self.trace)
        return error


Outcome = tuple[int, Sequence[Evaluation] | _Failure]


def _attempt(number: int, work: Work[Item], item: Item, lacking: tuple[Key, ...]) -> Outcome:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        return number, work(item, lacking)
    except Exception as error:
        return number, _Failure.of(error)
    finally:
        torch.set_num_threads(threads)


def _outcomes(calls: Iterator[Call], jobs: int, backend: Backend) -> Generator[Outcome, None, None]:
    """Yield what the calls return, each as soon as it is known, in any order."""
    if backend == "ray" and jobs > 0:
        yield from cluster.in_rounds(calls)
    elif jobs > 1:
        yield from _in_workers(calls, jobs)
    else:
        for function, arguments, _ in calls:
            yield function(*arguments)


def _in_workers(calls: Iterator[Call], jobs: int) -> Generator[Outcome, None, None]:
    with parallel_config(backend="loky", inner_max_num_threads=1):
        workers = Parallel(n_jobs=jobs, batch_size=1, pre_dispatch=jobs, return_as="generator_unordered")
        outcomes = workers(calls)
    try:
        yield from outcomes
    except BrokenProcessPool:
        message = f"one of {jobs} worker processes was killed, perhaps for want of memory; try fewer jobs"
        raise ValueError(message) from None
