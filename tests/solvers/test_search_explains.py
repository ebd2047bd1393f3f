"""What a search says beside its answer: infeasible budgets, baselines, and bounds that cost score."""

import json
import re
from unittest.mock import patch

import numpy as np
import pytest
from catalogue import SETTINGS, Catalogue, catalogue

from zerolm.costs import COSTS, CostModel
from zerolm.io.plain import as_plain
from zerolm.scores import Score, make_score
from zerolm.solvers import METHOD_NAMES, Infeasible, exhaustive, methods, search
from zerolm.solvers.exhaustive import count_states
from zerolm.solvers.problem import Budgets, compile_problems
from zerolm.statistics import TOLERANCE

HINT = re.compile(r"(max|min)_(\w+) (\d+) would have to be at (least|most) (\d+)")


def feasible(listed: Catalogue, limits: dict[str, int]) -> bool:
    return bool(Budgets.of(limits).allow(listed.costs).any())


def best_of(listed: Catalogue, score: Score, limits: dict[str, int]) -> float:
    return float(listed.scores(score)[Budgets.of(limits).allow(listed.costs)].max())


def impossible(listed: Catalogue) -> list[dict[str, int]]:
    """Budgets that cannot be kept: alone, against each other, and in threes."""
    low = dict(zip(COSTS, listed.costs.min(axis=0).tolist(), strict=True))
    high = dict(zip(COSTS, listed.costs.max(axis=0).tolist(), strict=True))
    conflict = {"max_params": listed.quantile("params", 0.2), "min_macs": high["macs"]}
    return [
        {"max_params": low["params"] - 1}, {"max_macs": 0}, {"min_weight_bytes": high["weight_bytes"] + 1},
        {"min_params": 1 << 80}, conflict, {**conflict, "max_active_params": high["active_params"] - 1},
        {"max_params": low["params"], "min_params": low["params"], "min_body_params": high["body_params"]},
        {"max_params": low["params"] - 1, "max_macs": low["macs"] - 1},
        {"max_params": 1, "max_macs": 1, "max_weight_bytes": 1},
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "method"),
    [*((name, "auto") for name in SETTINGS), ("llama", "exhaustive"), ("gpt2", "milp"), ("pit", "milp")],
)
def test_infeasible_budgets_come_with_the_nearest_feasible_ones(name: str, method: str) -> None:
    listed = catalogue(name)
    for limits in impossible(listed):
        if feasible(listed, limits):  # the cheapest is the dearest too
            continue
        with pytest.raises(Infeasible) as caught:
            search(listed.space, budgets=limits, method=method)
        hints = HINT.findall(str(caught.value))
        helped = set()
        for side, cost, given, _, value in hints:
            limit = f"{side}_{cost}"
            assert min(limits[limit], (1 << 62) - 1) == int(given)
            assert feasible(listed, {**limits, limit: int(value)})
            closer = int(value) - 1 if side == "max" else int(value) + 1
            assert not feasible(listed, {**limits, limit: closer})
            helped.add(limit)
        for limit in limits.keys() - helped:
            assert not feasible(listed, {key: value for key, value in limits.items() if key != limit})
        if not hints:
            assert "nor all but one of these bounds" in str(caught.value)


def test_a_sample_that_keeps_no_budget_proves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """So few of the 33475650863462411705404173477556309557 architectures keep it that no sample holds one."""
    monkeypatch.setattr(methods, "RANDOM_DRAWS", 500)
    with pytest.raises(Infeasible, match="use exact or milp"):
        search("gpt2", budgets={"max_params": 6_800_000}, method="random")
    assert search("gpt2", budgets={"max_params": 6_800_000}, compare=False).best


def limits_for(listed: Catalogue) -> list[dict[str, int]]:
    return [
        {},
        {"max_params": listed.quantile("params", 0.5)},
        {"max_macs": listed.quantile("macs", 0.5), "min_body_params": listed.quantile("body_params", 0.2)},
        {"max_params": listed.quantile("params", 0.5), "min_macs": listed.quantile("macs", 0.5)},
    ]


@pytest.mark.parametrize(
    ("name", "score"), [*((name, "geo") for name in SETTINGS), ("llama", "log_complexity")]
)
def test_binding_bounds_are_those_that_cost_score(name: str, score: str) -> None:
    listed, made = catalogue(name), make_score(score)
    for limits in limits_for(listed):
        result = search(listed.space, score, budgets=limits)
        best = result.best[0].score
        expected: dict[str, tuple[str, float, float, float]] = {}
        for limit, value in limits.items():
            relaxed = value * 11 // 10 if limit.startswith("max") else value * 9 // 10
            reached = best_of(listed, made, {**limits, limit: relaxed})
            expected[limit] = ("budget", value, relaxed, reached)
        for bound in listed.space.bounds(result.best[0].architecture):
            wider = search(bound.wider, score, budgets=limits, compare=False).best[0].score
            assert wider >= best * (1 - TOLERANCE)
            kind = "range" if isinstance(bound.at, str) else "shape"
            expected[bound.name] = (kind, bound.at, bound.wider_to, wider)
        costly = {key: entry for key, entry in expected.items() if entry[3] > best + TOLERANCE * abs(best)}
        assert {binding.bound for binding in result.bounds.binding} == costly.keys()
        for binding in result.bounds.binding:
            kind, at, relaxed_to, reached = costly[binding.bound]
            assert (binding.kind, binding.at, binding.relaxed_to) == (kind, at, relaxed_to)
            assert binding.score == pytest.approx(reached, rel=1e-9)
            gain = (reached - best) / abs(best) if best else None
            assert binding.gain == (None if gain is None else pytest.approx(gain, rel=1e-6))
            assert binding.better == (
                f"{reached:.6g} instead of 0" if gain is None else f"{gain:+.2%}".replace("%", " %")
            )
        scores = [binding.score for binding in result.bounds.binding]
        assert scores == sorted(scores, reverse=True)
        json.dumps(as_plain(result), allow_nan=False)


@pytest.mark.parametrize("name", SETTINGS)
def test_baselines_choose_the_best_by_their_own_count(name: str) -> None:
    listed, geo = catalogue(name), make_score("geo")
    for limits in limits_for(listed):
        result = search(listed.space, "geo", budgets=limits)
        assert sorted([baseline.name for baseline in result.baselines]) == sorted(
            ["params", "body_params", "macs", "depth", "width", "depth_width", "depth_width2"]
        )
        for baseline in result.baselines:
            choice, count = baseline.choice, make_score(baseline.name)
            assert baseline.value == pytest.approx(best_of(listed, count, limits), rel=1e-9)
            assert baseline.value == pytest.approx(count.of(choice.architecture), rel=1e-9)
            assert choice.score == pytest.approx(geo.of(choice.architecture), rel=1e-9)
            assert choice.score <= result.best[0].score * (1 + TOLERANCE)
            assert choice.costs == listed.model.of(choice.architecture)
            assert Budgets.of(limits).allow(np.array(list(choice.costs.values())))


@pytest.mark.parametrize("method", ["exhaustive", "exact", "milp"])
def test_a_result_is_plain_json_and_always_the_same(method: str) -> None:
    listed = catalogue("gpt2")
    limits = {"max_params": listed.quantile("params", 0.5)}
    documents = []
    for _ in range(2):
        result = search(listed.space, "zerolm", options={"alpha": 1.1}, budgets=limits, method=method, top=3)
        document = as_plain(result)
        assert json.loads(json.dumps(document)) == document
        document["certificate"].pop("seconds")
        documents.append(document)
    assert (documents[0], documents[0]["question"]["budgets"]) == (documents[1], limits)
    assert documents[0]["question"]["options"] == {"alpha": 1.1}
    assert documents[0]["question"]["space"]["settings"] == listed.space.settings


def test_costs_are_counted_as_the_network_is_run() -> None:
    model = CostModel(context=10, batch=3, kv_bits=8, bits=4, group_size=32)
    result = search(catalogue("llama").space, "macs", costs=model)
    for choice in (*result.best, result.pick, *result.front.points, *(b.choice for b in result.baselines)):
        assert choice.costs == model.of(choice.architecture)
    assert result.question.conditions == {
        "context": 10, "batch": 3, "kv_bits": 8, "bits": 4, "group_size": 32,
    }  # fmt: skip
    assert result.best[0].score == result.best[0].costs["macs"]


def test_wider_spaces_may_be_too_large_to_list() -> None:
    """Relaxing a bound must not fail because the relaxed space has more states than are listed."""
    space = catalogue("gpt2").space
    expected = search(space, "geo")
    problems = compile_problems(list(space.backbones()), make_score("geo").terms, CostModel())
    with patch.object(exhaustive, "STATES_LIMIT", count_states(problems)):
        found = search(space, "geo", method="exhaustive")
    assert [one.bound for one in found.bounds.binding] == [one.bound for one in expected.bounds.binding]


def test_arguments_that_make_no_sense_are_refused() -> None:
    space = catalogue("llama").space
    with pytest.raises(ValueError, match="method 'best' is not known; there are auto, exact"):
        search(space, method="best")
    with pytest.raises(ValueError, match="top must be at least 1, not 0"):
        search(space, top=0)
    methods = ("auto", "exact", "milp", "exhaustive", "rerank", "nsga2", "evolution", "random")
    assert methods == METHOD_NAMES
