"""The processes of a run: one, or those that ``accelerate launch`` started, of which the first writes."""

from __future__ import annotations

import json
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
    """Return in every process what the first one makes, a value of JSON; the others wait for it.

    What it raises there is raised there, and ``ValueError`` with the same message in the others.
    """
    state = processes()
    if state.num_processes == 1:
        return make()
    if not state.is_main_process:
        answer = json.loads(_broadcast(b"", state))
        if "error" in answer:
            raise ValueError(answer["error"])
        return answer["value"]  # type: ignore[no-any-return]
    try:
        value = make()
    except Exception as error:
        _broadcast(json.dumps({"error": str(error)}).encode(), state)
        raise
    _broadcast(json.dumps({"value": value}).encode(), state)
    return value


@contextmanager
def owned_by_first(folder: Callable[[], AbstractContextManager[Path]]) -> Iterator[Path]:
    """Yield in every process the folder that the first one opens, and closes."""
    with ExitStack() as stack:
        yield Path(of_first(lambda: str(stack.enter_context(folder()))))


def _broadcast(content: bytes, state: Any) -> bytes:
    """Return the bytes of the first process."""
    size = torch.tensor([len(content)], device=state.device)
    distributed.broadcast(size, 0)
    buffer = torch.zeros(int(size), dtype=torch.uint8, device=state.device)
    if content:
        buffer.copy_(torch.frombuffer(bytearray(content), dtype=torch.uint8))
    distributed.broadcast(buffer, 0)
    return bytes(buffer.cpu().numpy())
