"""Work in a process that may be killed."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any


def in_another_process(work: Callable[[], Any]) -> int:
    """Run it in a forked process; the number of the signal that killed it, 0 where none did."""
    process = os.fork()
    if process == 0:
        try:
            work()
            os._exit(0)
        except BaseException:
            os._exit(1)
    _, status = os.waitpid(process, 0)
    assert os.WIFSIGNALED(status) or os.WEXITSTATUS(status) == 0
    return os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0


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
