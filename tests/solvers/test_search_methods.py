"""Every method of the search against all architectures of small spaces, one by one."""

from typing import Any

import numpy as np
import pytest
from brute import pareto
from catalogue import SETTINGS, Catalogue, catalogue

from zerolm.architecture import Bools, Floats
from zerolm.costs import COSTS
from zerolm.scores import ClosedForm, make_score
from zerolm.solvers import SearchResult, search
from zerolm.solvers.problem import Budgets, at_least, near
from zerolm.spaces import make_space

SCORES: dict[str, tuple[str, dict[str, Any]]] = {
    "geo": ("geo", {}), "zerolm 1.1": ("zerolm", {"alpha": 1.1}), "zerolm -0.5": ("zerolm", {"alpha": -0.5}),
    "geo_saturating": ("geo_saturating", {}), "log_complexity": ("log_complexity", {}),
    "depth": ("depth", {}),
}  # fmt: skip
BUDGETS: dict[str, dict[str, float]] = {
    "none": {},
    "params": {"max_params": 0.4},
    "macs": {"max_macs": 0.6},
    "two above": {"max_params": 0.6, "max_kv_bytes": 0.5},
    "above and below": {"max_weight_bytes": 0.7, "min_macs": 0.3},
}
KV_BYTES, MACS, PARAMS = (COSTS.index(name) for name in ("kv_bytes", "macs", "params"))
TOP = {"exhaustive": 10, "exact": 10, "milp": 3}
ANSWERS = {
    "exhaustive": list(BUDGETS),
    "exact": ["none", "params", "macs"],
    "milp": ["two above", "above and below"],
}
CASES = [
    (space, score, method, budgets)
    for row, score in enumerate(SCORES)
    for column, space in enumerate(SETTINGS)
    for method, names in ANSWERS.items()
    for budgets in (names if score == "geo" else names[(row + column) % len(names) :][:1])
    if (score == "geo" and (method != "milp" or column % 2 == 0)) or (row + column) % 3 == 0
    if (score, method, budgets) != ("depth", "milp", "above and below")  # slow: thousands of ties
]
"""Of the first score all budgets in all spaces, those of milp in every other.

Of each other score one budget by each method in every third.
"""


def limits_of(listed: Catalogue, name: str) -> dict[str, int]:
    return listed.limits(BUDGETS[name])


class Truth:
    """What a search must find, read off the list of all architectures."""

    def __init__(self, listed: Catalogue, score: ClosedForm, limits: dict[str, int]) -> None:
        allowed: Bools = Budgets.of(limits).allow(listed.costs)
        self.kept = np.flatnonzero(allowed).tolist()
        self.listed = listed
        self.scores: Floats = listed.scores(score)[allowed]
        self.costs = listed.costs[allowed]
        self.best = float(self.scores.max())

    def count(self, threshold: float) -> int:
        return int(at_least(self.scores, threshold).sum())

    def cheapest(self, threshold: float, *columns: int) -> tuple[int, ...]:
        """The lexicographically least costs among those that score the threshold or more."""
        costs = self.costs[at_least(self.scores, threshold)]
        return min(tuple(row) for row in costs[:, list(columns)].tolist())

    def shapes(self) -> list[float]:
        """The best score of each shape, layers in any order, best first."""
        found: dict[int, float] = {}
        for i, score in zip(self.kept, self.scores.tolist(), strict=True):
            key = self.listed.shapes[i]
            found[key] = max(score, found.get(key, score))
        return sorted(found.values(), reverse=True)

    def front(self, column: int) -> list[tuple[int, float]]:
        return pareto(zip(self.costs[:, column].tolist(), self.scores.tolist(), strict=True))

    def peaks(self) -> dict[tuple[int, float], float]:
        found: dict[tuple[int, float], float] = {}
        for i, score in zip(self.kept, self.scores.tolist(), strict=True):
            key = int(self.listed.batch.depths[i]), float(self.listed.batch.widths[i])
            found[key] = max(score, found.get(key, score))
        return found


def check(result: SearchResult, truth: Truth, score: ClosedForm, limits: dict[str, int]) -> None:
    best = result.best[0]
    assert best.score == pytest.approx(truth.best, rel=1e-9)
    assert result.certificate.optimal
    assert result.certificate.gap == pytest.approx(0, abs=1e-9)
    preferred = truth.cheapest(truth.best, KV_BYTES, MACS, PARAMS)
    assert (best.costs["kv_bytes"], best.costs["macs"], best.costs["params"]) == preferred

    keys = [choice.architecture.shape_key() for choice in result.best]
    assert len(set(keys)) == len(keys)
    shapes = truth.shapes()
    assert [choice.score for choice in result.best] == pytest.approx(shapes[: len(keys)], rel=1e-9)
    assert len(keys) == min(TOP[result.certificate.method], len(shapes))

    for count, threshold in ((result.plateau.ties, truth.best), (result.plateau.near_ties, near(truth.best))):
        expected = truth.count(threshold)
        assert count.value == expected if count.exact else 0 < count.value <= expected
    assert (result.certificate.counts == "exact") == (
        result.plateau.ties.exact and result.plateau.near_ties.exact
    )

    assert at_least(result.pick.score, near(truth.best))
    picked = (result.pick.costs["kv_bytes"], result.pick.costs["macs"])
    assert picked == truth.cheapest(near(truth.best), KV_BYTES, MACS)

    for choice in (*result.best, result.pick, *result.front.points):
        assert choice.costs == truth.listed.model.of(choice.architecture)
        assert Budgets.of(limits).allow(np.array(list(choice.costs.values())))
        assert choice.score == pytest.approx(score.of(choice.architecture), rel=1e-9)

    points = [(choice.costs[result.front.cost], choice.score) for choice in result.front.points]
    full = truth.front(COSTS.index(result.front.cost))
    peaks = {(peak.depth, peak.width): peak.score for peak in result.plateau.landscape}
    assert peaks.keys() >= truth.peaks().keys()
    if result.front.complete:
        assert [cost for cost, _ in points] == [cost for cost, _ in full]
        assert [s for _, s in points] == pytest.approx([s for _, s in full], rel=1e-9)
        assert peaks == pytest.approx(truth.peaks(), rel=1e-9)
    else:
        for cost, value in points:
            assert value == pytest.approx(dict(full).get(cost, np.nan), rel=1e-9)
        assert points[-1][1] == pytest.approx(truth.best, rel=1e-9)
        assert all(at_least(peaks[key], value) for key, value in truth.peaks().items())


@pytest.mark.parametrize(("space", "score", "method", "budgets"), CASES)
def test_every_method_finds_what_a_list_shows(space: str, score: str, method: str, budgets: str) -> None:
    listed, (name, options) = catalogue(space), SCORES[score]
    made, limits = make_score(name, **options), limits_of(listed, budgets)
    assert isinstance(made, ClosedForm)
    result = search(
        listed.space, name, options=options, budgets=limits, method=method, compare=False, top=TOP[method]
    )
    assert result.certificate.method == method
    check(result, Truth(listed, made, limits), made, limits)


@pytest.mark.parametrize(
    ("space", "method", "top"),
    [
        *((space, method, 30) for space in SETTINGS for method in ("exhaustive", "exact")),
        *((space, "milp", 4) for space in ("gpt2", "blocks", "pit")),
    ],
)
def test_of_each_shape_the_best_is_shown(space: str, method: str, top: int) -> None:
    """A score that sees the embedding differs between architectures with the same layers."""
    listed, score = catalogue(space), make_score("params").terms
    shapes = Truth(listed, score, {}).shapes()
    for most in (1, top):
        result = search(listed.space, "params", method=method, compare=False, top=most)
        assert [choice.score for choice in result.best] == shapes[:most]


MEDIUM: list[tuple[str, dict[str, Any]]] = [
    ("gpt2", {"depth": [4, 6], "hidden": [128, 256], "ffn": range(512, 1025, 64), "d_embed": [128]}),
    ("llama", {"depth": [4], "hidden": [256], "ffn": range(640, 1153, 128), "per_layer": True}),
    ("flexibert", {"view": "trained"}),
]


@pytest.mark.parametrize("score", ["geo", "zerolm -0.5"])
@pytest.mark.parametrize(("name", "custom"), MEDIUM)
def test_proofs_and_enumeration_agree_beyond_lists(name: str, custom: dict[str, Any], score: str) -> None:
    """Up to some 10^14 architectures; the enumeration is checked by itself."""
    space, (kind, options) = make_space(name, **custom), SCORES[score]
    middle = search(space, "geo", compare=False, method="random").pick.costs
    one = {"max_params": middle["params"]}
    two = {"max_macs": middle["macs"], "min_body_params": middle["body_params"] * 9 // 10}
    for method, limits in (("exact", one), ("milp", two)):
        listed, proven = (
            search(space, kind, options=options, budgets=limits, method=how, compare=False, top=5)
            for how in ("exhaustive", method)
        )
        for choices in ((listed.best, proven.best), (listed.front.points, proven.front.points))[
            : 1 + (method == "exact")
        ]:
            scores = [[choice.score for choice in side] for side in choices]
            assert scores[1] == pytest.approx(scores[0], rel=1e-9)
        for ours, theirs in (
            (proven.plateau.ties, listed.plateau.ties),
            (proven.plateau.near_ties, listed.plateau.near_ties),
        ):
            assert ours.value == theirs.value if ours.exact else ours.value <= theirs.value
        for cost in ("kv_bytes", "macs"):
            assert proven.pick.costs[cost] == listed.pick.costs[cost]


@pytest.mark.parametrize("budgets", BUDGETS)
def test_auto_keeps_every_budget(budgets: str) -> None:
    listed, score = catalogue("llama"), make_score("geo").terms
    limits = limits_of(listed, budgets)
    check(search(listed.space, budgets=limits, compare=False), Truth(listed, score, limits), score, limits)


def test_the_exact_method_refuses_budgets_that_are_not_one() -> None:
    limits = limits_of(catalogue("llama per layer"), "above and below")
    with pytest.raises(ValueError, match=r"method 'exact' takes one upper budget, not .*; use milp or auto"):
        search(catalogue("llama per layer").space, budgets=limits, method="exact")


def test_a_budget_that_never_binds_changes_no_method() -> None:
    """The first of two upper budgets binds nowhere, the second does."""
    loose = search("gpt2", budgets={"max_params": 10**12, "max_macs": 40_000_000}, compare=False, top=1)
    tight = search("gpt2", budgets={"max_macs": 40_000_000}, compare=False, top=1)
    assert loose.certificate.method == tight.certificate.method == "exact"
    assert loose.best[0].score == tight.best[0].score
