"""Work in a process that may be killed."""

from __future__ import annotations

import os
from collections.abc import Callable
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
