"""Work on a Ray cluster, through joblib."""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from importlib import import_module
from itertools import islice
from typing import Any

from joblib import Parallel, parallel_config


def in_rounds(calls: Iterator[Any]) -> Generator[Any, None, None]:
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
