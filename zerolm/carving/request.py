"""A request for a child: its sizes, how units are chosen, planned and repaired, and where it is written."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

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
    integer, or to ``"0.8x"`` of the parent's. ``multiple_of`` holds for FFN widths and the stream's,
    ``tensor_parallel`` must divide KV groups and FFN widths; ``least_groups`` and ``least_ffn`` are floors.
    ``space`` names one of ``SIZE_SPACES``, whose sizes and whose costs then count.
    """

    shape: str = "uniform"
    keep: Mapping[str, float] = field(default_factory=dict)
    budgets: Mapping[str, Any] | None = None
    multiple_of: int | None = None
    tensor_parallel: int = 1
    least_groups: int = 1
    least_ffn: int = 1
    space: str | None = None

    @property
    def is_fixed(self) -> bool:
        """Return whether shares say all sizes, so that nothing has to be planned."""
        return not self.budgets and "layers" not in self.keep


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


def methods_of(
    size: SizeRequest,
    text: str | Path | None = None,
    *,
    criterion: str | None = None,
    repair: str | None = None,
    plan: str | None = None,
    **tokens: int,
) -> Methods:
    """Return the methods for a text, those that are not named by default; ``tokens`` are the other fields.

    Where shares say all sizes, nothing is measured to plan them.
    """
    if text is None:
        usual = Methods(None, "capacity", "none", "weights")
    else:
        plans = "weights" if size.is_fixed else "measured"
        usual = Methods(str(text), "output_energy", "least-squares", plans)
    named = {"criterion": criterion, "repair": repair, "plan": plan}
    changes: dict[str, Any] = {name: value for name, value in named.items() if value is not None}
    return replace(usual, **changes | tokens)


@dataclass(frozen=True)
class Destination:
    """Where a child is written and in which format, a name of ``FORMATS``; ``folder`` None: nowhere.

    ``form`` None is the usual one: of a healed child that of the child, of a recipe's its own, else ``hf``.
    ``finish(folder, result)`` writes the files of ``REPORT`` beside a child that was verified.
    """

    folder: Path | None = None
    form: str | None = None
    force: bool = False
    finish: Callable[[Path, Any], None] | None = None

    @property
    def place(self) -> Path:
        """Return the folder; ``ValueError`` where none is named."""
        if self.folder is None:
            raise ValueError("a folder has to be named for the child")
        return self.folder
