"""Requests for how networks are computed, whose fields declare the settings of verbs that run networks."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Final

from zerolm.settings.messages import shown
from zerolm.settings.request import setting

DTYPES: Final = ("auto", "bfloat16", "float32")


def dtype(auto: str = "float32") -> Any:
    """Return a field that declares the type of products; ``auto`` says what that means."""
    help_ = f"type of matrix products; sums are at least float32; auto is {auto}"
    return setting("text", "auto", help_, choices=DTYPES)


@dataclass(frozen=True)
class RunningRequest:
    """The device, and the type in which matrices are multiplied."""

    device: str = setting(
        "text",
        "auto",
        "device: cpu, cuda, cuda:1, mps, or auto (CUDA if available, else the CPU)",
        metavar="NAME",
    )
    dtype: str = dtype()

    def check(self) -> None:
        """Raise ``ValueError`` for a device that no machine has, before any library is asked for it."""
        if re.fullmatch(r"[a-z]+(:[0-9]+)?", self.device) is None:
            raise ValueError(
                f"device {shown(self.device)} is not known; there are auto, cpu, cuda, cuda:1, mps"
            )


USUALLY: Final = RunningRequest()


@dataclass(frozen=True)
class TrainedOn(RunningRequest):
    """The same of networks that are trained."""

    dtype: str = dtype("bfloat16 where the device is fast in it")


@dataclass(frozen=True)
class ComputeRequest(RunningRequest):
    """The device, the type in which matrices are multiplied, and bytes of memory that it may take."""

    dtype: str = dtype("bfloat16 where the device is fast in it and the model wide, else float32")

    memory: int | None = setting(
        "integer",
        None,
        "RAM limit; the rest spills to disk (default: a quarter of free RAM)",
        metavar="BYTES",
        low=1 << 20,
        high=1 << 50,
    )
