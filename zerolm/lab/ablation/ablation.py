"""The numbers of an ablation: every effect with its interval, draws, and borrowed alphas."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from statistics import fmean, stdev
from typing import Any

from zerolm.calibration.alpha import GRID
from zerolm.io.brief import brief


@dataclass(frozen=True, slots=True)
class Effect:
    """Agreement of one score under one variant. None stands for what is not defined.

    ``alpha`` is None for scores without one; ``saw_labels`` where it is the best of the grid for this
    variant. ``change`` is the tau-b beyond that of the same score under the first variant, ``low`` and
    ``high`` its paired 95 % bootstrap interval (the alpha is not chosen anew in each resample).
    """

    variant: str
    score: str
    alpha: float | None
    saw_labels: bool
    tau: float | None
    tau_random_ties: float | None
    change: float | None = None
    low: float | None = None
    high: float | None = None

    @property
    def column(self) -> str:
        """The score with its alpha, the same for all variants."""
        if self.alpha is None:
            return self.score
        return f"{self.score} {'best' if self.saw_labels else format(self.alpha, 'g')}"

    @property
    def direction(self) -> int:
        """-1 or 1 where the interval of the change lies on one side of 0, else 0."""
        if self.low is None or self.high is None:
            return 0
        return int(self.low > 0) - int(self.high < 0)


@dataclass(frozen=True, slots=True)
class Draws:
    """``zerolm`` of drawn networks: tau-b with the result and with the closed form, one a seed.

    ``closed`` and ``closed_random_ties`` are the agreement of the closed form itself.
    """

    init: str
    alpha: float
    saw_labels: bool
    closed: float | None
    closed_random_ties: float | None
    taus: tuple[float | None, ...]
    with_closed: tuple[float | None, ...]

    @property
    def summary(self) -> dict[str, float | None]:
        """Return mean, deviation and ends of ``taus``, and the mean of ``with_closed`` as ``agreement``."""
        measures: dict[str, tuple[Callable[[Any], float], Sequence[float | None]]] = {
            "mean": (fmean, self.taus),
            "deviation": (stdev, self.taus),
            "low": (min, self.taus),
            "high": (max, self.taus),
            "agreement": (fmean, self.with_closed),
        }
        return {name: None if None in values else of(values) for name, (of, values) in measures.items()}


@dataclass(frozen=True, slots=True)
class BorrowedAlpha:
    """The best alpha of one benchmark used on another: the tau-b, and the loss to the other's own best."""

    alpha_of: str
    used_on: str
    alpha: float
    tau: float | None
    loss: float | None
    same_data: bool


@dataclass(frozen=True, slots=True, repr=False)
class AblationSection:
    """One benchmark in one view. ``curve`` is the tau-b of ``zerolm`` over the grid of alphas."""

    benchmark: str
    view: str | None
    metric: str
    higher_is_better: bool
    n: int
    matrices: tuple[Effect, ...]
    initialisations: tuple[Effect, ...]
    draws: tuple[Draws, ...]
    curve: tuple[float | None, ...]

    def __repr__(self) -> str:
        effects = len(self.matrices) + len(self.initialisations)
        return brief(self, self.title, f"{effects} effects on {self.n} networks by {self.metric}")

    @property
    def title(self) -> str:
        return self.benchmark + (f", view {self.view}" if self.view else "")

    @property
    def best_alpha(self) -> float:
        return best_of_grid(self.curve)


@dataclass(frozen=True, slots=True)
class Ablation:
    """Sections, one for each benchmark and view."""

    sections: tuple[AblationSection, ...]

    @property
    def transfers(self) -> tuple[tuple[BorrowedAlpha, ...], ...]:
        """Of each section in turn, its alpha used on each section."""
        return tuple(tuple(_transfer(a, b) for b in self.sections) for a in self.sections)

    def to_json(self) -> dict[str, Any]:
        """Return the numbers as plain JSON; ``report`` adds the sentences about them."""
        return {
            "grid": list(GRID),
            "sections": [
                {
                    **asdict(section),
                    "draws": [asdict(draws) | draws.summary for draws in section.draws],
                    "best_alpha": section.best_alpha,
                }
                for section in self.sections
            ],
            "transfer": [asdict(transfer) for row in self.transfers for transfer in row],
        }


def best_of_grid(taus: Sequence[float | None]) -> float:
    """The alpha with the best tau-b; of equals, as where one kind of matrix is alone, that nearest 0.5."""
    rounded = [-math.inf if tau is None else round(tau, 12) for tau in taus]
    return max(zip(rounded, GRID, strict=True), key=lambda pair: (pair[0], -abs(pair[1] - 0.5)))[1]


def _transfer(of: AblationSection, on: AblationSection) -> BorrowedAlpha:
    tau, best = (on.curve[GRID.index(alpha)] for alpha in (of.best_alpha, on.best_alpha))
    loss = None if tau is None or best is None else best - tau
    return BorrowedAlpha(of.title, on.title, of.best_alpha, tau, loss, of.benchmark == on.benchmark)
