"""Hypothesis strategies: layers, architectures, and small tables whose arithmetic is exact in floats."""

import numpy as np
from hypothesis import strategies as st

from zerolm.architecture import Architecture, Ends, Layer, Matrix, Role
from zerolm.costs import COSTS
from zerolm.solvers.problem import Budgets, Problem
from zerolm.spaces import CandidateTable

SIZES = st.integers(1, 96)


@st.composite
def matrices(draw: st.DrawFn) -> Matrix:
    """An attention matrix (perhaps three projections fused) or an FFN matrix."""
    role: Role = draw(st.sampled_from(("attention", "ffn")))
    parts = draw(st.sampled_from((1, 3))) if role == "attention" else 1
    name = draw(st.sampled_from(("", "q", "up")))
    return Matrix(role, parts * draw(SIZES), draw(SIZES), parts, draw(st.booleans()), name)


@st.composite
def layers(draw: st.DrawFn) -> Layer:
    vectors = draw(st.integers(0, 500))
    drawn = draw(st.lists(matrices(), min_size=1, max_size=5))
    return Layer(
        matrices=tuple(drawn), width=draw(SIZES), query_width=draw(st.integers(0, 96)),
        kv_width=draw(st.integers(0, 96)), vectors=vectors, body_vectors=draw(st.integers(0, vectors)),
        idle=draw(st.integers(0, sum(matrix.weights for matrix in drawn))),
        idle_vectors=draw(st.integers(0, vectors)),
    )  # fmt: skip


@st.composite
def ends(draw: st.DrawFn) -> Ends:
    heads = draw(st.lists(st.tuples(SIZES, SIZES), max_size=2))
    vectors = draw(st.integers(0, 500))
    return Ends(
        embedding=draw(st.integers(0, 10_000)),
        tied_head=draw(st.integers(0, 10_000)),
        head_matrices=tuple(Matrix("head", rows, cols) for rows, cols in heads),
        vectors=vectors,
        body_vectors=draw(st.integers(0, vectors)),
    )


@st.composite
def architectures(draw: st.DrawFn, max_depth: int = 5) -> Architecture:
    drawn = draw(st.lists(layers(), min_size=1, max_size=max_depth))
    return Architecture("drawn", {}, tuple(drawn), draw(ends()))


@st.composite
def tables(draw: st.DrawFn, max_candidates: int = 4) -> CandidateTable:
    """Candidates with ties, duplicates, scores of either sign, and costs on a lattice or not."""
    count = draw(st.integers(1, max_candidates))
    column = st.lists(st.integers(0, 5), min_size=count, max_size=count)
    units = draw(st.lists(st.sampled_from((0, 1, 3, 64)), min_size=len(COSTS), max_size=len(COSTS)))
    scores = draw(st.lists(st.integers(-6, 6), min_size=count, max_size=count))
    return CandidateTable(
        np.array(scores) / draw(st.sampled_from((1.0, 8.0))),
        np.stack([unit * np.array(draw(column), np.int64) for unit in units], axis=1),
        tuple(draw(st.lists(st.integers(1, 3), min_size=count, max_size=count))),
    )


@st.composite
def problem_lists(
    draw: st.DrawFn, max_problems: int = 3, max_blocks: int = 2, max_count: int = 3
) -> list[Problem]:
    """Problems of several blocks that share tables, as the backbones of a space do."""
    shared = draw(st.lists(tables(), min_size=1, max_size=2))
    blocks = st.lists(
        st.tuples(st.sampled_from(shared), st.integers(1, max_count)), min_size=1, max_size=max_blocks
    )
    own_costs = st.lists(st.integers(0, 12), min_size=len(COSTS), max_size=len(COSTS))
    return [
        Problem(
            tuple(draw(blocks)),
            np.array(draw(own_costs), np.int64),
            draw(st.sampled_from((0.5, 1.0, 2.0))),
            draw(st.sampled_from((0.0, 0.0, -1.5, 4.0))),
        )
        for _ in range(draw(st.integers(1, max_problems)))
    ]


@st.composite
def limits(draw: st.DrawFn, problems: list[Problem], columns: int = 3, lower: bool = True) -> Budgets:
    """Budgets on a few costs, at values that some architectures keep and others break."""
    budgets = Budgets()
    lows, highs = zip(*(problem.extreme_costs for problem in problems), strict=True)
    for column in draw(st.sets(st.integers(0, len(COSTS) - 1), max_size=columns)):
        low, high = int(np.min(lows, axis=0)[column]), int(np.max(highs, axis=0)[column])
        budgets.high[column] = draw(st.integers(low, high))
        if lower and draw(st.booleans()):
            budgets.low[column] = draw(st.integers(low, int(budgets.high[column])))
    return budgets
