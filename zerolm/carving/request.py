"""A request for a child: its sizes, and how units are chosen, sizes planned, and what is left repaired."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from zerolm.carving.importance.criteria import needs_tokens
from zerolm.carving.repair.rules import REPAIRS
from zerolm.settings import nearest, shown
from zerolm.text.defaults import LENGTH, SEQUENCES

SHAPES: Final = ("uniform", "per-layer")
PLANS: Final = ("weights", "measured", "heuristic")
MAX_TOKENS: Final = 1 << 26
"""Calibration tokens, of whose hidden states three are in memory."""


@dataclass(frozen=True)
class SizeRequest:
    """The sizes of a child: widths outright (shares of the parent's), or within budgets.

    ``keep`` maps ``heads``, ``ffn``, ``layers`` and ``hidden`` (the width of the residual stream) to shares;
    what is not in it is free within budgets, whole without. ``budgets`` maps ``max_`` of a cost to an
    integer. ``multiple_of`` holds for FFN widths and the stream's, ``tensor_parallel`` must divide KV groups
    and FFN widths; ``least_groups`` and ``least_ffn`` are floors. ``space`` names one of LoNAS, whose sizes
    and whose costs then count.
    """

    shape: str = "uniform"
    keep: Mapping[str, float] = field(default_factory=dict)
    budgets: Mapping[str, int] | None = None
    multiple_of: int | None = None
    tensor_parallel: int = 1
    least_groups: int = 1
    least_ffn: int = 1
    space: str | None = None


@dataclass(frozen=True)
class Methods:
    """How units are chosen (``criterion``), sizes planned (``plan``), and the rest repaired (``repair``).

    ``text`` is a file, ``random``, or None; ``sequences`` of ``length`` tokens are taken from it. ``seed``
    draws random tokens, and is that of the criterion ``random``.
    """

    text: str | None
    criterion: str
    repair: str
    plan: str
    sequences: int = SEQUENCES
    length: int = LENGTH
    seed: int = 0

    def check(self) -> None:
        """Raise ``ValueError`` for what is not known, or does not go together."""
        if not (self.sequences >= 1 and self.length >= 2 and self.sequences * self.length <= MAX_TOKENS):
            raise ValueError(
                f"{self.sequences} sequences of {self.length} tokens cannot be: at least one of two tokens, "
                f"at most {MAX_TOKENS} tokens in all"
            )
        if not 0 <= self.seed < 1 << 63:
            raise ValueError(f"the seed must lie in 0 to 2^63 - 1, not {self.seed}")
        if self.plan not in PLANS:
            raise ValueError(f"plan {shown(self.plan)} is not known{nearest(self.plan, PLANS)}")
        needing = {
            self.criterion: needs_tokens(self.criterion),
            f"repair {self.repair}": "tokens" in REPAIRS.entry(self.repair).needs,
            "plan measured": self.plan == "measured",
        }
        name = next((name for name, is_needed in needing.items() if is_needed), None)
        if self.text is None and name is not None:
            raise ValueError(f"{name} needs tokens: give --text FILE, or --text random, which needs no data")


def default_methods(text: str | None, *, fixed: bool) -> Methods:
    """Return the methods for a text; where all sizes are ``fixed`` nothing is measured to plan them."""
    if text is None:
        return Methods(None, "capacity", "none", "weights")
    return Methods(text, "output_energy", "least-squares", "weights" if fixed else "measured")
