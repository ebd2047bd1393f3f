"""The verdicts on a folder, with what it holds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

Outcome = Literal["opens", "refuses", "unknown"]
"""``opens``: whole; ``refuses``: it stops, or would leave weights out; ``unknown``."""
OPENS: Final = "opens"
REFUSES: Final = "refuses"
UNKNOWN: Final = "unknown"


@dataclass(frozen=True)
class RuntimeVerdict:
    """The outcome of a folder in a runtime, ``known`` by having it ``opened`` just now, or by ``rules``."""

    runtime: str
    verdict: Outcome
    known: Literal["opened", "rules"]
    reasons: tuple[str, ...]

    @classmethod
    def ruled(cls, runtime: str, verdict: Outcome, *reasons: str) -> RuntimeVerdict:
        """Return a verdict by rules, each reason once."""
        return cls(runtime, verdict, "rules", tuple(dict.fromkeys(reasons)))


@dataclass(frozen=True, repr=False, eq=False)
class Diagnosis:
    """Which runtimes open a checkpoint: a verdict for each, facts about the folder, and advice."""

    folder: str
    runtimes: list[RuntimeVerdict]
    model_type: str | None
    architectures: list[str]
    tensors: int
    weights: int
    bytes: int
    dtypes: dict[str, int]
    tied: bool | None
    tensor_parallel: list[int] | None
    pickles: list[str]
    gguf: list[str]
    advice: list[str]
