"""The verdicts on a folder, with what it holds."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final, Literal

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
