"""Proxies of networks as numbers, without torch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from zerolm.architecture import Floats


@dataclass(frozen=True)
class MeasuredNetwork:
    """A network by its name, and its ``choices`` where it is an architecture."""

    name: str
    choices: dict[str, Any] | None = None


@dataclass(frozen=True, eq=False)
class Measured:
    """The scores of n candidates on tokens of ``source``.

    ``columns`` are scores (n,), higher expected to be better; those of proxies that combine their parts
    depend on all the candidates. ``values`` are what each proxy computed of each candidate, empty where it
    could not. ``seconds`` are means a network of a column, as if its proxy ran alone. ``left_out`` says why
    a proxy has no column.
    """

    source: str
    candidates: Sequence[MeasuredNetwork]
    columns: dict[str, Floats]
    values: dict[str, list[tuple[float, ...]]]
    seconds: dict[str, float]
    left_out: dict[str, str]
