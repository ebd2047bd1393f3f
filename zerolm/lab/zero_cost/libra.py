"""LIBRA (arXiv 2505.07300): three proxies that rank a space well together, chosen by some labels.

The choice needs trained results, so what it wins may only be judged on architectures it has not seen.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import numpy as np

from zerolm.architecture import Floats, Ints
from zerolm.lab.zero_cost.combine import rank_product
from zerolm.lab.zero_cost.result import LibraChoice
from zerolm.statistics import TOLERANCE, agreement, defined, spearman, tie_ranks
from zerolm.statistics.correlations import quantiles

FEWEST: Final = 20
"""Labels below which halves of them say nothing."""
BINS: Final = 10
"""Quantile bins of the result and of each proxy, by whose frequencies entropies are; the paper says none."""
WITHIN: Final = 0.1
"""How far below the best rho that of a candidate for the other places may be."""


def judge(columns: Mapping[str, Floats], result: Floats, params: Floats, seed: int = 0) -> LibraChoice | None:
    """Return the choice by half of the architectures, and how it does on the other half.

    ``columns``, ``result`` and ``params`` are (n,), the first two "higher is better". The paper does not say
    how the chosen proxies are merged; here it is by AZ-NAS's sum of log ranks. None with too few labels, or
    proxies that vary.
    """
    if len(result) < FEWEST:
        return None
    chosen, held = halves(len(result), seed)
    varying = {name: values[chosen] for name, values in columns.items() if np.ptp(values[chosen]) > 0}
    names = choose(varying, result[chosen], params[chosen]) if len(varying) > 1 else []
    if not names:
        return None
    score = rank_product(np.array([columns[name][held] for name in names]))
    reached, by_params = agreement(score, result[held]), agreement(params[held], result[held])
    values = map(defined, (reached.tau, reached.rho, by_params.tau))
    return LibraChoice(names, len(chosen), len(held), *values)


def halves(n: int, seed: int = 0) -> tuple[Ints, Ints]:
    """Return the architectures, of n, to choose by and those to judge on: disjoint, ascending indices."""
    order = np.random.default_rng(seed).permutation(n)
    half = round(n / 2)
    return np.sort(order[:half]), np.sort(order[half:])


def choose(proxies: Mapping[str, Floats], result: Floats, params: Floats | Ints) -> list[str]:
    """Return LIBRA's choice among ``proxies`` by the ``result`` and the ``params`` of n architectures.

    All are (n,), proxies and result "higher is better". First is the proxy of highest rho; the candidates
    for the other places are those whose rho is less than ``WITHIN`` below it. Second is the candidate z of
    least information gain H(y | z1) - H(y | z1, z), third the remaining one whose bias, its rho with the
    parameters, is nearest to the result's (of networks of one size all biases are 0). Without candidates
    there are fewer than three, none where no proxy has a rho; of equal ones the one given first is taken.

    A value is in the bin of how many of the quantiles 1 / bins, 2 / bins ... lie below it, so ties are never
    parted and only the order counts. With few labels a cell of z1 and z, the gain is mostly chance: of 250
    labels and 10 bins, pure noise seems to gain 0.8 nats. What gains least is then what fills few cells, a
    proxy that is like z1 or has few values. ``ValueError`` for values that do not pair or are not finite.
    """
    rho = {name: value for name, value in _rho(proxies, result).items() if not np.isnan(value)}
    if not rho:
        return []
    first = _least({name: -value for name, value in rho.items()})
    lowest = rho[first] - WITHIN + TOLERANCE
    rest = [name for name, value in rho.items() if value > lowest and name != first]
    if not rest:
        return [first]

    outcome, best = _binned(result, 0.0), _binned(proxies[first])
    second = _least({name: information_gain(outcome, best, _binned(proxies[name])) for name in rest})
    rest.remove(second)
    if not rest:
        return [first, second]

    sizes = np.asarray(params, np.float64)
    rhos = _rho({**{name: proxies[name] for name in rest}, "": result}, sizes)
    bias = {name: float(np.nan_to_num(value)) for name, value in rhos.items()}
    return [first, second, _least({name: abs(bias[name] - bias[""]) for name in rest})]


def information_gain(outcome: Ints, first: Ints, other: Ints) -> float:
    """H(y | first) - H(y | first, other) >= 0 in nats of bins (n,), by their observed frequencies."""
    without = _entropy(outcome, first) - _entropy(first)
    return max(0.0, without - (_entropy(outcome, first, other) - _entropy(first, other)))


def _entropy(*bins: Ints) -> float:
    """The joint entropy of bins (n,); sorted counts, so that bins of other names give the same float."""
    counts = np.sort(np.unique(np.stack(bins), axis=1, return_counts=True)[1])
    n = int(np.sum(counts))
    return float(np.log(n) - np.sum(counts * np.log(counts)) / n)


def _binned(values: Floats, tolerance: float = TOLERANCE) -> Ints:
    """The quantile bin (n,) of each value, by its rank."""
    ranks = tie_ranks(values, tolerance)
    return np.asarray(np.searchsorted(quantiles(ranks, range(1, BINS), BINS), ranks), np.int64)


def _rho(proxies: Mapping[str, Floats], other: Floats) -> dict[str, float]:
    """Return Spearman's rho of each proxy, nan where one side is constant."""
    return {name: float(spearman(np.asarray(values)[None], other)[0]) for name, values in proxies.items()}


def _least(values: Mapping[str, float]) -> str:
    """The first name whose value is the least, but for rounding."""
    bound = min(values.values()) + TOLERANCE
    return next(name for name, value in values.items() if value <= bound)
