"""Work in a process that may be killed."""

import os
import signal
import socket
import traceback
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

forks = pytest.mark.skipif(not hasattr(os, "fork"), reason="processes cannot be forked here")
"""Marks tests that fork processes."""


def forked(work: Callable[[], Any]) -> int:
    """Start it in a forked process, whose number is returned: that ends with status 1 where it fails."""
    process = os.fork()
    if process == 0:
        try:
            work()
            os._exit(0)
        except BaseException:
            traceback.print_exc()
            os._exit(1)
    return process


def in_another_process(work: Callable[[], Any]) -> int:
    """Run it in a forked process; the number of the signal that killed it, 0 where none did."""
    _, status = os.waitpid(forked(work), 0)
    assert os.WIFSIGNALED(status) or os.WEXITSTATUS(status) == 0
    return os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0


def in_two_processes(work: Callable[[], Any]) -> None:
    """Run it in two forked processes that are told of each other as ``accelerate launch`` does it."""
    from accelerate.state import AcceleratorState

    with socket.create_server(("127.0.0.1", 0)) as free:
        where = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free.getsockname()[1]), "WORLD_SIZE": "2"}

    def run(rank: int) -> None:
        os.environ.update(where, RANK=str(rank), LOCAL_RANK=str(rank))
        AcceleratorState._reset_state(reset_partial_state=True)
        work()

    both = [forked(partial(run, rank)) for rank in range(2)]
    assert [os.waitpid(process, 0)[1] for process in both] == [0, 0]


def die(*_: object) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def killed_at(moment: int) -> Callable[..., None]:
    """To be called at every step: kills the process at the step of this number."""
    steps = iter(range(moment + 1))

    def step(*_: object) -> None:
        if next(steps, None) == moment:
            die()

    return step


def contents(folder: Path) -> dict[str, bytes]:
    return {str(file.relative_to(folder)): file.read_bytes() for file in folder.rglob("*") if file.is_file()}
