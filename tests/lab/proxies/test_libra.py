"""LIBRA against explicit loops over cells, and what its choice must not depend on."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from fractions import Fraction
from itertools import permutations, product

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from scipy import stats

from zerolm.architecture import Floats
from zerolm.lab.zero_cost.combine import rank_product
from zerolm.lab.zero_cost.libra import Libra, calibration_split, choose, combined, information_gain
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
    levels = [2.0] if same else [0.0, 0.5, 1.0, 4.0, 20.0]
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
        high = min(low + 1, len(order) - 1)
        edges.append(order[low] + (place - low) * (order[high] - order[low]))
    return [sum(edge < value for edge in edges) for value in map(Fraction, values.tolist())]


def entropy_given(outcome: list[int], cells: Sequence[tuple[int, ...]]) -> float:
    """H(y | cell), cell by cell."""
    total = 0.0
    for cell in set(cells):
        inside = Counter(y for y, own in zip(outcome, cells, strict=True) if own == cell)
        size = sum(inside.values())
        total += size / len(cells) * -sum(c / size * math.log(c / size) for c in inside.values())
    return total


def brute(proxies: Proxies, result: Floats, params: Floats, bins: int, within: float) -> list[str]:
    rho = {name: stats.spearmanr(values, result).statistic for name, values in proxies.items()}
    first = max(proxies, key=lambda name: round(rho[name], 10))
    names = [name for name in proxies if name != first and rho[name] > rho[first] - within + 1e-9]
    chosen = [first]
    y, z = bins_of(result, bins), {name: bins_of(values, bins) for name, values in proxies.items()}

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


@given(problems(), st.sampled_from([1, 3, 10]), st.sampled_from([0.0, 0.1, 0.5]))
def test_the_choice_is_that_of_loops_over_bins(problem: Problem, bins: int, within: float) -> None:
    proxies, result, params = problem
    assume(np.ptp(params) > 0)
    found = choose(proxies, result, params, bins=bins, within=within)
    assert list(found.names) == brute(proxies, result, params, bins, within)


@given(problems(same=True), st.sampled_from([3, 10]))
def test_the_choice_among_equals_is_that_of_loops_over_bins(problem: Problem, bins: int) -> None:
    proxies, result, params = problem
    assume(np.ptp(params) > 0)
    found = choose(proxies, result, params, bins=bins, within=2.0)
    assert list(found.names) == brute(proxies, result, params, bins, 2.0)
    assert len(found.names) == min(len(proxies), 3)


@given(problems())
def test_the_reasons_are_those_of_the_choice(problem: Problem) -> None:
    proxies, result, params = problem
    found = choose(proxies, result, params, within=0.3)
    assert list(found.rho) == list(proxies)
    assert found.rho[found.first] == pytest.approx(max(found.rho.values()))
    assert found.first not in found.gain
    assert {found.first, *found.gain} >= {
        name for name, rho in found.rho.items() if rho > max(found.rho.values()) - 0.29
    }
    assert set(found.bias) == set(found.gain) - {found.second}
    if found.second is not None:
        assert found.gain[found.second] == pytest.approx(min(found.gain.values()))
    if found.third is not None:
        nearest = min(abs(bias - found.result_bias) for bias in found.bias.values())
        assert abs(found.bias[found.third] - found.result_bias) == pytest.approx(nearest)


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


@given(st.tuples(*[st.lists(st.integers(1, 5), min_size=1, max_size=3)] * 3))
def test_what_is_independent_gains_nothing(weights: tuple[list[int], ...]) -> None:
    """Rounding alone would make it a little more or less than nothing."""
    cells = product(*(enumerate(own) for own in weights))
    rows = [[i for i, _ in cell] for cell in cells for _ in range(math.prod(size for _, size in cell))]
    y, known, other = np.array(rows, np.int64).T
    assert 0.0 <= information_gain(y, known, other) < 1e-12


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
    found = choose(above, result, params, within=0.4)
    assert choose(noisy, result, params, within=0.4) == found
    assert np.array_equal(combined(found, noisy), combined(found, above))


def test_biases_as_near_are_a_tie_whatever_their_rounding() -> None:
    params, orders = np.arange(5.0), list(permutations(np.arange(5.0)))
    rho = {order: float(spearman(np.array([order]), params)[0]) for order in orders}
    result, above, below = (
        np.array(next(order for order in orders if abs(rho[order] - bias) < 1e-9)) for bias in (0.3, 0.4, 0.2)
    )
    for third, last in (above, below), (below, above):
        proxies = {"first": result, "second": result.copy(), "third": third, "last": last}
        found = choose(proxies, result, params, within=3.0)
        assert found.names == ("first", "second", "third")


def test_networks_of_one_size_have_no_bias() -> None:
    result = np.arange(6.0)
    found = choose(dict.fromkeys("abcd", result), result, np.full(6, 7.0))
    assert found.names == ("a", "b", "c")
    assert found.result_bias == 0.0
    assert set(found.bias.values()) == {0.0}


@given(problems())
def test_combined_merges_the_chosen_and_no_others(problem: Problem) -> None:
    proxies, result, params = problem
    libra = choose(proxies, result, params)
    terms = np.array([proxies[name] for name in libra.names])
    others = {name: values if name in libra.names else values * np.nan for name, values in proxies.items()}
    assert np.array_equal(combined(libra, others), rank_product(terms))


@given(st.integers(2, 300), st.floats(0.01, 0.99), st.integers(0, 5))
def test_a_split_parts_all_architectures(n: int, share: float, seed: int) -> None:
    assume(0 < round(share * n) < n)
    calibration, test = calibration_split(n, share, seed)
    assert len(calibration) == round(share * n)
    assert sorted([*calibration.tolist(), *test.tolist()]) == list(range(n))
    assert np.all(np.diff(calibration) > 0)
    assert np.all(np.diff(test) > 0)
    assert np.array_equal(calibration, calibration_split(n, share, seed)[0])


def test_what_cannot_be_chosen_from_is_refused() -> None:
    good = np.arange(4.0)
    bad = np.array([0.0, np.nan, np.inf, 1.0])
    with pytest.raises(ValueError, match="2 of the 4 values of synflow are not finite"):
        choose({"fisher": good, "synflow": bad}, good, good)
    with pytest.raises(ValueError, match="2 of the 4 values of the result are not finite"):
        choose({"params": good}, bad, good)
    with pytest.raises(ValueError, match="2 of the 4 values of params are not finite"):
        choose({"params": good}, good, bad)
    with pytest.raises(ValueError, match=r"snip of shape \(3,\) does not pair with \(4,\)"):
        choose({"snip": good[:3]}, good, good)
    with pytest.raises(ValueError, match="none of 2 proxies has a rho"):
        choose({"a": good * 0, "b": good * 0}, good, good)
    with pytest.raises(ValueError, match="none of 1 proxies has a rho"):
        choose({"a": good}, good * 0, good)
    with pytest.raises(ValueError, match="none of 0 proxies has a rho"):
        choose({}, good, good)


def test_what_cannot_be_combined_is_refused() -> None:
    good = np.arange(4.0)
    libra = Libra("a", "b", None, {}, {}, {}, 0.0)
    with pytest.raises(ValueError, match="chosen proxy b was not measured; there are a, c"):
        combined(libra, {"a": good, "c": good})
    with pytest.raises(ValueError, match=r"b of shape \(3,\) does not pair with \(4,\)"):
        combined(libra, {"a": good, "b": good[:3]})
    with pytest.raises(ValueError, match="1 of the 4 values of b are not finite"):
        combined(libra, {"a": good, "b": np.array([1.0, 2.0, np.nan, 3.0])})


@pytest.mark.parametrize(("n", "share"), [(1, 0.5), (0, 0.5), (10, 0.01), (10, 0.99), (10, 1.5), (10, -0.5)])
def test_a_split_with_an_empty_part_is_refused(n: int, share: float) -> None:
    with pytest.raises(ValueError, match=f"of {n} architectures leaves one part empty"):
        calibration_split(n, share)
