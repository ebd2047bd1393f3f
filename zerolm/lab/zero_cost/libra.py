"""LIBRA (arXiv 2505.07300): three proxies that rank a space well together, chosen by some labels.

The choice needs trained results, so what it wins may only be judged on architectures it has not seen:
``calibration_split`` says which are which, ``choose`` is given the first, ``combined`` ranks the others.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from zerolm.architecture import Floats, Ints
from zerolm.lab.zero_cost.combine import rank_product
from zerolm.lab.zero_cost.result import LibraChoice
from zerolm.statistics import TOLERANCE, agreement, defined, spearman, tie_ranks
from zerolm.statistics.ranks import quantiles

FEWEST: Final = 20
"""Labels below which halves of them say nothing."""


@dataclass(frozen=True)
class Libra:
    """The proxies chosen, and why.

    ``rho`` is Spearman's with the result, of every proxy (nan where constant); ``gain`` the information
    gain in nats of the candidates for the second, ``bias`` Spearman's rho with the parameters of those for
    the third, and ``result_bias`` that of the result, to which theirs should be near.
    """

    first: str
    second: str | None
    third: str | None
    rho: Mapping[str, float]
    gain: Mapping[str, float]
    bias: Mapping[str, float]
    result_bias: float

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(name for name in (self.first, self.second, self.third) if name is not None)


def calibration_split(n: int, share: float = 0.5, seed: int = 0) -> tuple[Ints, Ints]:
    """The architectures, of n, to choose by and those to judge on: two disjoint, ascending index vectors.

    ``share`` of them is to choose by, rounded; ``ValueError`` where one part would be empty.
    """
    chosen = round(share * n)
    if not 0 < chosen < n:
        raise ValueError(
            f"a share of {share:g} of {n} architectures leaves one part empty; try 0.5 of 2 or more"
        )
    order = np.random.default_rng(seed).permutation(n)
    return np.sort(order[:chosen]), np.sort(order[chosen:])


def choose(
    proxies: Mapping[str, Floats],
    result: Floats,
    params: Floats | Ints,
    *,
    bins: int = 10,
    within: float = 0.1,
) -> Libra:
    """LIBRA's choice among ``proxies`` by the ``result`` and the ``params`` of n architectures, (n,) each.

    Proxies and result are "higher is better". First is the proxy of highest rho; the candidates for the
    other places are those whose rho is less than ``within`` below it. Second is the candidate z of least
    information gain H(y | z1) - H(y | z1, z), third the remaining one whose bias is nearest to the result's
    (of networks of one size all biases are 0). Without candidates there are fewer than three; of equal
    ones the one given first is taken.

    Entropies are those of the frequencies in ``bins`` quantile bins of the result and of each proxy (the
    paper says no number): a value is in the bin of how many of the quantiles 1 / bins, 2 / bins ... lie
    below it, so ties are never parted and only the order counts. With few labels a cell of z1 and z, the
    gain is mostly chance: of 250 labels and 10 bins, pure noise seems to gain 0.8 nats. What gains
    least is then what fills few cells, a proxy that is like z1 or has few values.

    ``ValueError`` for values that do not pair or are not finite, and where no proxy has a rho.
    """
    _check([*proxies.items(), ("the result", result), ("params", params)], np.shape(result))
    rho = _rho(proxies, result)
    defined = {name: value for name, value in rho.items() if not np.isnan(value)}
    if not defined:
        raise ValueError(f"none of {len(proxies)} proxies has a rho: they, or the result, are constant")
    first = _least({name: -value for name, value in defined.items()})
    lowest = defined[first] - within + TOLERANCE
    rest = [name for name, value in defined.items() if value > lowest and name != first]

    outcome, best = _binned(result, bins, 0.0), _binned(proxies[first], bins)
    gain = {name: information_gain(outcome, best, _binned(proxies[name], bins)) for name in rest}
    second = _least(gain) if gain else None

    sizes = np.asarray(params, np.float64)
    result_bias = _bias({"result": result}, sizes)["result"]
    bias = _bias({name: proxies[name] for name in rest if name != second}, sizes)
    third = _least({name: abs(value - result_bias) for name, value in bias.items()}) if bias else None
    return Libra(first, second, third, rho, gain, bias, result_bias)


def combined(libra: Libra, proxies: Mapping[str, Floats]) -> Floats:
    """The chosen ``proxies`` of m candidates as one score (m,), higher is better.

    The paper does not say how they are merged; here it is by AZ-NAS's sum of log ranks, within the
    candidates given, so scores of different pools do not compare. ``ValueError`` where a proxy is missing, or
    its values do not pair or are not finite.
    """
    missing = [name for name in libra.names if name not in proxies]
    if missing:
        raise ValueError(f"the chosen proxy {missing[0]} was not measured; there are {', '.join(proxies)}")
    chosen = [(name, proxies[name]) for name in libra.names]
    _check(chosen, np.shape(chosen[0][1]))
    return rank_product(np.array([values for _, values in chosen]))


def judge(columns: Mapping[str, Floats], result: Floats, params: Floats, seed: int = 0) -> LibraChoice | None:
    """None with too few labels, or proxies that vary. ``columns``, ``result``, ``params`` are (n,)."""
    if len(result) < FEWEST:
        return None
    chosen, held = calibration_split(len(result), seed=seed)
    varying = {name: values for name, values in columns.items() if np.ptp(values[chosen]) > 0}
    if len(varying) < 2 or np.ptp(result[chosen]) == 0:
        return None
    libra = choose({name: values[chosen] for name, values in varying.items()}, result[chosen], params[chosen])
    score = combined(libra, {name: values[held] for name, values in columns.items()})
    reached, by_params = agreement(score, result[held]), agreement(params[held], result[held])
    values = map(defined, (reached.tau, reached.rho, by_params.tau))
    return LibraChoice(list(libra.names), len(chosen), len(held), *values)


def information_gain(outcome: Ints, first: Ints, other: Ints) -> float:
    """H(y | first) - H(y | first, other) >= 0 in nats of bins (n,), by their observed frequencies."""
    without = _entropy(outcome, first) - _entropy(first)
    return max(0.0, without - (_entropy(outcome, first, other) - _entropy(first, other)))


def _entropy(*bins: Ints) -> float:
    """The joint entropy of bins (n,); sorted counts, so that bins of other names give the same float."""
    counts = np.sort(np.unique(np.stack(bins), axis=1, return_counts=True)[1])
    n = int(np.sum(counts))
    return float(np.log(n) - np.sum(counts * np.log(counts)) / n)


def _binned(values: Floats, bins: int, tolerance: float = TOLERANCE) -> Ints:
    """The quantile bin (n,) of each value, by its rank."""
    ranks = tie_ranks(values, tolerance)
    return np.asarray(np.searchsorted(quantiles(ranks, range(1, bins), bins), ranks), np.int64)


def _rho(proxies: Mapping[str, Floats], other: Floats) -> dict[str, float]:
    return {name: float(spearman(np.asarray(values)[None], other)[0]) for name, values in proxies.items()}


def _bias(proxies: Mapping[str, Floats], params: Floats) -> dict[str, float]:
    return {name: float(np.nan_to_num(rho)) for name, rho in _rho(proxies, params).items()}


def _least(values: Mapping[str, float]) -> str:
    """The first name whose value is the least, but for rounding."""
    bound = min(values.values()) + TOLERANCE
    return next(name for name, value in values.items() if value <= bound)


def _check(columns: Sequence[tuple[str, Floats | Ints]], shape: tuple[int, ...]) -> None:
    for name, values in columns:
        if len(shape) != 1 or np.shape(values) != shape:
            raise ValueError(f"{name} of shape {np.shape(values)} does not pair with {shape}: (n,) is needed")
        odd = np.count_nonzero(~np.isfinite(values))
        if odd:
            raise ValueError(f"{odd} of the {len(values)} values of {name} are not finite numbers")
