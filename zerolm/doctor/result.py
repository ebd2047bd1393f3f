"""The verdicts on a folder, with what it holds; read back without any of the runtimes."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, ClassVar, Final, Literal

from zerolm.io.typed import STRICT, typed

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

    __pydantic_config__: ClassVar = STRICT

    @classmethod
    def ruled(cls, runtime: str, verdict: Outcome, *reasons: str) -> RuntimeVerdict:
        """Return a verdict by rules, each reason once."""
        return cls(runtime, verdict, "rules", tuple(dict.fromkeys(reasons)))


@dataclass(frozen=True)
class Diagnosis:
    """A verdict for each runtime, what the folder holds, and lines of advice."""

    folder: Path
    verdicts: tuple[RuntimeVerdict, ...]
    facts: dict[str, Any]
    advice: tuple[str, ...]

    @property
    def really_opened(self) -> list[str]:
        """Return the runtimes that opened the folder just now."""
        return [one.runtime for one in self.verdicts if (one.verdict, one.known) == (OPENS, "opened")]

    @property
    def opens_by_rules(self) -> list[str]:
        """Return the runtimes that open it by their rules, and were not tried."""
        return [one.runtime for one in self.verdicts if (one.verdict, one.known) == (OPENS, "rules")]

    def to_json(self) -> dict[str, Any]:
        """Return everything as one object."""
        runtimes = [asdict(one) | {"reasons": list(one.reasons)} for one in self.verdicts]
        return {"folder": str(self.folder), "runtimes": runtimes, **self.facts, "advice": list(self.advice)}

    @classmethod
    def from_json(cls, document: Any) -> Diagnosis:
        """Return the diagnosis that ``to_json`` told; ``ValueError`` names a field that is wrong."""
        written = typed(_WrittenDiagnosis, document)
        facts = {field.name: getattr(written, field.name) for field in fields(_WrittenFacts)}
        return cls(Path(written.folder), written.runtimes, facts, written.advice)


@dataclass(frozen=True)
class _WrittenFacts:
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

    __pydantic_config__: ClassVar = STRICT


@dataclass(frozen=True)
class _WrittenDiagnosis(_WrittenFacts):
    folder: str
    runtimes: tuple[RuntimeVerdict, ...]
    advice: tuple[str, ...]
