"""Searches within a latency beside all architectures, by tables of choices and by every other method."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from typing import Any, Self

import numpy as np
import pytest
from brute import pareto
from hypothesis import given, settings
from hypothesis import strategies as st
from portion import portion

from zerolm.architecture import Architecture, Floats, Ints
from zerolm.costs import COSTS, LATENCY, CostModel, Latencies, TimedCosts
from zerolm.lab.spaces.elastic import Elastic
from zerolm.scores import ChoiceTable, WholeScore, make_score
from zerolm.solvers import Infeasible, SearchResult, search
from zerolm.solvers.evolution import Evolution
from zerolm.solvers.problem import Budgets, at_least, near
from zerolm.spaces import make_space

SIZES: dict[str, Any] = {
    "depth": 3, "hidden": 16, "heads": 2, "embedding": 6, "vocab": 40, "positions": 20, "step": 4
}  # fmt: skip


@dataclass(frozen=True, eq=False, repr=False)
class Timed:
    """A space of unevenly grown widths, its costs with latencies, and all of its architectures."""

    space: Elastic
    costs: TimedCosts
    architectures: list[Architecture]
    listed: Ints

    @classmethod
    @lru_cache(maxsize=32)
    def drawn(cls, seed: int, largest: int, depth: int = 3) -> Self:
        """Return latencies of 1 to ``largest``: of a small one many paths tie, of a large one none do."""
        draw = np.random.default_rng(seed)
        kinds = make_space("elastic", **SIZES).kinds  # type: ignore[attr-defined]
        widths = (4 * draw.integers(1, 7, depth * len(kinds))).tolist()
        space = make_space("elastic", **{**SIZES, "depth": depth, "widths": widths})
        assert isinstance(space, Elastic)
        places = [block.candidates for backbone in space.backbones() for block in backbone.blocks]
        layers = sorted({layer for candidates in places for layer in candidates.layers})
        table = dict(zip(layers, draw.integers(1, largest + 1, len(layers)).tolist(), strict=True))
        latencies = Latencies(table, int(draw.integers(1, largest + 1)))
        costs = TimedCosts(latencies=latencies).of_task(space.task)
        ways = [[way for ways in candidates.alternatives for way in ways] for candidates in places]
        every = [space.read({"layers": list(path)}) for path in product(*ways)]
        listed = np.array([list(costs.of(one).values()) for one in every], np.int64)
        return cls(space, costs, every, listed)

    def limits(self, shares: dict[str, float]) -> dict[str, int]:
        """Return budgets at quantiles of the costs of all architectures."""
        limits = {
            name: int(np.quantile(self.listed[:, self.costs.names.index(name[4:])], share, method="nearest"))
            for name, share in shares.items()
        }
        return {name: min(limit, limits.get(f"max{name[3:]}", limit)) for name, limit in limits.items()}

    def within(self, limits: dict[str, int]) -> list[int]:
        """Return the numbers of the architectures that keep limits."""
        allowed = Budgets.of(limits, self.costs.names).allow(self.listed)
        return [int(i) for i in np.flatnonzero(allowed)]


SHARES = st.floats(0.02, 1.0)
LIMITS = st.dictionaries(
    st.sampled_from([f"{side}_{cost}" for side in ("max", "min") for cost in (LATENCY, "params", "macs")]),
    SHARES,
    min_size=1,
).map(lambda shares: {n: share if n[:3] == "max" else share / 4 for n, share in shares.items()} | {
    f"max_{LATENCY}": shares.get(f"max_{LATENCY}", 0.6)
})  # fmt: skip
TIMED = st.builds(Timed.drawn, st.integers(0, 3), st.sampled_from([3, 40, 100_000]))


def table_of(seed: int, timed: Timed, weighed: bool) -> WholeScore:
    """A score of choices whose sums tie, or do not."""
    kinds = timed.space.kinds
    counts = np.random.default_rng(seed).integers(1, 9, (timed.space.depth, len(kinds))).astype(float)

    def term(place: int, choice: Mapping[str, Any]) -> float:
        return float(counts[place, kinds.index((choice["block"], choice["share"]))])

    def weigh(sums: Floats, costs: Ints) -> Floats:
        assert costs.shape[1] == len(COSTS)
        return sums * costs[:, 0] if weighed else sums

    def whole(one: Architecture) -> float:
        total = sum(term(place, choice) for place, choice in enumerate(one.choices["layers"]))
        return total * CostModel().of(one)["params"] if weighed else total

    return WholeScore("made", whole, "made up", sees_choices=True, table=ChoiceTable(term, weigh))


def check(timed: Timed, score: Any, limits: dict[str, int], result: SearchResult, proven: bool) -> None:
    """The best, the pick and the front are those of a list of all architectures within the limits."""
    rows = timed.within(limits)
    scores = np.array([score.of(timed.architectures[i]) for i in rows])
    costs = timed.listed[rows]
    for choice in (*result.best, result.pick, *result.front.points):
        assert choice.costs == timed.costs.of(choice.architecture)
        assert set(choice.costs) == {*COSTS, LATENCY}
        assert choice.score == pytest.approx(score.of(choice.architecture), rel=1e-9)
        assert all(
            choice.costs[name[4:]] <= limit if name[:3] == "max" else choice.costs[name[4:]] >= limit
            for name, limit in limits.items()
        )
    assert result.certificate.optimal == proven
    if not proven:
        assert result.best[0].score <= scores.max() * (1 + 1e-9)
        return
    assert result.best[0].score == pytest.approx(scores.max(), rel=1e-9)
    preferred = [COSTS.index(name) for name in ("kv_bytes", "macs")]
    close = costs[at_least(scores, near(float(scores.max())))][:, preferred]
    assert [result.pick.costs[COSTS[column]] for column in preferred] == list(min(map(tuple, close.tolist())))
    column = timed.costs.names.index(result.front.cost)
    full = pareto(zip(costs[:, column].tolist(), scores.tolist(), strict=True))
    points = [(choice.costs[result.front.cost], choice.score) for choice in result.front.points]
    if result.front.complete:
        assert [cost for cost, _ in points] == [cost for cost, _ in full]
        assert [value for _, value in points] == pytest.approx([value for _, value in full], rel=1e-9)


@settings(max_examples=portion(40), deadline=None)
@given(TIMED, LIMITS, st.integers(0, 99), st.booleans())
def test_tables_are_proven(timed: Timed, shares: dict[str, float], seed: int, weighed: bool) -> None:
    score, limits = table_of(seed, timed, weighed), timed.limits(shares)
    if not timed.within(limits):
        with pytest.raises(Infeasible, match="no architecture"):
            search(timed.space, score, budgets=limits, costs=timed.costs, compare=False)
        return
    result = search(timed.space, score, budgets=limits, costs=timed.costs, compare=False)
    check(timed, score, limits, result, True)


@settings(max_examples=portion(25), deadline=None)
@given(TIMED, LIMITS, st.sampled_from(["geo", "params"]), st.sampled_from(["auto", "milp", "random"]))
def test_closed_forms_are_proven(timed: Timed, shares: dict[str, float], name: str, method: str) -> None:
    limits, score = timed.limits(shares), make_score(name)
    if not timed.within(limits):
        return
    result = search(timed.space, name, budgets=limits, costs=timed.costs, method=method, compare=False, top=3)
    check(timed, score, limits, result, method != "random")


@pytest.mark.parametrize("largest", [3, 40, 100_000])
def test_one_limit_of_latency_is_a_limit_for_the_exact_method(largest: int) -> None:
    """And a search tells the same with baselines and bounds."""
    timed = Timed.drawn(largest, largest)
    for share in (0.01, 0.3, 0.9):
        limits = timed.limits({f"max_{LATENCY}": share})
        result = search(timed.space, "geo", budgets=limits, costs=timed.costs, method="exact")
        assert result.front.cost == LATENCY
        check(timed, make_score("geo"), limits, result, True)
        assert all(b.choice.costs[LATENCY] <= limits[f"max_{LATENCY}"] for b in result.baselines)


@pytest.mark.parametrize("method", ["evolution", "exhaustive", "random"])
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_whole_scores_are_searched_within_a_latency(method: str, seed: int) -> None:
    timed = Timed.drawn(seed, 40)
    score = WholeScore("made", table_of(seed, timed, True).of, "made up", sees_choices=True)
    limits = timed.limits({f"max_{LATENCY}": 0.4, f"min_{LATENCY}": 0.05, "max_params": 0.8})
    result = search(
        timed.space, score, budgets=limits, costs=timed.costs, method=method, sizes=Evolution(60, 8),
        compare=False,
    )  # fmt: skip
    check(timed, score, limits, result, method == "exhaustive")


@pytest.mark.parametrize("score", ["table", "geo", "evolution"])
def test_what_no_path_keeps_is_told_with_the_least_that_one_does(score: str) -> None:
    timed = Timed.drawn(5, 1000)
    least, most = (int(end) for end in (timed.listed[:, -1].min(), timed.listed[:, -1].max()))
    made: Any = {"table": table_of(0, timed, False), "geo": "geo"}.get(score)
    if score == "evolution":
        made = WholeScore("made", lambda one: 0.0, "made up", sees_choices=True)
    method = "evolution" if score == "evolution" else "auto"
    for limits, message in (
        ({f"max_{LATENCY}": least - 1}, f"max_{LATENCY} {least - 1} would have to be at least {least}$"),
        ({f"min_{LATENCY}": most + 1}, f"min_{LATENCY} {most + 1} would have to be at most {most}$"),
    ):
        with pytest.raises(Infeasible, match=message):
            search(timed.space, made, budgets=limits, costs=timed.costs, method=method, compare=False)
    with pytest.raises(ValueError, match="must not be negative"):
        search(timed.space, made, budgets={f"max_{LATENCY}": -1}, costs=timed.costs, method=method)


def test_a_search_that_asks_for_no_latency_knows_none() -> None:
    timed = Timed.drawn(0, 40)
    with pytest.raises(ValueError, match=r"budget 'max_latency_us' is not known; .* weight_bytes$"):
        search(timed.space, "geo", budgets={"max_latency_us": 10})
    result = search(timed.space, "geo")
    assert result.question.latency is None
    assert set(result.pick.costs) == set(COSTS)
