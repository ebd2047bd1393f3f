"""The least loss within bytes over a tree of choices, exactly: a knapsack of tensors, units and layers.

A tree is a sum of parts (``All``), a choice of one of several (``Either``), or a table of options of which
one is chosen (``Options``), such as the types of a tensor. For a multiplier l the minimum of loss + l x bytes
separates over the parts. That minimum minus l x budget is a lower bound of the loss (Lagrange). A
partial choice may be excluded if its excess over the parts' own minimum is larger than the gap between the
bound and a known solution. Few choices remain, and dynamic programming over bytes and loss tries all of them.
Where a single part takes many bytes, such as a layer of a mixture of experts, the gap is wide and many
remain. Then each alternative of that part is bounded and searched on its own (branch and bound).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from zerolm.architecture import Floats, Ints

STEPS: Final = 60
"""Number of bisections of the logarithm of the multiplier."""
MULTIPLIERS: Final = (1e-30, 1e6)
SLACK: Final = 1e-12
"""Tolerance for rounding, relative to the loss and to multiplier x budget."""
MOST: Final = 300_000
"""Pairs of partial choices in one sum, above which a tree is divided."""
SHARES: Final = (1 / 64, 1 / 8, 1.0)
"""Shares of the gap that are searched, one after the other."""


@dataclass(frozen=True, eq=False)
class Options:
    """A table of which one row is chosen: ``bytes`` (n,) int64 and ``loss`` (n,); ``name`` identifies it."""

    name: Any
    bytes: Ints
    loss: Floats


@dataclass(frozen=True, eq=False)
class All:
    """A sum of parts."""

    parts: tuple[Tree, ...]


@dataclass(frozen=True, eq=False)
class Either:
    """A choice of one of several parts; ``name`` identifies it."""

    name: Any
    parts: tuple[Tree, ...]


Tree = Options | All | Either
Picks = dict[Any, int]
"""The chosen row or part, by the names of ``Options`` and ``Either``."""


@dataclass(frozen=True, eq=False)
class Best:
    picks: Picks
    bytes: int
    loss: float


@dataclass(frozen=True, eq=False)
class Undominated:
    """Choices that no other beats in bytes and loss: ``bytes`` (n,), ``loss`` (n,), and the picks of each."""

    bytes: Ints
    loss: Floats
    picks: Callable[[int], Picks]


@dataclass(frozen=True, eq=False)
class Relaxed:
    """A tree with the ``multiplier`` of its best ``bound``, and the loss of a ``feasible`` choice."""

    tree: Tree
    multiplier: float
    bound: float
    feasible: float


class _TooMany(Exception):
    """More pairs of partial choices than were allowed."""


def least_loss(tree: Tree, budget: int, below: float = np.inf) -> Best | None:
    """Return the choice of least loss within a budget, of equals the smallest; None if none is ``below``."""
    best: Best | None = None
    limit, trees = below, _relaxed([tree], budget)
    while trees:
        relaxed, *trees = sorted(trees, key=lambda one: one.bound)
        limit = min(limit, relaxed.feasible)
        rounding = SLACK * max(abs(limit), abs(relaxed.bound), relaxed.multiplier * budget)
        if relaxed.bound >= below or relaxed.bound > limit + rounding:
            break
        gap = max(0.0, limit - relaxed.bound)
        divided = _divided(relaxed, gap + rounding)
        try:
            choice = _searched(relaxed, budget, gap, rounding, MOST if divided else np.inf)
        except _TooMany:
            trees += _relaxed(divided, budget)
            continue
        if choice is not None and choice.loss < below:
            best = min(filter(None, (best, choice)), key=lambda one: (one.loss, one.bytes))
            limit = min(limit, best.loss)
    return best


def _searched(relaxed: Relaxed, budget: int, gap: float, rounding: float, most: float) -> Best | None:
    """Return the choice of least loss of a tree; None if the least is more than ``gap`` above its bound.

    Gaps are wide where a feasible choice is poor, so shares of them are searched first.
    """
    choice = None
    for share in SHARES:
        slack = share * gap + rounding
        choice = _least(_states(relaxed.tree, relaxed.multiplier, slack, most), budget)
        if choice is not None and choice.loss <= relaxed.bound + slack:
            break
        gap = gap if choice is None else min(gap, choice.loss - relaxed.bound)
    return choice


def _least(states: Undominated, budget: int) -> Best | None:
    """Return the choice of least loss within a budget, of equals the smallest."""
    inside = np.flatnonzero(states.bytes <= budget)
    if not len(inside):
        return None
    at = int(inside[np.lexsort((states.bytes[inside], states.loss[inside]))[0]])
    return Best(states.picks(at), int(states.bytes[at]), float(states.loss[at]))


def _relaxed(trees: Sequence[Tree], budget: int) -> list[Relaxed]:
    """Return the trees that a budget allows, with their bounds."""
    return [_dual(tree, budget) for tree in trees if least_bytes(tree) <= budget]


def _divided(relaxed: Relaxed, slack: float) -> list[Tree]:
    """Return the tree once for each alternative of its most uncertain part; empty where all are certain."""
    if not isinstance(relaxed.tree, All):
        return []
    parts, near = relaxed.tree.parts, []
    for place, part in enumerate(parts):
        if isinstance(part, Either) and len(part.parts) > 1:
            least, second, *_ = sorted(_at(each, relaxed.multiplier)[0] for each in part.parts)
            near += [(second - least, place, part)] if second - least <= slack else []
    if not near:
        return []
    _, place, part = min(near, key=lambda one: one[:2])
    only = (All((_chosen(part, at), each)) for at, each in enumerate(part.parts))
    return [All((*parts[:place], one, *parts[place + 1 :])) for one in only]


def _chosen(part: Either, at: int) -> Options:
    """Return a table without bytes or loss whose only possible row is the alternative ``at`` of a part."""
    loss = np.full(len(part.parts), np.inf)
    loss[at] = 0.0
    return Options(part.name, np.zeros(len(loss), np.int64), loss)


def least_bytes(tree: Tree) -> int:
    if isinstance(tree, Options):
        return int(tree.bytes[np.isfinite(tree.loss)].min())
    of_parts = [least_bytes(part) for part in tree.parts]
    return sum(of_parts) if isinstance(tree, All) else min(of_parts)


def _dual(tree: Tree, budget: int) -> Relaxed:
    """Return a tree with the multiplier of its best bound.

    At a high multiplier the minimum of loss + multiplier x bytes has few bytes, at a low one many.
    """
    low, high = np.log(MULTIPLIERS)
    best, at, feasible = -np.inf, MULTIPLIERS[1], np.inf
    for _ in range(STEPS):
        middle = float(np.exp((low + high) / 2))
        _, size, loss = _at(tree, middle)
        bound = loss + middle * (size - budget)
        if bound > best:
            best, at = bound, middle
        if size <= budget:
            high, feasible = np.log(middle), min(feasible, loss)
        else:
            low = np.log(middle)
    free = _at(tree, 0.0)
    if free[0] > best:
        best, at = free[0], 0.0
    if free[1] <= budget:
        feasible = min(feasible, free[2])
    return Relaxed(tree, at, best, feasible)


def _at(tree: Tree, multiplier: float) -> tuple[float, int, float]:
    """Return the minimum of loss + multiplier x bytes, with its bytes and loss."""
    if isinstance(tree, Options):
        values = tree.loss + multiplier * tree.bytes
        i = int(np.lexsort((tree.bytes, values))[0])
        return float(values[i]), int(tree.bytes[i]), float(tree.loss[i])
    of_parts = [_at(part, multiplier) for part in tree.parts]
    if isinstance(tree, Either):
        return min(of_parts, key=lambda one: one[:2])
    return sum(one[0] for one in of_parts), sum(one[1] for one in of_parts), sum(one[2] for one in of_parts)


def _states(tree: Tree, multiplier: float, slack: float, most: float) -> Undominated:
    """Return the choices whose loss + multiplier x bytes exceeds the minimum by at most ``slack``.

    Raises ``_TooMany`` where a sum has more than ``most`` pairs of choices.
    """
    if isinstance(tree, Options):
        values = tree.loss + multiplier * tree.bytes
        kept = np.flatnonzero(values <= values.min() + slack)
        return _front(tree.bytes[kept], tree.loss[kept], lambda i: {tree.name: int(kept[i])})
    if isinstance(tree, Either):
        return _of_either(tree, multiplier, slack, most)
    return _of_all(tree, multiplier, slack, most)


def _of_either(tree: Either, multiplier: float, slack: float, most: float) -> Undominated:
    least = [_at(part, multiplier)[0] for part in tree.parts]
    top = min(least) + slack
    able = [(place, _states(part, multiplier, top - floor, most)) for place, (part, floor) in
            enumerate(zip(tree.parts, least, strict=True)) if floor <= top]  # fmt: skip
    which = np.concatenate([np.full(len(states.loss), i) for i, (_, states) in enumerate(able)])
    within = np.concatenate([np.arange(len(states.loss)) for _, states in able])

    def picks(i: int) -> Picks:
        place, states = able[which[i]]
        return {tree.name: place, **states.picks(int(within[i]))}

    sizes, losses = (
        np.concatenate([getattr(states, name) for _, states in able]) for name in ("bytes", "loss")
    )
    return _front(sizes, losses, picks)


def _of_all(tree: All, multiplier: float, slack: float, most: float) -> Undominated:
    total, floor = Undominated(np.zeros(1, np.int64), np.zeros(1), lambda i: {}), 0.0
    for part in tree.parts:
        more = _states(part, multiplier, slack, most)
        if len(total.loss) * len(more.loss) > most:
            raise _TooMany
        floor += _at(part, multiplier)[0]
        total = _summed(total, more, multiplier, floor + slack)
    return total


def _summed(first: Undominated, more: Undominated, multiplier: float, top: float) -> Undominated:
    """Return the sums of two choices with a loss + multiplier x bytes of at most ``top``."""
    sizes = np.add.outer(first.bytes, more.bytes)
    losses = np.add.outer(first.loss, more.loss)
    rows, columns = np.nonzero(losses + multiplier * sizes <= top)

    def picks(i: int) -> Picks:
        return {**first.picks(int(rows[i])), **more.picks(int(columns[i]))}

    return _front(sizes[rows, columns], losses[rows, columns], picks)


def _front(sizes: Ints, losses: Floats, picks: Callable[[int], Picks]) -> Undominated:
    """Return the undominated choices, by ascending bytes and strictly decreasing loss."""
    order = np.lexsort((losses, sizes))
    lower = np.minimum.accumulate(losses[order])
    best = order[np.concatenate(([True], lower[1:] < lower[:-1]))]
    return Undominated(sizes[best], losses[best], lambda i: picks(int(best[i])))
