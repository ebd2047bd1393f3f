"""Architectures that were trained the same way, as a result: without torch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class SeedNoise:
    """The most that a score could reach, by repeated runs: ``tau``, ``rho``; the ``deviation`` of a loss.

    ``tau_between_seeds`` is that of the orders of any two. ``bench train --help`` imports this without numpy.
    """

    tau: float
    rho: float
    deviation: float
    networks: int
    runs: int
    tau_between_seeds: float | None


@dataclass(frozen=True)
class Unlabelled:
    """An architecture without a result, and why."""

    id: str
    reason: str


@dataclass(frozen=True)
class LabelledArchitecture:
    """An architecture with its sizes, its loss on text held out, those from other seeds, and its seconds."""

    id: str
    shape: str
    params: int
    body_params: int
    loss: float
    repeats: list[float]
    seconds: float


@dataclass(frozen=True, repr=False, eq=False)
class TrainedLabels:
    """Architectures that were trained the same way, with the loss of each on text held out.

    ``benchmark`` is the file that ``bench run``, ``calibrate`` and ``search`` take; ``noise`` is None where
    no seed was repeated; ``agreement`` is the tau-b of scores with the losses. ``architectures`` are the
    ``rows`` of the JSON; those whose training failed are ``left_out``.
    """

    benchmark: dict[str, Any]
    noise: SeedNoise | None
    agreement: dict[str, float | None]
    left_out: list[Unlabelled]
    architectures: list[LabelledArchitecture]
