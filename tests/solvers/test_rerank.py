"""Re-ranking what the guides of a score put forward, for scores that are not additive."""

from functools import cache

import numpy as np
import pytest
from catalogue import SETTINGS, catalogue
from labelled import labelled

from zerolm.architecture import Architecture
from zerolm.calibration import Calibration, calibrate
from zerolm.costs import COSTS, CostModel
from zerolm.scores import WholeScore, make_score
from zerolm.solvers import Infeasible, search
from zerolm.spaces import make_space

BUDGETS = {"none": {}, "one": {"max_params": 0.5}, "two": {"max_macs": 0.6, "min_params": 0.2}}
CASES = [
    *(("gpt2", budget) for budget in BUDGETS),
    *(("llama per layer", "two"), ("flexibert", "one"), ("pit", "two")),
]


@cache
def calibration(name: str, method: str = "gp") -> Calibration:
    return calibrate(labelled(name, 24), method)


def within(architecture: Architecture, limits: dict[str, int]) -> bool:
    costs = CostModel().of(architecture)
    return all(
        costs[bound[4:]] <= limit if bound.startswith("max") else costs[bound[4:]] >= limit
        for bound, limit in limits.items()
    )


@pytest.mark.parametrize(("name", "budget"), CASES)
def test_no_guide_knows_better(name: str, budget: str) -> None:
    space, score = catalogue(name).space, calibration(name).score()
    limits = catalogue(name).limits(BUDGETS[budget])
    assert isinstance(score, WholeScore)
    result = search(space, score, budgets=limits, method="rerank", compare=False)
    assert (result.certificate.method, result.certificate.optimal, result.certificate.gap) == (
        "rerank",
        False,
        None,
    )
    best = result.best[0].score
    for guide in score.guides:
        own = search(space, guide, budgets=limits, compare=False).best[0].architecture
        assert best >= score.of(own) - 1e-9 * abs(best), guide.name
    for choice in (*result.best, *result.front.points, result.pick):
        assert within(choice.architecture, limits)
        assert choice.costs == catalogue(name).model.of(choice.architecture)
        assert choice.score == pytest.approx(score.of(choice.architecture), rel=1e-9)
        assert choice.score <= best + 1e-9 * abs(best)


@pytest.mark.parametrize("name", ["gpt2", "llama per layer", "pit"])
def test_a_small_space_is_looked_at_whole(name: str) -> None:
    """``auto`` evaluates every shape where there are few: no choice of its own kind is better."""
    listed, score = catalogue(name), calibration(name).score()
    limit = listed.quantile("params", 0.5)
    result = search(listed.space, score, budgets={"max_params": limit}, compare=False)
    assert result.certificate.method == "exhaustive"
    asked = search(listed.space, score, budgets={"max_params": limit}, method="rerank", compare=False)
    assert result.best[0].score >= asked.best[0].score - 1e-9 * abs(result.best[0].score)
    scores = listed.scores(score)[listed.costs[:, COSTS.index("params")] <= limit]
    assert result.best[0].score <= scores.max() + 1e-9 * abs(scores.max())
    if result.certificate.optimal:
        assert result.best[0].score == pytest.approx(scores.max(), rel=1e-9)


def test_a_large_space_is_re_ranked_within_its_budgets() -> None:
    limits = {"max_params": 12_000_000, "max_kv_bytes": 4_000_000}
    widths = list(range(256, 2049, 128))
    space = make_space("gpt2", depth=[3, 8], hidden=[128, 192], ffn=widths, d_embed=[128], div_val=[4])
    result = search(space, calibration("gpt2", "blend").score(), budgets=limits, top=5, compare=False)
    assert result.certificate.method == "rerank"
    assert len(result.best) == 5
    assert all(within(choice.architecture, limits) for choice in (*result.best, result.pick))


@pytest.mark.parametrize(
    ("limits", "words"),
    [({"max_params": 1000}, "max_params 1000 would have to be at least"), ({"min_macs": 10**12}, "at most")],
)
def test_budgets_that_nothing_keeps_are_explained(limits: dict[str, int], words: str) -> None:
    for method in ("rerank", "auto"):
        with pytest.raises(Infeasible, match=words):
            search(catalogue("gpt2").space, calibration("gpt2").score(), budgets=limits, method=method)
    nearest = search(catalogue("gpt2").space, "params", compare=False)  # the largest there is
    top = {"min_params": nearest.best[0].costs["params"]}
    found = search(
        catalogue("gpt2").space, calibration("gpt2").score(), budgets=top, method="rerank", compare=False
    )
    assert found.best[0].costs["params"] == top["min_params"]


def test_methods_that_do_not_fit_the_score() -> None:
    space, whole = catalogue("gpt2").space, calibration("gpt2").score()
    alone = WholeScore("alone", lambda a: float(a.depth), "a test")
    for method in ("exact", "milp"):
        for score, fit in ((whole, "exhaustive, rerank, nsga2"), (alone, "exhaustive, nsga2")):
            message = rf"'{score.name}' is not additive; use {fit}, evolution or random$"
            with pytest.raises(ValueError, match=message):
                search(space, score, method=method)
    with pytest.raises(ValueError, match=r"'dictionary' is additive: .*; use exact or milp$"):
        search(space, calibration("gpt2", "dictionary").score(), method="rerank")
    with pytest.raises(ValueError, match=r"no closed forms to guide it; use nsga2, evolution or random$"):
        search(space, alone, method="rerank")


def test_a_score_that_is_its_guide_gets_its_guides_optimum() -> None:
    """Re-ranking by the very closed form that guides it finds what the exact search proves."""
    geo = make_score("geo").terms
    whole = WholeScore("same", geo.of, "a test", many=geo.of_many, guides=(geo,))
    for name in SETTINGS:
        listed = catalogue(name)
        limits = {"max_params": listed.quantile("params", 0.4)}
        best = search(listed.space, whole, budgets=limits, method="rerank", compare=False).best
        proven = search(listed.space, geo, budgets=limits, compare=False)
        assert proven.certificate.optimal
        assert np.allclose([c.score for c in best], [c.score for c in proven.best], rtol=1e-9)
