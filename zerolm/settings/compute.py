"""A request for how networks are computed: its fields declare the settings of all verbs that run networks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from zerolm.settings.request import setting

DTYPES: Final = ("auto", "bfloat16", "float32")


@dataclass(frozen=True)
class ComputeRequest:
    """The device, the type in which matrices are multiplied, and bytes of memory that it may take."""

    device: str = setting(
        "text",
        "auto",
        "where networks run: cpu, cuda, cuda:1, mps; auto is CUDA where there is any, else the CPU",
        metavar="NAME",
    )
    dtype: str = setting(
        "text",
        "auto",
        "of products of matrices; all sums are float32 or better; auto is float32",
        choices=DTYPES,
    )
    memory: int | None = setting(
        "integer",
        None,
        "memory that it may take; what exceeds it lies on disk; else a quarter of what is free",
        metavar="BYTES",
        low=1 << 20,
        high=1 << 50,
    )
