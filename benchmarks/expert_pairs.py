"""Experts chosen by pairs: gaps and seconds of the exact choice, and what relaxing and rounding loses.

    python benchmarks/expert_pairs.py > benchmarks/expert_pairs.md

The forms are synthetic, of the size of a layer: half of its experts leave. ``products`` are products of four
positive factors with noise on each pair; ``routed`` come from simulated tokens of eight topics that prefer
experts, eight experts a token, as HOPE takes means over the tokens that meet both, ``summed`` from the same
tokens over all of them.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize
from timing import machine, note, one_thread

from zerolm.solvers.quadratic import least_pairs

Form = NDArray[np.float64]
SIZES = (16, 32, 64, 128)
NOISES = (0.1, 0.3, 1.0)
ACTIVE, TOPICS, TOKENS = 8, 8, 16384


def products(experts: int, noise: float, rng: np.random.Generator) -> Form:
    """Products of few factors, every pair off by a share."""
    factors = rng.gamma(2.0, 0.5, (experts, 4))
    off = rng.normal(size=(experts, experts))
    return np.abs(factors @ factors.T * (1 + noise * (off + off.T) / 2))


def routed(experts: int, rng: np.random.Generator) -> tuple[Form, Form]:
    """Means over the tokens that meet both experts, and sums, from simulated tokens."""
    prefer, size = rng.normal(size=(TOPICS, experts)), np.exp(rng.normal(size=experts) / 2)
    logits = prefer[rng.integers(TOPICS, size=TOKENS)] + rng.normal(size=(TOKENS, experts))
    active = min(ACTIVE, experts // 4)
    index = np.argpartition(-logits, active, 1)[:, :active]
    gates = np.exp(np.take_along_axis(logits, index, 1))
    gates /= gates.sum(1, keepdims=True)
    sent = gates * size[index] * np.exp(0.3 * rng.normal(size=index.shape))
    met, weighed, rows = np.zeros_like(logits), np.zeros_like(logits), np.arange(TOKENS)[:, None]
    met[rows, index], weighed[rows, index] = 1.0, sent
    product = weighed.T @ weighed
    return product / np.maximum(met.T @ met, 1), product


def relaxed(form: Form, count: int) -> NDArray[np.int64]:
    """Relax and round, as published: SLSQP within 0 and 1, the largest leave."""
    scaled = form / form.max()
    result = minimize(
        lambda p: p @ scaled @ p,
        np.full(len(form), count / len(form)),
        jac=lambda p: (scaled + scaled.T) @ p,
        bounds=[(0.0, 1.0)] * len(form),
        constraints={"type": "eq", "fun": lambda p: p.sum() - count, "jac": np.ones_like},
        method="SLSQP",
        options={"maxiter": 500},
    )
    return np.argsort(-result.x, kind="stable")[:count]


def forms(experts: int, seed: int) -> Iterator[tuple[str, Form]]:
    """The forms of one size by name."""
    rng = np.random.default_rng((seed, experts))
    for noise in NOISES:
        yield f"products, {noise:.0%} noise", products(experts, noise, rng)
    yield from zip(("routed", "summed"), routed(experts, rng), strict=True)


def row(experts: int, name: str, each: list[Form]) -> str:
    """What several forms of one kind have at worst."""
    gaps, seconds, excess, single = [], [], [], []
    for form in each:
        start = time.perf_counter()
        least = least_pairs(form, experts // 2)
        seconds.append(time.perf_counter() - start)
        gaps.append(least.gap)
        for values, gone in (
            (excess, relaxed(form, experts // 2)),
            (single, np.argsort(form.diagonal(), kind="stable")[: experts // 2]),
        ):
            values.append(form[np.ix_(gone, gone)].sum() / least.value - 1)
    proven = sum(gap == 0 for gap in gaps)
    note(f"{experts} {name}: gaps {gaps}")
    return (
        f"| {experts} | {name} | {proven} of {len(each)} | {max(gaps):.3%} | {max(seconds):.1f} | "
        f"{np.mean(excess):.2%} | {max(excess):.2%} | {np.mean(single):.1%} |"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--draws", type=int, default=3)
    draws = parser.parse_args().draws
    lines = [
        "# Experts chosen by pairs\n",
        f"Written by `python benchmarks/expert_pairs.py`. Machine: {machine()}; one thread.",
        f"Half of the experts of a layer leave, {draws} draws a row. The gap is by what share another "
        "choice could lose less at most. The last columns say by what share more is lost where the form is "
        "relaxed and rounded as published, and where those of the least squares leave, without pairs.\n",
        "| experts | form | proven | gap at most | seconds at most | rounded | at most | no pairs |",
        "|---:|---|---:|---:|---:|---:|---:|---:|",
    ]
    for experts in SIZES:
        drawn = [dict(forms(experts, seed)) for seed in range(draws)]
        lines += [row(experts, name, [each[name] for each in drawn]) for name in drawn[0]]
    print("\n".join(lines))


if __name__ == "__main__":
    one_thread()
    sys.exit(main())
