"""LIBRA against explicit loops over cells, and what its choice must not depend on."""

import math
from collections import Counter
from collections.abc import Sequence
from fractions import Fraction
from itertools import permutations

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from scipy import stats

from zerolm.architecture import Floats
from zerolm.lab.zero_cost.libra import choose, halves, information_gain, judge
from zerolm.statistics import spearman

Proxies = dict[str, Floats]
Problem = tuple[Proxies, Floats, Floats]
BINNED = st.lists(st.tuples(*[st.integers(0, 3)] * 3), min_size=1, max_size=30)


@st.composite
def problems(draw: st.DrawFn, most: int = 6, same: bool = False) -> Problem:
    """Proxies that are the result with noise, result and params; ``same``: all have one strength."""
    n = draw(st.integers(4, 40))
    generator = np.random.default_rng(draw(st.integers(0, 1 << 20)))
    result = generator.integers(0, draw(st.integers(2, 30)), n).astype(np.float64)
    levels = [0.3] if same else [0.0, 0.5, 1.0, 4.0, 20.0]
    proxies = {
        name: np.round(result + draw(st.sampled_from(levels)) * generator.normal(size=n))
        for name in "abcdef"[: draw(st.integers(1, most))]
    }
    params = generator.integers(1, 12, n) * 1000.0 + 500.0 * result
    assume(np.ptp(result) > 0 and all(np.ptp(values) > 0 for values in proxies.values()))
    return proxies, result, params


def bins_of(values: Floats, bins: int) -> list[int]:
    """How many of the bins' quantiles lie below each value, in fractions."""
    order = sorted(map(Fraction, values.tolist()))
    edges = []
    for i in range(1, bins):
        place = Fraction((len(order) - 1) * i, bins)
        low = math.floor(place)
        edges.append(order[low] + (place - low) * (order[min(low + 1, len(order) - 1)] - order[low]))
    return [sum(edge < value for edge in edges) for value in map(Fraction, values.tolist())]


def entropy_given(outcome: list[int], cells: Sequence[tuple[int, ...]]) -> float:
    """H(y | cell), cell by cell."""
    total = 0.0
    for cell in set(cells):
        inside = Counter(y for y, own in zip(outcome, cells, strict=True) if own == cell)
        size = sum(inside.values())
        total += size / len(cells) * -sum(c / size * math.log(c / size) for c in inside.values())
    return total


def brute(proxies: Proxies, result: Floats, params: Floats) -> list[str]:
    rho = {name: stats.spearmanr(values, result).statistic for name, values in proxies.items()}
    first = max(proxies, key=lambda name: round(rho[name], 10))
    names = [name for name in proxies if name != first and rho[name] > rho[first] - 0.1 + 1e-9]
    chosen = [first]
    y, z = bins_of(result, 10), {name: bins_of(values, 10) for name, values in proxies.items()}

    def gain(name: str) -> float:
        alone, both = [(a,) for a in z[first]], list(zip(z[first], z[name], strict=True))
        return entropy_given(y, alone) - entropy_given(y, both)

    def distance(name: str) -> float:
        own, wanted = (stats.spearmanr(x, params).statistic for x in (proxies[name], result))
        return float(abs(wanted - own))

    for worth in (gain, distance):
        if names:
            chosen.append(min(names, key=lambda name: round(worth(name), 8)))
            names.remove(chosen[-1])
    return chosen


@pytest.mark.parametrize("same", [False, True])
@given(data=st.data())
def test_the_choice_is_that_of_loops_over_bins(same: bool, data: st.DataObject) -> None:
    proxies, result, params = data.draw(problems(same=same))
    assume(np.ptp(params) > 0)
    assert choose(proxies, result, params) == brute(proxies, result, params)


@given(BINNED)
def test_gain_lies_between_nothing_and_all_that_is_unknown(rows: list[tuple[int, ...]]) -> None:
    y, known, other = np.array(rows, np.int64).T
    gain = information_gain(y, known, other)
    unknown = entropy_given(y.tolist(), [(int(a),) for a in known])
    assert 0.0 <= gain <= unknown + 1e-12
    both = [(int(a), int(b)) for a, b in zip(known, other, strict=True)]
    assert gain == pytest.approx(unknown - entropy_given(y.tolist(), both), abs=1e-12)
    assert information_gain(y, known, y) == pytest.approx(unknown, abs=1e-12)
    assert information_gain(y, known, known // 2) == 0.0


@given(st.integers(0, 1 << 20))
def test_gains_of_the_same_bins_by_other_names_are_the_same_number(seed: int) -> None:
    generator = np.random.default_rng(seed)
    y, known, other = generator.integers(0, 10, (3, 300)) ** 2 // 10
    names = generator.permutation(10)
    assert information_gain(y, known, names[other]) == information_gain(y, known, other)


@given(problems(), st.integers(0, 1 << 20))
def test_noise_of_floating_point_breaks_no_tie(problem: Problem, seed: int) -> None:
    proxies, result, params = problem
    above = {name: values + 1000.0 for name, values in proxies.items()}
    generator = np.random.default_rng(seed)
    noisy = {name: v * (1.0 + 1e-14 * generator.normal(size=len(v))) for name, v in above.items()}
    assert choose(noisy, result, params) == choose(above, result, params)


def test_biases_as_near_are_a_tie_whatever_their_rounding(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("zerolm.lab.zero_cost.libra.WITHIN", 3.0)
    params, orders = np.arange(5.0), list(permutations(np.arange(5.0)))
    rho = {order: float(spearman(np.array([order]), params)[0]) for order in orders}
    result, above, below = (
        np.array(next(order for order in orders if abs(rho[order] - bias) < 1e-9)) for bias in (0.3, 0.4, 0.2)
    )
    for third, last in (above, below), (below, above):
        proxies = {"first": result, "second": result.copy(), "third": third, "last": last}
        assert choose(proxies, result, params) == ["first", "second", "third"]


def test_networks_of_one_size_have_no_bias() -> None:
    result = np.arange(6.0)
    assert choose(dict.fromkeys("abcd", result), result, np.full(6, 7.0)) == ["a", "b", "c"]


@given(st.integers(2, 300), st.integers(0, 5))
def test_halves_part_all_architectures(n: int, seed: int) -> None:
    chosen, held = halves(n, seed)
    assert abs(len(chosen) - len(held)) <= 1 + n % 2
    assert sorted([*chosen.tolist(), *held.tolist()]) == list(range(n))
    assert np.all(np.diff(chosen) > 0)
    assert np.all(np.diff(held) > 0)
    assert np.array_equal(chosen, halves(n, seed)[0])


def test_what_is_no_number_is_refused_and_what_is_constant_chooses_nothing() -> None:
    good = np.arange(4.0)
    for bad in (np.array([0.0, np.nan, np.inf, 1.0]), good[:3]):
        with pytest.raises(ValueError, match=r"finite|do not pair"):
            choose({"fisher": good, "synflow": bad}, good, good)
    assert choose({"a": good * 0, "b": good * 0}, good, good) == choose({"a": good}, good * 0, good) == []


def test_the_verdict_is_of_labels_it_has_not_seen() -> None:
    generator = np.random.default_rng(0)
    result, params = generator.normal(size=40), generator.normal(size=40)
    columns = {"good": result + 0.01 * params, "bad": generator.normal(size=40), "same": np.ones(40)}
    verdict = judge(columns, result, params)
    assert verdict.chosen == ["good"]
    assert (verdict.calibration, verdict.test) == (20, 20)
    assert verdict.tau > 0.9
    other = judge(columns, result, params, seed=1)
    assert other.tau != verdict.tau
    assert None not in vars(verdict).values()


def test_no_verdict_without_labels_or_proxies_that_vary() -> None:
    result, same = np.arange(40.0), np.ones(40)
    assert judge({"a": result[:19], "b": -result[:19]}, result[:19], result[:19]) is None
    for columns, labels in (({"a": result}, result), ({"a": result, "b": same}, result)):
        assert judge(columns, labels, result) is None
    assert judge({"a": result, "b": -result}, same, result) is None
    verdict = judge({"a": result, "b": -result}, result, same)
    assert verdict.tau_body_params is None
