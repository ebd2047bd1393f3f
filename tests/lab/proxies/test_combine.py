"""Merged ranks against scipy; L-SWAG's layers and codes against loops over bins and real sets."""

import math
from itertools import combinations_with_replacement, pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy import stats

from zerolm.architecture import Floats
from zerolm.lab.zero_cost.combine import layers_in, lswag, occurrences, rank_product, select_layers

SHAPES = hnp.array_shapes(min_dims=2, max_dims=2, min_side=1, max_side=9)
TERMS = hnp.arrays(np.float64, SHAPES, elements=st.integers(-4, 4).map(float))
CODES = st.lists(st.lists(st.integers(-5, 5), max_size=8), min_size=1, max_size=6)
WHOLE = st.integers(-3, 3).map(float)
NETWORKS = st.lists(st.lists(WHOLE, min_size=1, max_size=14), min_size=1, max_size=5)


@given(TERMS)
def test_merged_ranks_are_those_of_scipy(terms: Floats) -> None:
    ranks = stats.rankdata(terms, axis=1)
    assert rank_product(terms) == pytest.approx(np.log(ranks / terms.shape[1]).sum(axis=0), abs=1e-12)


def selected(networks: list[list[float]], threshold: float) -> tuple[int, int]:
    """``select_layers`` bin by bin, with the bins as the paper writes them."""
    bins: list[list[float]] = [[] for _ in range(10)]
    for layers in networks:
        for layer, value in enumerate(layers):
            bins[int((layer / len(layers)) * 100 // (100 / 10))].append(value)
    means = {b: math.fsum(values) / len(values) for b, values in enumerate(bins) if values}
    centre = math.fsum(means.values()) / len(means)
    spread = math.sqrt(math.fsum((mean - centre) ** 2 for mean in means.values()) / len(means))
    above = {b for b, mean in means.items() if spread > 1e-9 and (mean - centre) / spread > threshold}
    if not above:
        return 0, 9
    best = (0, -1)
    for first, last in combinations_with_replacement(sorted(above), 2):
        inside = [b for b in means if first <= b <= last]
        peak = any(means[b] >= max(means.values()) - 1e-9 for b in inside)
        if peak and above.issuperset(inside) and last - first > best[1] - best[0]:
            best = first, last
    return best


@given(NETWORKS, st.sampled_from([0.02, 0.53, 1.07]))
def test_layers_are_selected_as_by_walks_over_bins(networks: list[list[float]], threshold: float) -> None:
    log_sigma = [np.array(layers) for layers in networks]
    assert select_layers(log_sigma, threshold=threshold) == selected(networks, threshold)


@given(st.lists(st.integers(1, 20), min_size=1, max_size=4), st.floats(-9, 9))
def test_rounding_is_no_spike(depths: list[int], value: float) -> None:
    assert select_layers([np.full(depth, value) for depth in depths]) == (0, 9)


@given(st.integers(0, 9), st.integers(0, 9), st.integers(1, 40))
def test_layers_of_bins_are_an_interval_and_the_nearest_there_is(a: int, b: int, depth: int) -> None:
    first, last = min(a, b), max(a, b)
    found = layers_in((first, last), depth)
    assert found
    assert all(right == left + 1 for left, right in pairwise(found))
    bins = [int((layer / depth) * 100 // (100 / 10)) for layer in range(depth)]
    away = [min(abs(bin_ - inside) for inside in range(first, last + 1)) for bin_ in bins]
    assert found == [layer for layer in range(depth) if away[layer] == min(away)]


@given(CODES)
def test_occurrences_are_those_of_sets(codes: list[list[int]]) -> None:
    depth = len(codes)
    expected = np.zeros((depth + 1, depth), np.int64)
    for layer, own in enumerate(codes):
        for code in set(own):
            earlier = [before for before in range(layer) if code in codes[before]]
            expected[max(earlier, default=-1) + 1, layer] += 1
    found = occurrences([np.array(own, np.int64) for own in codes])
    assert np.array_equal(found, expected)
    assert found.sum() == sum(len(set(own)) for own in codes)


@given(CODES, st.data())
def test_lswag_counts_the_union_of_the_codes(codes: list[list[int]], data: st.DataObject) -> None:
    depth = len(codes)
    gradients = np.array(data.draw(st.lists(WHOLE, min_size=depth, max_size=depth)))
    fresh = occurrences([np.array(own, np.int64) for own in codes])
    for first, last in combinations_with_replacement(range(depth), 2):
        psi = len({code for own in codes[first : last + 1] for code in own})
        score = lswag(gradients, fresh, range(first, last + 1))
        assert score == gradients[first : last + 1].sum() * psi


def test_codes_of_all_64_bits_are_told_apart() -> None:
    extremes = np.array([np.iinfo(np.int64).min, -1, 0, np.iinfo(np.int64).max], np.int64)
    assert occurrences([extremes, extremes[:3]]).tolist() == [[4, 0], [0, 3], [0, 0]]
