"""What is not proven: drawing, sampling and NSGA-II, against all architectures and the exact answer."""

import json
import math
from collections import Counter
from collections.abc import Iterator
from unittest.mock import patch

import numpy as np
import pytest
from brute import states
from catalogue import SETTINGS, Catalogue, catalogue
from drawn import limits, problem_lists
from hypothesis import given, settings
from hypothesis import strategies as st
from portion import portion
from scipy import stats

from zerolm.architecture import Architecture
from zerolm.costs import COSTS
from zerolm.scores import WholeScore, make_score
from zerolm.solvers import SearchResult, methods, sampling, search
from zerolm.solvers.problem import Budgets, Problem
from zerolm.solvers.sampling import Sample, additive, drawn, nsga2, random_sample
from zerolm.spaces import make_space


def narrowest(architecture: Architecture) -> float:
    """The weights of the smallest layer: no sum over layers, but blind to their order."""
    return float(min(layer.weights for layer in architecture.layers)) / architecture.depth


WHOLE = WholeScore("narrowest", narrowest, "a test")


@pytest.fixture
def quick() -> Iterator[None]:
    """Fewer generations: what is asked does not depend on how good the sample is."""
    original = nsga2

    def short(*arguments: object, **options: object) -> Sample:
        return original(*arguments, **{"population": 20, "generations": 8, **options})  # type: ignore[arg-type]

    with patch.object(methods, "nsga2", short):
        yield


def keeps(result: SearchResult, listed: Catalogue, limits_: dict[str, int]) -> None:
    budgets = Budgets.of(limits_)
    for choice in (*result.best, result.pick, *result.front.points):
        assert choice.costs == listed.model.of(choice.architecture)
        assert budgets.allow(np.array(list(choice.costs.values())))


def budget(listed: Catalogue) -> dict[str, int]:
    return {"max_params": listed.quantile("params", 0.5), "min_macs": listed.quantile("macs", 0.1)}


@given(problem_lists(), st.integers(1, 50), st.integers(0, 2**32 - 1))
def test_a_sample_holds_states_once_and_repeats(problems: list[Problem], draws: int, seed: int) -> None:
    sample = random_sample(problems, additive(problems), draws, seed)
    listed = {(state.problem, state.picks): state for state in states(problems)}
    found = [(solution.problem, solution.picks) for solution in sample.solutions]
    assert 1 <= len(set(found)) == len(found) <= draws
    for i, key in enumerate(found):
        state = listed[key]
        assert (sample.score[i], tuple(sample.costs[i].tolist())) == (state.score, state.costs)
        assert sample.ways[i] == state.ways
    again = random_sample(problems, additive(problems), draws, seed)
    assert [(solution.problem, solution.picks) for solution in again.solutions] == found


@settings(max_examples=portion(5))
@given(problem_lists())
def test_every_architecture_is_equally_likely_to_be_drawn(problems: list[Problem]) -> None:
    listed = states(problems)
    seen: Counter[tuple[int, object]] = Counter()
    for seed in range(1500):
        (solution,) = random_sample(problems, additive(problems), 1, seed).solutions
        seen[solution.problem, solution.picks] += 1
    ways = np.array([state.ways for state in listed], np.float64)
    expected = 1500 * ways / ways.sum()
    observed = np.array([seen[state.problem, state.picks] for state in listed])
    rare = expected < 5
    observed = np.append(observed[~rare], observed[rare].sum())
    expected = np.append(expected[~rare], expected[rare].sum())
    present = expected > 0
    assert observed[~present].sum() == 0
    if present.sum() > 1:
        assert stats.chisquare(observed[present], expected[present]).pvalue > 1e-5


@settings(max_examples=portion(15))
@given(problem_lists(), st.integers(0, len(COSTS) - 1), st.data())
def test_nsga2_never_beats_brute_force(problems: list[Problem], column: int, data: st.DataObject) -> None:
    budgets, seed = data.draw(limits(problems)), data.draw(st.integers(0, 99))
    run = {"population": 8, "generations": 4, "seed": seed}
    sample = nsga2(problems, additive(problems), budgets, column, **run)
    listed = {(state.problem, state.picks): state for state in states(problems)}
    found = [(solution.problem, solution.picks) for solution in sample.solutions]
    assert len(set(found)) == len(found)
    for i, key in enumerate(found):
        assert sample.score[i] == listed[key].score
        assert tuple(sample.costs[i].tolist()) == listed[key].costs
    again = nsga2(problems, additive(problems), budgets, column, **run)
    assert [(solution.problem, solution.picks) for solution in again.solutions] == found


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize(
    ("name", "method"), [*((name, "random") for name in SETTINGS), ("gpt2", "nsga2"), ("llama", "nsga2")]
)
def test_a_sample_never_beats_the_exact_answer(name: str, method: str) -> None:
    listed = catalogue(name)
    proven = search(listed.space, "geo", budgets=budget(listed), compare=False)
    result = search(listed.space, "geo", budgets=budget(listed), compare=False, method=method, seed=3)
    keeps(result, listed, budget(listed))
    assert result.best[0].score <= proven.best[0].score * (1 + 1e-9)
    assert not result.certificate.optimal
    assert result.certificate.gap is None
    assert not result.plateau.ties.exact
    assert (
        result.plateau.ties.value <= proven.plateau.ties.value or result.best[0].score < proven.best[0].score
    )
    again = search(listed.space, "geo", budgets=budget(listed), compare=False, method=method, seed=3)
    assert again.best == result.best


def test_nsga2_finds_the_best_of_a_small_space() -> None:
    """At its own population and generations."""
    listed = catalogue("gpt2")
    proven = search(listed.space, "geo", budgets=budget(listed), compare=False)
    evolved = search(listed.space, "geo", budgets=budget(listed), compare=False, method="nsga2")
    assert evolved.best[0].score == pytest.approx(proven.best[0].score, rel=1e-9)


@pytest.mark.parametrize("method", ["auto", "exhaustive"])
@pytest.mark.parametrize("name", SETTINGS)
def test_a_whole_score_is_maximised_over_all_architectures(name: str, method: str) -> None:
    """It is proven only where a state is one architecture: elsewhere a score may see what tables do not."""
    listed = catalogue(name)
    allowed = Budgets.of(budget(listed)).allow(listed.costs)
    result = search(listed.space, WHOLE, budgets=budget(listed), compare=False, method=method)
    best = listed.scores(WHOLE)[allowed].max()
    assert (result.best[0].score, result.certificate.method) == (best, "exhaustive")
    assert result.certificate.optimal == (name in ("llama", "qwen3", "pit"))
    ties = (listed.scores(WHOLE)[allowed] >= best * (1 - 1e-9)).sum()
    # Where a shape leaves choices open, only those that were looked at are counted.
    assert (
        result.plateau.ties.value == ties
        if result.certificate.optimal
        else 1 <= result.plateau.ties.value <= ties
    )
    keeps(result, listed, budget(listed))


def test_a_whole_score_that_sees_the_order_of_layers_claims_no_false_optimum() -> None:
    """The best architecture by it is one whose layers are not sorted."""

    def tapering(architecture: Architecture) -> float:
        return float(architecture.layers[0].weights - architecture.layers[-1].weights)

    listed, score = catalogue("gpt2"), WholeScore("tapering", tapering, "a test")
    result = search(listed.space, score, compare=False)
    assert not result.certificate.optimal or result.best[0].score == listed.scores(score).max()


def test_nsga2_without_pymoo_names_the_extra() -> None:
    with (
        patch.object(sampling, "pymoo_installed", return_value=False),
        pytest.raises(ModuleNotFoundError, match=r"zerolm\[nsga2\]"),
    ):
        search(catalogue("llama").space, "geo", method="nsga2")


SPACE = make_space("flexibert", depth=[1, 2], hidden=[8], heads=[2], ffn=[8], stacks=[1])
"""Six operations a layer, two of which have one shape: 42 architectures of one layer or two."""


def test_all_architectures_are_equally_likely() -> None:
    counts = Counter(json.dumps(one.choices, sort_keys=True) for one in drawn(SPACE, 4200, 0))
    assert len(counts) == 6 + 36
    assert all(abs(count - 100) < 5 * math.sqrt(100) for count in counts.values())
    assert drawn(SPACE, 5, 3) == drawn(SPACE, 5, 3) != drawn(SPACE, 5, 4)


@given(st.sampled_from(["params", "body_params"]), st.integers(0, 41), st.integers(0, 41))
def test_only_those_within_budgets_are_drawn(cost: str, low: int, high: int) -> None:
    size = make_score(cost)
    sizes = sorted(size.of(one) for one in drawn(SPACE, 42, 0, distinct=True))
    low, high = sorted((low, high))
    budgets = {f"min_{cost}": int(sizes[low]), f"max_{cost}": int(sizes[high])}
    inside = [value for value in sizes if sizes[low] <= value <= sizes[high]]
    few = drawn(SPACE, len(inside), 1, budgets=budgets, distinct=True)
    assert sorted(size.of(one) for one in few) == inside


def test_what_is_too_rare_is_refused_with_the_nearest() -> None:
    sizes = sorted(make_score("params").of(one) for one in drawn(SPACE, 200, 0))
    low, high = int(sizes[0]), int(sizes[-1])
    with pytest.raises(ValueError, match=f"more than {low - 1:,} parameters, the smallest of all {low:,}: "):
        drawn(SPACE, 5, 0, budgets={"max_params": low - 1})
    with pytest.raises(
        ValueError, match=f"fewer than {high + 1:,} parameters, the largest of all {high:,}: "
    ):
        drawn(SPACE, 5, 0, budgets={"min_params": high + 1})
