"""Sub-networks of one parent with their results: without torch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from zerolm.training.result import Unlabelled


@dataclass(frozen=True)
class JudgedSlice:
    """A sub-network with its sizes and its results by name."""

    id: str
    shape: str
    body_params: int
    macs: int
    results: dict[str, float]


@dataclass(frozen=True, repr=False, eq=False)
class Slices:
    """Sub-networks of one parent with their results, and the results of the whole ``parent``.

    ``benchmark`` is the file that ``bench run``, ``proxies``, ``calibrate`` and ``search`` take;
    ``agreement`` is by result the tau-b of scores that saw none; ``seconds`` are those of one
    sub-network, None where all were in the cache. ``networks`` are the ``rows`` of the JSON; those with a
    result that is not finite are ``left_out``.
    """

    benchmark: dict[str, Any]
    parent: dict[str, float]
    agreement: dict[str, dict[str, float | None]]
    seconds: float | None
    left_out: list[Unlabelled]
    networks: list[JudgedSlice]
