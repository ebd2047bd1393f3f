"""Labels from training: a benchmark with sizes, noise and reasons; read without torch."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, ClassVar

from zerolm.groundtruth.truth import check
from zerolm.io.typed import STRICT, typed


@dataclass(frozen=True)
class SeedNoise:
    """The noise of seeds: the ceilings of tau-b and rho, and the mean tau-b of the orders of two seeds."""

    tau: float
    rho: float
    deviation: float
    networks: int
    runs: int
    tau_between_seeds: float | None

    __pydantic_config__: ClassVar = STRICT


@dataclass(frozen=True)
class LabelRow:
    """An architecture with its sizes, its loss, the losses of its ``repeats``, and the seconds of all."""

    id: str
    shape: str
    params: int
    body_params: int
    loss: float
    repeats: list[float]
    seconds: float

    __pydantic_config__: ClassVar = STRICT


@dataclass(frozen=True)
class FailedTraining:
    """An architecture whose training failed, and why."""

    id: str
    reason: str

    __pydantic_config__: ClassVar = STRICT


@dataclass(frozen=True)
class TrainedLabels:
    """Labels from training: ``benchmark`` is the file, ``rows`` are its architectures.

    ``noise`` is the ceiling by the seeds, None without repeats; ``agreement`` is tau-b of scores with the
    losses, None where it is not defined.
    """

    benchmark: dict[str, Any]
    noise: SeedNoise | None
    agreement: dict[str, float | None]
    left_out: list[FailedTraining]
    rows: list[LabelRow]

    __pydantic_config__: ClassVar = STRICT

    def to_json(self) -> dict[str, Any]:
        """Return everything as one object."""
        return asdict(self)

    @classmethod
    def from_json(cls, document: Any) -> TrainedLabels:
        """Return the labels that ``to_json`` told; ``ValueError`` names a field that is wrong."""
        labels = typed(cls, document)
        check(labels.benchmark)
        return labels
