"""The knapsack of trees of choices: what is found equals the best of all that there is."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from zerolm.carving.bits.options import All, Either, Options, Picks, Tree, least_bytes, least_loss

names = itertools.count()


def options(name: int, rows: list[tuple[int, float]]) -> Options:
    """Return a table of (bytes, loss)."""
    sizes, losses = zip(*rows, strict=True)
    return Options(name, np.array(sizes, np.int64), np.array(losses, np.float64))


LOSSES = st.sampled_from([0.0, 0.25, 0.5, 1.0, 2.0, 3.5, 7.0]) | st.floats(0, 10)
TABLES = st.lists(st.tuples(st.integers(0, 50), LOSSES), min_size=1, max_size=4).map(
    lambda rows: options(next(names), rows)
)
TREES = st.recursive(
    TABLES,
    lambda parts: (
        st.lists(parts, min_size=1, max_size=3).map(lambda each: All(tuple(each)))
        | st.lists(parts, min_size=1, max_size=3).map(lambda each: Either(next(names), tuple(each)))
    ),
    max_leaves=6,
)


def every(tree: Tree) -> Iterator[tuple[Picks, int, float]]:
    """Yield all choices with their bytes and losses."""
    if isinstance(tree, Options):
        for row, (size, loss) in enumerate(zip(tree.bytes.tolist(), tree.loss.tolist(), strict=True)):
            yield {tree.name: row}, size, loss
    elif isinstance(tree, Either):
        for place, part in enumerate(tree.parts):
            for picks, size, loss in every(part):
                yield {tree.name: place, **picks}, size, loss
    else:
        for parts in itertools.product(*(list(every(part)) for part in tree.parts)):
            picks = {name: row for each, _, _ in parts for name, row in each.items()}
            yield picks, sum(size for _, size, _ in parts), sum(loss for _, _, loss in parts)


@settings(max_examples=200)
@given(TREES, st.integers(0, 200), st.just(np.inf) | st.floats(0, 20))
def test_the_least_loss_is_that_of_all_choices(tree: Tree, budget: int, below: float) -> None:
    able = [(loss, size) for _, size, loss in every(tree) if size <= budget and loss < below - 1e-9]
    best = least_loss(tree, budget, below)
    if not able:
        assert best is None or best.loss >= below - 1e-9
        return
    assert best is not None
    assert abs(best.loss - min(able)[0]) <= 1e-9
    assert best.bytes <= budget
    assert (best.picks, best.bytes) in [(picks, size) for picks, size, _ in every(tree)]


@given(TREES)
def test_the_fewest_bytes_are_those_of_all_choices(tree: Tree) -> None:
    least = min(size for _, size, _ in every(tree))
    assert least_bytes(tree) == least
    assert least_loss(tree, least - 1) is None
    assert least_loss(tree, least) is not None


def test_bytes_of_gigabytes_round_no_bound_away() -> None:
    rng = np.random.default_rng(0)
    sizes = np.array([1 << 28, 1 << 29, 1 << 30])
    tables = [
        options(i, list(zip(sizes.tolist(), np.sort(rng.random(3))[::-1] * 1e-4, strict=True)))
        for i in range(6)
    ]
    tree = All(tuple(tables))
    budget = int(3.5e9)
    best = least_loss(tree, budget)
    assert best is not None
    assert np.isclose(best.loss, min(loss for _, size, loss in every(tree) if size <= budget), rtol=1e-12)


@settings(max_examples=200)
@given(st.integers(0, 2**32 - 1))
def test_a_budget_of_the_fewest_bytes_is_kept(seed: int) -> None:
    """Losses are small there beside what a byte is worth, and sums of them are rounded."""
    rng = np.random.default_rng(seed)

    def table(_: int) -> Tree:
        sizes = np.array([16 * 96, 8 * 96, 4.5 * 96], np.int64) * int(rng.integers(1, 200))
        return Options(next(names), sizes, np.sort(10 ** rng.uniform(-12, -2, 3)))

    layers = (Either(next(names), (All(tuple(map(table, range(7)))),)) for _ in range(4))
    tree = All((*layers, table(0)))
    least = least_bytes(tree)
    best = least_loss(tree, least)
    assert best is not None
    assert best.bytes == least
    assert least_loss(tree, least - 1) is None
