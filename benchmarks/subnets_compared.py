"""Scores beside what sub-networks reached, for the page of ``subnets.py``."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Final

import numpy as np
from subnets_runs import SETS, column

from zerolm.architecture import Floats
from zerolm.comparison.bench import bench
from zerolm.comparison.results import ScoreRow
from zerolm.spaces import make_space
from zerolm.statistics import Bootstrap, gain, interval, within_budget

DRAWS: Final = 1000
WITHIN_DRAWS: Final = 200
CLEAN: Final = ("perplexity", "kl", "accuracy")
AGAIN: Final = ("bits_a_byte",)
"""Results that order as another does."""
MEASURED, PRICES = "predicted loss, measured", "predicted loss, prices"


@dataclass(frozen=True)
class Estimate:
    """A value with its 95 % bootstrap interval."""

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.value:.3f} {self.low:.2f}..{self.high:.2f}"

    def signed(self) -> str:
        return f"{self.value:+.3f} {self.low:+.3f}..{self.high:+.3f}"


@dataclass(frozen=True, eq=False)
class Compared:
    """Every score beside one ``metric`` of the sub-networks of a model, on the first judging set.

    ``rows`` and ``values`` (n,) are by the scores' labels; of ``foretold`` the weights were seen. ``result``
    (n,) is signed so that higher is better. ``noise`` is the agreement of two judging sets, tau-b and rho.
    """

    model: str
    criterion: str
    metric: str
    rows: dict[str, ScoreRow]
    values: dict[str, Floats]
    foretold: frozenset[str]
    result: Floats
    noise: tuple[float, float] | None

    @property
    def name(self) -> str:
        return f"{self.model} | {self.criterion} | {self.metric}"

    @property
    def is_clean(self) -> bool:
        return self.metric in CLEAN

    @cached_property
    def bootstrap(self) -> Bootstrap:
        return Bootstrap(self.result, DRAWS)

    def beyond(self, label: str, other: str) -> Estimate:
        """Return the tau-b of one score minus that of another, paired."""
        return Estimate(*gain(*(self.bootstrap.resample(self.values[each]) for each in (label, other))))

    def best_other(self) -> str:
        """Return the best score, by the results themselves, of all but a plan's predictions."""
        return max((one for one in self.rows if not one.startswith("predicted")), key=self.tau)

    def tau(self, label: str) -> float:
        tau = self.rows[label].tau
        return -2.0 if tau is None else tau

    @cached_property
    def within(self) -> dict[str, Estimate]:
        """The tau-b of each score within tenths of the sub-networks by body parameters."""
        return {label: within(x, self.result, self.values["body_params"]) for label, x in self.values.items()}


def within(score: Floats, result: Floats, sizes: Floats) -> Estimate:
    """Return tau-b within tenths of the sub-networks by size."""
    draws, generator = [], np.random.default_rng(0)
    for _ in range(WITHIN_DRAWS):
        few = generator.integers(len(result), size=len(result))
        draws.append(within_budget(score[few], result[few], sizes[few]))
    return Estimate(within_budget(score, result, sizes), *interval(np.array(draws)))


def compared(model: str, criterion: str, run: Mapping[str, Any]) -> list[Compared]:
    """Return the comparison of each result of a run."""
    document, foretold = run["sets"]["first"], _columns(run["foretold"])
    every = []
    for metric in document["parent"]:
        if metric in AGAIN:
            continue
        rows, values = _agreed(document, metric, foretold)
        result = column(document, metric)
        noise = None
        if len(run["sets"]) == len(SETS):
            observed = Bootstrap(result, 1).resample(column(run["sets"]["second"], metric)).observed
            noise = (observed.tau, observed.rho)
        every.append(Compared(model, criterion, metric, rows, values, frozenset(foretold), result, noise))
    return every


def networks_of(document: Mapping[str, Any]) -> list[Any]:
    """Return the sub-networks of a document."""
    benchmark = document["benchmark"]
    space = make_space(benchmark["space"], **benchmark["settings"])
    return [space.read(entry["architecture"]) for entry in benchmark["architectures"]]


def _agreed(
    document: Mapping[str, Any], metric: str, more: Mapping[str, Floats]
) -> tuple[dict[str, ScoreRow], dict[str, Floats]]:
    """Return how every score agrees with a result, and its values; scores that are one for all are out."""
    with tempfile.TemporaryDirectory() as scratch:
        file = Path(scratch) / "labels.json"
        file.write_text(json.dumps(document["benchmark"]))
        section = bench([str(file)], metric=metric, more=lambda *_: more, draws=DRAWS).sections[0]
    rows = {row.label: row for row in section.rows if row.tau is not None and not row.saw_labels}
    return rows, {label: np.asarray(section.scores[label], float) for label in rows}


def _columns(foretold: Mapping[str, list[float]]) -> dict[str, Floats]:
    return {name: np.array(values) for name, values in foretold.items() if not name.startswith("seconds")}
