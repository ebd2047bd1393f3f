"""Evolution beside brute force, and what its generations hold."""

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import pytest
from brute import keeping
from catalogue import SETTINGS, catalogue
from drawn import limits, problem_lists
from hypothesis import given
from hypothesis import strategies as st

from zerolm.architecture import Architecture, Floats
from zerolm.costs import COSTS
from zerolm.scores import WholeScore
from zerolm.solvers import Infeasible, exhaustive, methods, search
from zerolm.solvers import evolution as bred
from zerolm.solvers.evolution import Evolution, evolution
from zerolm.solvers.exhaustive import STATES_LIMIT
from zerolm.solvers.problem import Budgets, Picks, Problem
from zerolm.solvers.sampling import additive
from zerolm.spaces import CandidateTable

SIZES = st.builds(
    Evolution, population=st.integers(1, 30), generations=st.integers(1, 12), parents=st.integers(1, 5)
)


@given(problem_lists(max_problems=2), st.data())
def test_all_that_fits_is_evaluated_or_enough_of_it(problems: list[Problem], data: st.DataObject) -> None:
    budgets, sizes = data.draw(limits(problems)), data.draw(SIZES)
    listed = {(state.problem, state.picks): state for state in keeping(problems, budgets)}
    sample = evolution(problems, additive(problems), budgets, data.draw(st.integers(0, 99)), sizes)
    evaluated = {(solution.problem, solution.picks): solution for solution in sample.solutions}
    most = sizes.population * sizes.generations
    assert len(evaluated) == len(sample.solutions)
    assert len(evaluated) == len(listed) if len(listed) <= most else 0 < len(evaluated) <= most
    for genes, solution in evaluated.items():
        assert solution.score == listed[genes].score
        assert tuple(solution.costs.tolist()) == listed[genes].costs


@pytest.mark.parametrize("limit", [STATES_LIMIT, 0], ids=["listed", "proven"])
@given(problem_lists(max_problems=2), st.data())
def test_it_is_empty_where_nothing_fits(limit: int, problems: list[Problem], data: st.DataObject) -> None:
    """Also of a space that cannot be listed, and where no draw succeeds."""
    budgets, few = data.draw(limits(problems)), Evolution(population=3, generations=2)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(exhaustive, "STATES_LIMIT", limit)
        patch.setattr(bred, "BARREN_DRAWS", 0)
        sample = evolution(problems, additive(problems), budgets, 0, few)
    assert budgets.allow(sample.costs).all()
    assert bool(sample.solutions) == bool(keeping(problems, budgets))


def rugged(architecture: Architecture) -> float:
    """No sum over layers: neighbours count, and which of the ways to choose a shape was chosen."""
    weights = [layer.weights % 97 for layer in architecture.layers]
    return sum(a * b for a, b in pairwise(weights)) + len(str(architecture.choices))


@pytest.mark.parametrize("method", ["evolution", "exhaustive"])
@pytest.mark.parametrize("name", [name for name in SETTINGS if name not in ("flexibert", "gpt2")])
def test_the_best_by_a_score_that_sees_choices_is_that_of_brute_force(name: str, method: str) -> None:
    listed, score = catalogue(name), WholeScore("rugged", rugged, "a test", sees_choices=True)
    budget = {"max_params": listed.quantile("params", 0.6)}
    result = search(listed.space, score, budgets=budget, method=method, compare=False)
    by_score = sorted(
        (
            rugged(architecture)
            for architecture, params in zip(listed.architectures, listed.costs[:, 0], strict=True)
            if params <= budget["max_params"]
        ),
        reverse=True,
    )
    assert (result.best[0].score, result.certificate.optimal) == (by_score[0], method == "exhaustive")
    if method == "exhaustive":
        assert [choice.score for choice in result.best] == by_score[:10]
        assert len({choice.architecture.identity for choice in result.best}) == len(result.best)


def broods(problems: Sequence[Problem], sizes: Evolution, seed: int) -> list[list[tuple[int, Picks]]]:
    generations = []

    def evaluate(pairs: Sequence[tuple[int, Picks]]) -> Floats:
        generations.append(list(pairs))
        return additive(problems)(pairs)

    evolution(problems, evaluate, Budgets(), seed, sizes)
    return generations


def large() -> list[Problem]:
    """Twelve layers of six candidates, of which the first is the best everywhere."""
    costs = np.ones((6, len(COSTS)), np.int64)
    table = CandidateTable(-np.arange(6.0), costs, (1,) * 6)
    return [Problem(((table, 1),) * 12, np.zeros(len(COSTS), np.int64))]


def test_generations_are_of_the_size_that_was_asked_for_and_never_repeat() -> None:
    generations = broods(large(), Evolution(), 0)
    assert [len(brood) for brood in generations] == [50] * 40
    assert len(set([genes for brood in generations for genes in brood])) == 2000
    few = Evolution(generations=2)
    assert broods(large(), few, 0) == generations[:2]
    assert broods(large(), few, 1) != generations[:2]


def test_children_are_made_of_the_best() -> None:
    """Of two parents, half of the second generation takes each layer from either."""
    problems, sizes = large(), Evolution(population=20, generations=2, parents=2)
    first, second = broods(problems, sizes, 3)
    best = sorted(first, key=lambda genes: -problems[0].score(genes[1]))[:2]
    for _, picks in second[:10]:
        assert all(pick in {parent[1][layer] for parent in best} for layer, pick in enumerate(picks))
    changed = [
        min(sum(a != b for a, b in zip(picks, parent[1], strict=True)) for parent in best)
        for _, picks in second[10:]
    ]
    assert 1 <= min(changed) <= np.mean(changed) < 4  # each of twelve layers changes at .1 x 5 / 6


def test_evolution_climbs_where_drawing_does_not() -> None:
    problems = large()
    evolved = evolution(problems, additive(problems), Budgets(), 0)
    drawn = evolution(problems, additive(problems), Budgets(), 0, Evolution(population=2000, generations=1))
    assert len(evolved.solutions) == len(drawn.solutions) == 2000
    assert evolved.score.max() == 0
    assert drawn.score.max() < -3


def test_budgets_that_few_keep_are_reached() -> None:
    """Fewer than one in 10^6 of the architectures keeps either bound: draws are led to them."""
    table = CandidateTable(np.arange(6.0), np.repeat(np.arange(6)[:, None], len(COSTS), 1), (1,) * 6)
    problems = [Problem(((table, 1),) * 12, np.zeros(len(COSTS), np.int64))]
    for budgets in (Budgets.of({"max_params": 3}), Budgets.of({"min_macs": 57, "max_params": 58})):
        sample = evolution(problems, additive(problems), budgets, 0, Evolution(population=6, generations=2))
        assert len(sample.solutions) == 12
        assert budgets.allow(sample.costs).all()


def test_where_samples_keep_no_budget_evolution_does(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(methods, "RANDOM_DRAWS", 500)
    score, rare = WholeScore("rugged", rugged, "a test"), {"max_params": 6_800_000}
    with pytest.raises(Infeasible, match="use evolution"):
        search("gpt2", score, budgets=rare, method="random", compare=False)
    sizes = Evolution(population=5, generations=2)
    result = search("gpt2", score, budgets=rare, method="evolution", compare=False, sizes=sizes)
    assert max(choice.costs["params"] for choice in result.best) <= rare["max_params"]


def test_budgets_that_none_keeps_are_named() -> None:
    score = WholeScore("rugged", rugged, "a test", sees_choices=True)
    with pytest.raises(Infeasible, match="would have to be at least"):
        search(catalogue("llama").space, score, budgets={"max_params": 9}, method="evolution", compare=False)
