"""Work on many networks: here, in worker processes or on a Ray cluster, one thread each."""

from __future__ import annotations

import logging
import os
import socket
import traceback
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures.process import BrokenProcessPool
from contextlib import closing, contextmanager
from dataclasses import dataclass
from importlib import import_module
from itertools import islice
from typing import Any, Literal, TypeVar, get_args

import torch
from joblib import Parallel, delayed, parallel_config

from zerolm.settings import check_known
from zerolm.settings.messages import called

Item = TypeVar("Item")
Result = TypeVar("Result")
Backend = Literal["loky", "ray"]
Call = tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]


def check_workers(jobs: int, backend: str) -> None:
    """Raise ``ValueError`` for a number of processes or a backend that cannot be."""
    check_known("backend", backend, get_args(Backend))
    if jobs < 1:
        raise ValueError(f"{called('jobs')} {jobs}: at least 1 is needed")
    if backend == "ray" and jobs > 1:
        raise ValueError(f"{called('jobs')} {jobs} are for loky; ray works on every CPU of its cluster")


def finished(
    items: Sequence[Item],
    work: Callable[[Item], Result],
    *,
    name: Callable[[Item], str] = str,
    jobs: int = 1,
    backend: Backend = "loky",
) -> Generator[tuple[int, Result], None, None]:
    """Yield the place of an item and what ``work`` makes of it, each as soon as it is known, in any order.

    ``loky`` works in ``jobs`` processes of this machine (one: in this process), ``ray`` on every CPU of a
    cluster, in rounds of one item for each; ``work`` and the items must be picklable then. Every item is
    worked on with one thread: no number of jobs changes its bits.

    The first error of an item is raised once the items in the making have been yielded; none starts after
    it. It names the item; a ``ValueError`` stays one, another becomes a ``RuntimeError`` with its traceback
    as a note.
    """
    failures: list[Exception] = []
    calls = (
        delayed(_attempt)(place, work, item) for place, item in enumerate(items) if not failures
    )  # drawn one by one, so that none starts after a failure
    with closing(_outcomes(calls, min(jobs, len(items)), backend)) as outcomes:
        for place, outcome in outcomes:
            if isinstance(outcome, _Failure):
                failures.append(outcome.error(name(items[place])))
            else:
                yield place, outcome
    if failures:
        raise failures[0]


@dataclass(frozen=True)
class _Failure:
    """An error as text: not every exception can be pickled."""

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


def _attempt(place: int, work: Callable[[Item], Result], item: Item) -> tuple[int, Result | _Failure]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        return place, work(item)
    except Exception as error:
        return place, _Failure.of(error)
    finally:
        torch.set_num_threads(threads)


def _outcomes(calls: Iterator[Call], jobs: int, backend: Backend) -> Generator[tuple[int, Any], None, None]:
    if backend == "ray" and jobs > 0:
        yield from _in_rounds(calls)
    elif jobs > 1:
        yield from _in_workers(calls, jobs)
    else:
        for function, arguments, _ in calls:
            yield function(*arguments)


def _in_workers(calls: Iterator[Call], jobs: int) -> Generator[tuple[int, Any], None, None]:
    with parallel_config(backend="loky", inner_max_num_threads=1):
        workers = Parallel(n_jobs=jobs, batch_size=1, pre_dispatch=jobs, return_as="generator_unordered")
        outcomes = workers(calls)
    try:
        yield from outcomes
    except BrokenProcessPool:
        message = f"one of {jobs} worker processes was killed, perhaps for want of memory; try fewer jobs"
        raise ValueError(message) from None


def _in_rounds(calls: Iterator[Any]) -> Generator[Any, None, None]:
    """Yield what joblib's delayed calls return, drawn and returned in rounds of one call for every CPU.

    In rounds because Ray's backend of joblib returns nothing before it returns everything. The cluster is the
    one that this process is connected to, else that of ``RAY_ADDRESS``, else the one that was started on
    this machine, else a new one on this machine that ends with the work. ``ValueError`` where none answers.
    """
    try:
        ray = import_module("ray")
        import_module("ray.util.joblib").register_ray()
    except ModuleNotFoundError:
        raise ModuleNotFoundError("a Ray cluster needs ray: pip install 'zerolm[ray]'") from None
    with _connected(ray):
        cpus = max(1, int(ray.cluster_resources().get("CPU", 1)))
        with parallel_config("ray", ray_remote_args={"num_cpus": 1}):  # else all might go to one node
            pool = Parallel(n_jobs=cpus, batch_size=1)
        try:
            with pool:
                while round_ := list(islice(calls, cpus)):
                    yield from pool(round_)
        except ray.exceptions.RayError as error:
            kind = type(error).__name__
            message = f"the Ray cluster lost a worker ({kind}), perhaps for want of memory; see its logs"
            raise ValueError(message) from None


@contextmanager
def _connected(ray: Any) -> Iterator[None]:
    """Within, there is a connection; what was started for it has ended afterwards."""
    if ray.is_initialized():
        yield
        return
    _check_reachable(os.environ.get("RAY_ADDRESS", ""))
    try:
        ray.init(include_dashboard=False, log_to_driver=False, logging_level=logging.ERROR)
        yield
    finally:
        ray.shutdown()


def _check_reachable(address: str) -> None:
    """Ray itself keeps trying for ten minutes."""
    host, _, port = address.rpartition(":")
    if not port.isdecimal() or "/" in host:  # "auto", "local", ray://...
        return
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=10.0).close()
    except (OSError, OverflowError) as error:
        raise ValueError(f"no Ray cluster answers at RAY_ADDRESS {address!r}: {error}") from None
