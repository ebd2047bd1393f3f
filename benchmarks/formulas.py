"""Label-free formulas as data: terms of layers, factors of depth, forms of whole networks, pools of ranks."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import numpy as np

from zerolm.architecture import Bools, Floats
from zerolm.scores import ScoreBatch
from zerolm.scores.capacity import shannon_transform
from zerolm.statistics import tie_ranks

One = Callable[["Networks"], Floats]
Two = Callable[[Floats, Floats], Floats]


@dataclass(frozen=True, eq=False)
class Networks:
    """Totals over the layers of n networks, (n,) each; ``a`` and ``f`` are attention and FFN weights."""

    a: Floats
    f: Floats
    geo: Floats
    ln_geo: Floats
    depth: Floats
    width: Floats

    @property
    def body(self) -> Floats:
        return self.a + self.f

    @property
    def threshold(self) -> Floats:
        """log3 of the width: the depth beyond which layers are said to add little."""
        return np.log(self.width) / np.log(3.0)

    @property
    def x(self) -> Floats:
        return self.depth / self.threshold


def share(s: float) -> Two:
    return lambda a, f: a**s * f ** (1 - s)


def power_mean(p: float) -> Two:
    return lambda a, f: (a**p / 2 + f**p / 2) ** (1 / p)


MEANS: dict[str, Two] = {
    **{f"A^{s:g} F^{1 - s:g}": share(s) for s in (0.5, 0.4, 0.45, 0.55, 0.6, 0.667, 0.75)},
    **{f"M({p:g})": power_mean(p) for p in (-1, -0.5, -0.34, -0.2, -0.076, 0.5)},
    "A + F": np.add,
}
"""Of degree one in attention and FFN weights, M(p) the power means: of each layer, and of the totals."""
OTHER_MEANS: dict[str, Two] = {
    **{f"A^{s:g} F^{1 - s:g}": share(s) for s in (0, 0.25, 0.333, 1)},
    **{f"M({p:g})": power_mean(p) for p in (-2, 2)},
    **{f"geo^{q:g}": lambda a, f, q=q: (a * f) ** (q / 2) for q in (0.25, 0.5, 0.75, 1.25, 1.5)},
    **{f"(A + F)^{q:g}": lambda a, f, q=q: (a + f) ** q for q in (0.25, 0.5, 0.75, 1.25, 1.5)},
    "min(A, F)": np.minimum,
    "max(A, F)": np.maximum,
    "ln geo": lambda a, f: np.log(a * f) / 2,
    "ln(A + F)": lambda a, f: np.log(a + f),
    "geo + (A + F) / 2": lambda a, f: np.sqrt(a * f) + (a + f) / 2,
}
WIDTHS: dict[str, Callable[[Floats, Floats, Floats], Floats]] = {
    **{f"w^{q:g}": lambda a, f, w, q=q: w**q for q in (1, 1.5, 2)},
    "w sqrt(A + F)": lambda a, f, w: w * np.sqrt(a + f),
    "w sqrt A": lambda a, f, w: w * np.sqrt(a),
    "w sqrt F": lambda a, f, w: w * np.sqrt(f),
}
SPECTRA: dict[str, Two] = {
    "stable rank": lambda k, m: k * m / (np.sqrt(k) + np.sqrt(m)) ** 2,
    "capacity": lambda k, m: k * shannon_transform(2 * m / (k + m), k / m),
    "km/(k + m)": lambda k, m: k * m / (k + m),
    "k": lambda k, m: k,
    "m": lambda k, m: m,
    "ln km": lambda k, m: np.log(k * m),
    **{f"(km)^{q:g}": lambda k, m, q=q: (k * m) ** q for q in (0.5, 0.75, 1.25)},
}
"""Of one projection with sides k <= m: summed (S), or the geometric mean of both roles' sums (G)."""

BASES, POWERS = (2.0, np.e, 3.0, 4.0, 6.0), (0.25, 0.5, 1.0)


def discount(base: float, power: float) -> One:
    return lambda n: np.minimum(1, n.depth * np.log(base) / np.log(n.width)) ** power


def discount_name(base: float, power: float) -> str:
    return f"min(1, L/log{base:.3g} d)^{power:g}"


BOUNDED: dict[str, One] = {
    "1": lambda n: np.ones_like(n.x),
    **{discount_name(b, q): discount(b, q) for b in BASES for q in POWERS},
    discount_name(3, 2): discount(3, 2),
    **{f"x/(x + {c:g})": lambda n, c=c: n.x / (n.x + c) for c in (0.25, 0.5, 1, 2)},
    **{f"x^2/(x^2 + {c:g})": lambda n, c=c: n.x**2 / (n.x**2 + c) for c in (0.25, 1)},
    **{f"x/(1 + x^{q})^(1/{q})": lambda n, q=q: n.x / (1 + n.x**q) ** (1 / q) for q in (2, 4)},
    **{f"1 - exp(-{c} x)": lambda n, c=c: 1 - np.exp(-c * n.x) for c in (1, 2)},
    **{f"1 - {b:.3g}^-L": lambda n, b=b: 1 - b**-n.depth for b in (2, np.e, 3)},
    **{f"L/(L + {c})": lambda n, c=c: n.depth / (n.depth + c) for c in (1, 2)},
    **{f"min(1, 3^L/d)^{q:g}": lambda n, q=q: np.minimum(1, 3**n.depth / n.width) ** q for q in (0.25, 1)},
    "tanh x": lambda n: np.tanh(n.x),
    "1 - 1/L": lambda n: 1 - 1 / n.depth,
}
"""Factors of depth that tend to 1, with x = L / log3 d."""
UNBOUNDED: dict[str, One] = {
    **{f"L^{q:g}": lambda n, q=q: n.depth**q for q in (-0.5, -0.25, 0.25, 0.5, 1)},
    **{f"d^{q:g}": lambda n, q=q: n.width**q for q in (-0.5, -0.25, 0.25)},
    **{f"(L/d)^{q:g}": lambda n, q=q: (n.depth / n.width) ** q for q in (0.0625, 0.125, 0.25)},
    "ln(L + 1)": lambda n: np.log(n.depth + 1),
    "ln(L + 1)/L": lambda n: np.log(n.depth + 1) / n.depth,
}
ASPECTS: dict[str, One] = {
    **{f"exp(-{c:g} L/d)": lambda n, c=c: np.exp(-c * n.depth / n.width) for c in (1, 2.5, 5)},
    **{f"1/(1 + {c} L/d)": lambda n, c=c: 1 / (1 + c * n.depth / n.width) for c in (1, 4, 8)},
    "1/(1 + log3 d L/d)": lambda n: 1 / (1 + n.threshold * n.depth / n.width),
}
"""Penalties of networks deep for their width, times a bounded factor."""
ASPECT_TERMS = (
    "A^0.5 F^0.5", "A^0.4 F^0.6", "A^0.6 F^0.4", "A^0.667 F^0.333", "A + F", "(A + F)^0.75", "geo^0.5",
    "geo^0.75", "S stable rank", "S capacity", "S km/(k + m)", "G stable rank", "G km/(k + m)", "w^1.5",
    "w sqrt F", "totals A^0.5 F^0.5", "totals A^0.6 F^0.4", "totals M(-0.076)", "totals M(-0.2)",
)  # fmt: skip

EXPONENTS = (0.05, 0.076, 0.1, 0.2, 0.34, 0.5, 1)
SHAPES: dict[str, One] = {
    "L": lambda n: n.depth,
    "L d": lambda n: n.depth * n.width,
    "A": lambda n: n.a,
    "geo": lambda n: n.geo,
}
NETWORK: dict[str, One] = {
    **{f"-(A^-{q} + F^-{q})": lambda n, q=q: -(n.a**-q + n.f**-q) for q in EXPONENTS},
    **{f"-(A^-{q} + F^-{q} + x^-{q})": lambda n, q=q: -(n.a**-q + n.f**-q + n.x**-q) for q in EXPONENTS},
    **{
        f"-({name}^-{q} + L^-{q} + d^-{2 * q})": lambda n, q=q, size=size: (
            -(size(n) ** -q + n.depth**-q + n.width ** (-2 * q))
        )
        for q in EXPONENTS
        for name, size in {"P": lambda n: n.body, "geo": lambda n: n.geo}.items()
    },
    **{
        f"-(L^-{q} + d^-{e * q})": lambda n, q=q, e=e: -(n.depth**-q + n.width ** (-e * q))
        for q in EXPONENTS
        for e in (1, 2)
    },
    **{
        f"L^{q:g} gmean(geo)": lambda n, q=q: n.depth**q * np.exp(n.ln_geo / n.depth)
        for q in (0.5, 0.75, 1.25, 1.5, 2)
    },
    "geo/L harmonic(L, log3 d)": lambda n: n.geo / (n.depth + n.threshold) * n.threshold,
    "geo/L harmonic(L, d)": lambda n: n.geo / (n.depth + n.width) * n.width,
    "geo/L min(L, log3 d)": lambda n: n.geo / n.depth * np.minimum(n.depth, n.threshold),
    **{
        f"octave of A + F, then {name}": lambda n, shape=shape: (
            10 * np.round(np.log2(n.body)) + np.log2(shape(n))
        )
        for name, shape in SHAPES.items()
    },
}
"""Scaling laws, negated as they give a loss; depth and width as bottlenecks; shape only among equal sizes."""

POOLED = (
    "A^0.5 F^0.5", "A + F", "A^1 F^0", "A^0 F^1", "S stable rank", "S capacity", "S (km)^0.5", "S ln km",
    "w^1", "w^2", "geo x/(x + 1)", "L", "d",
)  # fmt: skip
POOLINGS: dict[str, Callable[[Floats], Floats]] = {
    "mean rank": lambda ranks: ranks.sum(axis=0),
    "mean log rank": lambda ranks: np.log(ranks).sum(axis=0),
    "lowest rank": lambda ranks: ranks.min(axis=0) + 1e-6 * ranks.sum(axis=0),
}


class Formula(NamedTuple):
    """``term`` is a layer's, summed, unless it names totals or the kind says otherwise."""

    kind: str
    term: str
    factor: str = "1"

    def __str__(self) -> str:
        return self.term if self.factor == "1" else f"{self.term}; {self.factor}"


LAYER, TOTAL, ASPECT, WHOLE, POOL = KINDS = (
    "layer term x depth factor",
    "mean of totals x depth factor",
    "term x bounded factor x aspect",
    "network form",
    "rank pool",
)
GEO = Formula(LAYER, "A^0.5 F^0.5")
GEO_DEPTH = Formula(LAYER, "A^0.5 F^0.5", discount_name(3, 0.5))


def scores(batch: ScoreBatch) -> Iterator[tuple[Formula, Floats]]:
    """Every formula, with its value (n,) for each network of a batch."""
    sums, networks = _sums(batch)
    factors = {name: of(networks) for name, of in {**BOUNDED, **UNBOUNDED}.items()}
    for term, total in sums.items():
        kind = TOTAL if term.startswith("totals ") else LAYER
        for name, factor in factors.items():
            yield Formula(kind, term, name), total * factor
    for term, bounded, (name, aspect) in itertools.product(ASPECT_TERMS, BOUNDED, ASPECTS.items()):
        value = sums[term] * factors[bounded] * aspect(networks)
        yield Formula(ASPECT, term, f"{bounded}; {name}" if bounded != "1" else name), value
    for name, of in NETWORK.items():
        yield Formula(WHOLE, name), of(networks)
    saturating = networks.geo * factors["x/(x + 1)"]
    single = {**sums, "geo x/(x + 1)": saturating, "L": networks.depth, "d": networks.width}
    ranks = {name: _average_ranks(single[name]) for name in POOLED}
    for size, (name, pooling) in itertools.product((2, 3), POOLINGS.items()):
        for names in itertools.combinations(POOLED, size):
            yield Formula(POOL, ", ".join(names), name), pooling(np.stack([ranks[each] for each in names]))


def _sums(batch: ScoreBatch) -> tuple[dict[str, Floats], Networks]:
    """Each term summed over the layers of each network, (n,), and the networks."""
    total = partial(np.add.reduceat, indices=np.cumsum(batch.depths) - batch.depths)
    shapes = batch.shapes
    rows, cols = shapes.rows // shapes.parts, shapes.cols
    k = np.where(shapes.present, np.minimum(rows, cols), 1).astype(np.float64)
    m = np.where(shapes.present, np.maximum(rows, cols), 1).astype(np.float64)

    def role(values: Floats, which: Bools) -> Floats:
        return (values * shapes.parts * (which & shapes.present)).sum(axis=1)

    a, f = role(k * m, shapes.attention), role(k * m, shapes.ffn)
    w = shapes.width.astype(np.float64)
    sums = {name: total(mean(a, f)) for name, mean in {**MEANS, **OTHER_MEANS}.items()}
    sums |= {name: total(term(a, f, w)) for name, term in WIDTHS.items()}
    for name, of in SPECTRA.items():
        attention, ffn = role(of(k, m), shapes.attention), role(of(k, m), shapes.ffn)
        sums |= {f"S {name}": total(attention + ffn), f"G {name}": total(np.sqrt(attention * ffn))}
    sums |= {f"totals {name}": mean(total(a), total(f)) for name, mean in MEANS.items()}
    geo, ln_geo = total(np.sqrt(a * f)), total(np.log(a * f) / 2)
    return sums, Networks(total(a), total(f), geo, ln_geo, batch.depths.astype(np.float64), batch.widths)


def _average_ranks(values: Floats) -> Floats:
    """Ranks from 1, ties sharing their average."""
    ranks = tie_ranks(values)
    sizes = np.bincount(ranks)
    return np.asarray((np.cumsum(sizes) - (sizes - 1) / 2.0)[ranks])
