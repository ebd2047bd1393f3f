"""The processes of a run: one, or those that ``accelerate launch`` started, of which the first writes."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any, Final, TypeVar

import torch
from accelerate import PartialState
from torch import distributed

from zerolm.networks.compute import compute, device_of
from zerolm.settings.compute import RunningRequest
from zerolm.training.request import Execution

Value = TypeVar("Value")
WAIT: Final = timedelta(days=7)
"""How long the others wait for the first, which measures and writes alone."""


def processes(device: str = "auto") -> PartialState:
    """Return which process this is of how many; on a CPU they speak to each other by gloo."""
    return PartialState(cpu=device_of(device).type == "cpu", timeout=WAIT)


def device_for(execution: Execution) -> torch.device:
    """Return the device that this process trains on; of several processes each has its own.

    ``ValueError`` for a device that is not here, does not multiply so, or is one for several processes.
    """
    dtype = "bfloat16" if execution.bfloat16 else "float32"
    device = compute(RunningRequest(execution.compute.device, dtype)).device
    state = processes(execution.compute.device)
    if state.num_processes == 1:
        return torch.device("cuda", device.index or 0) if device.type == "cuda" else device
    if device.index is not None:
        raise ValueError(
            f"{device} is one device, and {state.num_processes} processes train: give --device {device.type}"
        )
    return state.device


def check_whole() -> None:
    """Raise ``ValueError`` where accelerate would divide one network among devices: it is measured whole."""
    for kind in ("FSDP", "DEEPSPEED"):
        if os.environ.get(f"ACCELERATE_USE_{kind}", "").lower() in ("1", "true"):
            raise ValueError(
                f"every device trains a whole copy, so {kind} is not possible: switch it off in accelerate's "
                "configuration; --lora, --checkpointing and --accumulate save memory"
            )


def of_first(make: Callable[[], Value]) -> Value:
    """Return in every process what the first one makes; the others wait for it, and unpickle it.

    What it raises there is raised there, and ``ValueError`` with the same message in the others.
    """
    state = processes()
    if state.num_processes == 1:
        return make()
    answer: list[Any] = [None, ""]
    failure: Exception | None = None
    if state.is_main_process:
        try:
            answer[0] = make()
        except Exception as error:
            failure, answer[1] = error, str(error) or type(error).__name__
    distributed.broadcast_object_list(answer, 0, device=state.device)
    if answer[1]:
        raise failure or ValueError(answer[1])
    return answer[0]  # type: ignore[no-any-return]


@contextmanager
def owned_by_first(folder: Callable[[], AbstractContextManager[Path]]) -> Iterator[Path]:
    """Yield in every process the folder that the first one opens, and closes."""
    with ExitStack() as stack:
        yield of_first(lambda: stack.enter_context(folder()))
