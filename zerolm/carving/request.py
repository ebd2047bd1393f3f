"""How units of a child are chosen, planned and repaired, and where the child is written.

The fields of ``MethodRequest`` declare settings of ``zerolm carve``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, Literal, get_args

from zerolm.planning.size_request import MEAN, ExpertsRequest, SizeRequest
from zerolm.repairing.rules import REPAIRS
from zerolm.settings import check_known
from zerolm.settings.domains import domains_of
from zerolm.settings.request import setting
from zerolm.text import defaults

PRICES: Final = "prices"
"""The plan by the estimated losses of single cuts."""
Plan = Literal["weights", "prices", "heuristic"]
PLANS: Final[tuple[str, ...]] = get_args(Plan)
SUMMED: Final = "hope_moments"
"""The criterion of experts whose losses are squared norms summed over tokens, like the scores of neurons."""
RANDOM: Final = defaults.RANDOM
GENERATED: Final = defaults.GENERATED
MAX_TOKENS: Final = 1 << 26
"""Largest number of calibration tokens; three hidden states of each are in memory."""


@dataclass(frozen=True)
class MethodRequest:
    """How units are chosen, sizes planned, and the rest repaired; None: the default for the text."""

    criterion: str | None = setting(
        "text",
        None,
        "pruning criterion. By calibration tokens: surgeon (default), amp, output_energy, compact, "
        "two_ssp, minitron, flap. By weights alone, for research: capacity, max_weight, magnitude, random, "
        "prefix. For experts, by tokens: hope_moments (default with --text), reap, frequency; by weights: "
        "aimer (default without --text), random",
        group="What is pruned",
        metavar="NAME",
    )
    plan: str | None = setting(
        "text",
        None,
        "how sizes are planned: prices (losses estimated by one backward pass; default), weights (by the "
        "criterion alone), or heuristic (with --space)",
        choices=PLANS,
    )
    text: str | None = setting(
        "texts",
        None,
        "calibration text, like the text that the child will serve; generated (default: sampled from the "
        "parent) or random tokens; for experts also several domains: code=FILE,chat=FOLDER",
        group="Text",
        metavar="FILE|generated|random",
    )
    text_field: str | None = defaults.text_field()
    sequences: int | None = setting(
        "integer",
        None,
        "sequences taken from the text; default: enough for the widest output matrix",
        low=defaults.LEAST_SEQUENCES,
        high=1 << 26,
    )
    length: int = defaults.length()
    repair: str | None = setting(
        "text",
        None,
        "refit output matrices: none, or least-squares (default; for experts only with a real text)",
        choices=REPAIRS,
    )
    seed: int = setting(
        "integer", 0, "seed of generated tokens, random tokens and --criterion random", low=0, high=2**63 - 1
    )
    for_: float | None = setting(
        "duration",
        None,
        "target duration (90s, 30m, 1.5h): takes fewer sequences to meet it",
        name="for_",
        low=1,
        high=10**8,
    )


@dataclass(frozen=True)
class Methods(MethodRequest):
    """How units are chosen (``criterion``), sizes planned (``plan``), and the rest repaired (``repair``).

    ``text`` is a file, ``generated`` (sampled from the parent), ``random``, or None: by weights alone.
    ``sequences`` of ``length`` tokens are taken from it. ``seed`` is that of generated and random tokens and
    of the criterion ``random``. ``experts`` is the criterion of experts, empty where all are kept.
    """

    criterion: str = "capacity"
    plan: str = "weights"
    repair: str = "none"
    experts: str = ""

    @property
    def count(self) -> int:
        """Return the number of sequences: the given one, or the default."""
        return self.sequences or defaults.SEQUENCES

    def check(self) -> None:
        """Raise ``ValueError`` for unknown methods, or for incompatible ones."""
        from zerolm.units.importance.criteria import needs_tokens

        if not (
            self.count >= defaults.LEAST_SEQUENCES
            and self.length >= 2
            and self.count * self.length <= MAX_TOKENS
        ):
            least = defaults.LEAST_SEQUENCES
            raise ValueError(
                f"{self.count} sequences of {self.length} tokens cannot be: at least {least} of two tokens "
                f"are needed (two are held out), and at most {MAX_TOKENS} tokens"
            )
        if domains_of(self.text) and not self.experts:
            raise ValueError(
                "texts of several domains rank experts: give --keep-experts N, or one --text FILE"
            )
        if not 0 <= self.seed < 1 << 63:
            raise ValueError(f"the seed must lie in 0 to 2^63 - 1, not {self.seed}")
        if self.for_ is not None and self.text is None:
            raise ValueError(
                f"--for chooses how much of a text is read, and {self.criterion} reads none: give --text FILE"
            )
        check_known("plan", self.plan, PLANS)
        check_known("repair", self.repair, REPAIRS)
        of_experts = self.criterion == self.experts  # their criteria are checked with the experts
        needing = {
            self.criterion: not of_experts and needs_tokens(self.criterion),
            f"repair {self.repair}": self.repair != "none",
            f"plan {self.plan}": self.plan == PRICES,
        }
        name = next((name for name, is_needed in needing.items() if is_needed), None)
        if self.text is None and name is not None:
            raise ValueError(
                f"{name} needs tokens: give --text FILE, or --text {GENERATED}, which needs no data"
            )


def usual_criterion_of_experts(experts: ExpertsRequest, text: str | None) -> str:
    """Return the default criterion: by pairs, which lost least in measurements, and singly across domains."""
    if text is None:
        return "aimer"
    return "reap" if text == RANDOM or experts.domains != MEAN else SUMMED


def methods_of(size: SizeRequest, request: MethodRequest) -> Methods:
    """Return the methods of a request; open ones get defaults that depend on its text.

    Without a text the parent generates one, unless a criterion by weights alone is named. Where shares
    determine all sizes, nothing is measured to plan them.
    """
    if size.experts.are_cut:
        return _methods_with_experts(size, request)
    usual: dict[str, Any] = {"criterion": "capacity", "plan": "weights", "repair": "none"}
    if request.text is not None or (size.chooses and not _is_by_weights(request)):
        plan = "weights" if size.is_fixed else "prices"
        usual = {"criterion": "surgeon", "plan": plan, "repair": "least-squares", "text": GENERATED}
    chosen = {name: value for name, value in vars(request).items() if value is not None}
    return Methods(**usual | chosen)


def _methods_with_experts(size: SizeRequest, request: MethodRequest) -> Methods:
    """Return the methods of a request for fewer experts: its criterion is for them, or for other units."""
    from zerolm.units.importance.criteria import CRITERIA

    rest, named = size.without_experts, request.criterion
    if rest.chooses:
        methods = methods_of(rest, replace(request, criterion=named if named in CRITERIA else None))
        of_experts = named if named == RANDOM or named not in CRITERIA else None
        return replace(methods, experts=of_experts or usual_criterion_of_experts(size.experts, methods.text))
    usual: dict[str, Any] = {
        "criterion": usual_criterion_of_experts(size.experts, request.text),
        "repair": "none" if request.text in (None, RANDOM) else "least-squares",
    }
    methods = Methods(**usual | {name: value for name, value in vars(request).items() if value is not None})
    return replace(methods, experts=methods.criterion)


def _is_by_weights(request: MethodRequest) -> bool:
    """Return whether a criterion by weights alone is named, and nothing else needs tokens."""
    from zerolm.units.importance.criteria import needs_tokens

    if request.criterion is None or needs_tokens(request.criterion) or request.plan == PRICES:
        return False
    return request.repair in (None, "none")


@dataclass(frozen=True)
class Destination:
    """The folder and the format (a name of ``FORMATS``) of a child; without a ``folder`` none is written.

    ``form`` None is the default: for a healed child that of the child, for a recipe its own, else ``hf``.
    ``finish(folder, result)`` writes the files of ``REPORT`` next to a verified child.
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
