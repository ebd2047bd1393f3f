"""Latencies of a tiny supernet: positive integers that add up, and searches by them. No time is judged."""

import json

import pytest
import torch
from small_supernets import NAMES, supernet_of

from zerolm.architecture import Architecture
from zerolm.costs import LATENCY, CostModel, TimedCosts
from zerolm.io.plain import as_plain
from zerolm.lab.supernets import latency as module
from zerolm.lab.supernets.latency import Timing, measured_latencies, measured_whole, microseconds
from zerolm.lab.supernets.search import ElasticSearch, search_paths
from zerolm.solvers import Infeasible, SearchResult

SHORT = Timing(2, 5, seconds=0.0)


@pytest.fixture(autouse=True)
def few_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "ROUNDS", (2, 3))


def added(result: SearchResult, architecture: Architecture) -> int:
    assert result.latency
    rows = {(row["block"], row["share"], row["ffn"]): row[LATENCY] for row in result.latency.layers}
    layers = architecture.choices["layers"]
    return result.latency.ends + sum(rows[layer["block"], layer["share"], layer["ffn"]] for layer in layers)


@pytest.mark.parametrize("name", NAMES)
def test_every_layer_that_a_path_may_have_is_timed(name: str) -> None:
    supernet = supernet_of(name, shares=["none", "kv", "qv"])
    space = supernet.grown_space()
    latencies, table = measured_latencies(space, SHORT)
    costs = TimedCosts(latencies=latencies)
    for kind in range(supernet.shape[1]):
        architecture = supernet.architecture([kind] * supernet.shape[0])
        assert costs.of(architecture)[LATENCY] == latencies.ends + sum(
            latencies.layers[layer] for layer in architecture.layers
        )
        assert measured_whole(architecture, space, SHORT) > 0
    times = [table.ends, *(row[LATENCY] for row in table.layers)]
    assert all(isinstance(value, int) and value > 0 for value in times)
    assert (table.batch, table.tokens, table.rounds) == (2, 5, 2)
    assert table.threads == torch.get_num_threads()
    assert len({tuple(row[key] for key in ("block", "share", "ffn")) for row in table.layers}) == len(
        table.layers
    )
    by_share = {row["share"]: row[LATENCY] for row in table.layers if row["block"] == "bert"}
    assert by_share["kv"] == by_share["qv"]  # of equal shapes one is timed


def test_calls_take_turns_and_the_fastest_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [0.0]
    calls: list[str] = []

    def call(name: str, times: list[float]) -> None:
        calls.append(name)
        clock[0] += times.pop(0)

    monkeypatch.setattr(module.time, "perf_counter", lambda: clock[0])
    a, b = [1e-9, 5e-6, 3e-6, 9.0], [1e-9, 7e-6, 4e-7, 9.0]
    assert microseconds([lambda: call("a", a), lambda: call("b", b)], 0.0) == ([3, 1], 2)
    assert calls == ["a", "b"] * 3
    calls.clear()
    many = [1e-9] + [2e-6] * 9
    assert microseconds([lambda: call("a", many)], 100.0) == ([2], 3)


def test_sequences_are_no_longer_than_the_positions() -> None:
    space = supernet_of().grown_space()
    assert Timing.of(space, CostModel(context=1024, batch=3)) == Timing(3, 32)
    assert (Timing.of(space, CostModel(context=7)).tokens, Timing(3, 7).ids(space).shape) == (7, (3, 7))
    assert (Timing(3, 7).ids(space) == Timing(3, 7).ids(space)).all()


@pytest.mark.parametrize("score", ["supernet", "w_pca"])
def test_a_search_tells_the_table_that_its_latencies_add_up_from(score: str) -> None:
    supernet = supernet_of()
    ids = torch.randint(1, 40, (4, 12), generator=torch.Generator().manual_seed(0))
    told: list[str] = []

    def searched(budgets: dict[str, int]) -> SearchResult:
        asked = ElasticSearch(score, budgets)
        return search_paths(supernet, ids, ids, asked, progress=lambda text, done=0, of=0: told.append(text))

    assert searched({"max_params": 10**9}).latency is None
    assert "measuring latencies" not in told
    result = searched({"max_latency_us": 10**9})
    assert {"measuring latencies", "measuring the pick"} <= set(told)
    assert result.latency
    assert result.latency.whole
    for choice in (*result.best, result.pick, *result.front.points):
        assert choice.costs[LATENCY] == added(result, choice.architecture)
    document = json.loads(json.dumps(as_plain(result)))
    assert as_plain(SearchResult.from_json(document)) == document == as_plain(result)
    assert result.question.conditions == CostModel().conditions
    with pytest.raises(Infeasible, match=r"max_latency_us 1 would have to be at least \d+$"):
        searched({"max_latency_us": 1})
    with pytest.raises(Infeasible, match=r"min_latency_us \d+ would have to be at most \d+$"):
        searched({"min_latency_us": 10**12})
