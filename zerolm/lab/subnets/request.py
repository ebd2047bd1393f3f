"""A request for sub-networks of one parent, whose fields declare the settings of ``zerolm lab slice``, and
the sub-networks with their results."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from zerolm.repairing.rules import REPAIRS
from zerolm.settings.budgets import budgets, limits
from zerolm.settings.request import part, setting
from zerolm.text import defaults
from zerolm.training.result import Unlabelled

COUNT: Final = 1000
Limits: Any = budgets(("max", "min"), "amount", costs=("macs", "params"), shares=", or 0.8x of the parent's")


@dataclass(frozen=True)
class DrawRequest:
    """The space of sub-networks, the number of samples, and their budgets."""

    space: str = setting(
        "text",
        "heads-ffn",
        "search space of layer sizes: heads-ffn (any parent), lonas-bert, lonas-llama, or a plug-in's",
        metavar="NAME",
    )
    count: int = setting("integer", COUNT, "number of distinct sub-networks", low=2, high=1 << 20)
    limits: Any = part(Limits)
    seed: int = setting("integer", 0, "sampling seed", low=0, high=2**63 - 1)

    @property
    def budgets(self) -> dict[str, Any]:
        """Return the ``max_`` and ``min_`` budgets of costs: an integer, or ``"0.8x"`` of the parent's."""
        return limits(self.limits)


@dataclass(frozen=True)
class CutRequest:
    """How sub-networks are cut: the criterion for units, and the repair of output matrices."""

    criterion: str = setting(
        "text", "prefix",
            "pruning criterion: prefix (the first units, as LoNAS), output_energy, surgeon, or another of "
            "`carve`", metavar="NAME",
    )  # fmt: skip
    repair: str = setting("text", "none", "refit output matrices: none, least-squares", choices=REPAIRS)
    calibration: str | None = setting(
        "path",
        None,
        "calibration text for criterion and repair, different from the evaluation text",
        metavar="FILE|random",
    )


@dataclass(frozen=True)
class JudgingRequest:
    """The text and the tables that sub-networks are evaluated on; at least one."""

    text: str | None = setting(
        "path", None,
            "evaluation text: perplexity, bits per byte and KL for decoders, 1 - cosine for encoders",
        metavar="FILE",
    )  # fmt: skip
    text_field: str | None = defaults.text_field()
    data: str | None = setting(
        "path", None, "table with text and label, for the accuracy of a classifier", metavar="ROWS.csv"
    )
    attacked: str | None = setting(
        "path", None,
            "attacked texts in TextAttack's format, for accuracy under attack, success rate and drop",
        metavar="ATTACKED.csv",
    )  # fmt: skip
    sequences: int = defaults.sequences()
    length: int = defaults.length()

    def check(self) -> None:
        """Raise ``ValueError`` without evaluation data, or for data that cannot evaluate."""
        if self.text is None and self.data is None and self.attacked is None:
            raise ValueError("nothing judges the sub-networks: give --text, --data or --attacked")
        if self.text == defaults.RANDOM:
            raise ValueError("random tokens cannot rank networks: give a text")


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
