"""The part of a set whose sum over all pairs is least, with a proof of how near the least it is.

    minimise p' F p  over  p in {0, 1}^n  with the same number of ones in each group.

``F`` (n, n) is of any sign. The value is that of a set which no exchange of two members betters. The bound is
that of semidefinite relaxation: for any u with F - diag u positive semidefinite on the plane of the counts,
p' F p = p' (F - diag u) p + u' p, whose least value there, without integers, is below all sets' (as in
https://doi.org/10.1007/s10107-005-0637-9). Members whose other choice would exceed the best set are fixed;
branch and bound closes the remaining gap.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count as counting
from typing import Final

import numpy as np
from scipy.linalg import cho_solve, null_space, solve_triangular

from zerolm.architecture import Bools, Floats, Ints

WORK: Final = 12 * 128**3
"""Cubes of sizes of the relaxations that are solved at most, some seconds: no time, so that all machines
choose alike."""
INTERIOR: Final = 60
"""Steps at most of the interior point method."""
PRECISION: Final = 1e-9
"""Its gap at the end, as a share of its bound."""
PROVEN: Final = 1e-8
"""A gap, as a share of the value, that counts as none."""
STARTS: Final = 24
"""Random sets that exchanges begin from, in addition to three others."""


@dataclass(frozen=True, eq=False)
class LeastPairs:
    """The ``chosen`` members, ascending, the ``value`` of their form, and the ``bound`` below all others'."""

    chosen: Ints
    value: float
    bound: float

    @property
    def gap(self) -> float:
        """How much less another choice may have at most, as a share of the value; 0 where this is proven."""
        gap = self.value - self.bound
        return gap / abs(self.value) if gap > PROVEN * abs(self.value) else 0.0


def least_pairs(form: Floats, count: int, groups: int = 1, *, work: int = WORK) -> LeastPairs:
    """Return the ``count`` members of least p' F p, equal numbers of each group, and the bound that proves
    them.

    ``form`` F is (n, n), its symmetric part counts; members of a group follow one another. ``work`` limits
    branch and bound, so that the outcome is the same anywhere. ``ValueError`` for NaN or infinity.
    """
    size = len(form)
    if not np.isfinite(form).all():
        raise ValueError("a sum of pairs is not finite: neither are outputs of the network")
    if count % groups or size % groups or not 0 <= count <= size:
        raise ValueError(f"{count} of {size} members cannot be divided into {groups} groups")
    scale = float(np.abs(form).max()) or 1.0
    whole = _Pairs(
        (form + form.T) / (2 * scale),
        np.zeros(size),
        0.0,
        np.repeat(np.arange(groups), size // groups),
        np.full(groups, count // groups),
    )
    chosen, bound = _Search(whole).run(work)
    members = np.flatnonzero(chosen)
    value = float(form[np.ix_(members, members)].sum())
    return LeastPairs(members, value, min(value, bound * scale))


@dataclass(frozen=True, eq=False)
class _Pairs:
    """x' form x + linear' x + constant, form (n, n) symmetric, with the number of ones in ``each`` group
    (n,)."""

    form: Floats
    linear: Floats
    constant: float
    group: Ints
    each: Ints

    @property
    def sizes(self) -> Ints:
        """How many members each group has."""
        return np.bincount(self.group, minlength=len(self.each))

    def value(self, chosen: Bools) -> float:
        """Return the value of a set (n,)."""
        pairs = self.form[np.ix_(chosen, chosen)].sum()
        return float(pairs + self.linear[chosen].sum()) + self.constant

    def settled(self) -> Bools:
        """Return which members (n,) have no choice: their group needs none, or all."""
        without_choice = (self.each == 0) | (self.each == self.sizes)
        return np.asarray(without_choice[self.group], bool)

    def rest(self, fixed: Bools, ones: Bools) -> _Pairs:
        """Return the remaining problem with the ``fixed`` members in, if they are ``ones``, or out."""
        free, chosen = ~fixed, fixed & ones
        linear = self.linear[free] + 2 * self.form[np.ix_(free, chosen)].sum(1)
        remaining = self.each - np.bincount(self.group[chosen], minlength=len(self.each))
        groups, group = np.unique(self.group[free], return_inverse=True)
        return _Pairs(self.form[np.ix_(free, free)], linear, self.value(chosen), group, remaining[groups])

    def starts(self) -> Iterator[Bools]:
        """Yield sets to begin from: of least rows, greedily, and random ones."""
        rng = np.random.default_rng(0)
        yield self.least(2 * self.form.sum(1) + self.linear)
        yield self.greedy()
        for _ in range(STARTS):
            yield self.least(rng.random(len(self.group)))

    def least(self, costs: Floats) -> Bools:
        """Return the set of least costs (n,); of equal ones the first."""
        chosen = np.zeros(len(costs), bool)
        for group, count in enumerate(self.each):
            members = np.flatnonzero(self.group == group)
            chosen[members[np.argsort(costs[members], kind="stable")[:count]]] = True
        return chosen

    def greedy(self) -> Bools:
        """Return a set to which the member that adds least was added again and again."""
        remaining, chosen = self.each.copy(), np.zeros(len(self.group), bool)
        added = self.form.diagonal() + self.linear
        while remaining.any():
            free = np.flatnonzero(~chosen & (remaining[self.group] > 0))
            member = free[added[free].argmin()]
            chosen[member], added = True, added + 2 * self.form[member]
            remaining[self.group[member]] -= 1
        return chosen

    def exchanged(self, start: Bools) -> Bools:
        """Return a set that no exchange of two members of a group betters."""
        chosen, diagonal = start.copy(), self.form.diagonal()
        row = 2 * self.form @ chosen + self.linear  # (n,): what a member adds, but for its own square
        while chosen.any() and not chosen.all():
            out, into = np.flatnonzero(chosen), np.flatnonzero(~chosen)
            gain = (diagonal - row)[out, None] + (diagonal + row)[into] - 2 * self.form[np.ix_(out, into)]
            gain[self.group[out, None] != self.group[into]] = np.inf
            place = np.unravel_index(int(gain.argmin()), gain.shape)
            if gain[place] >= -1e-12:
                break
            leaves, comes = out[place[0]], into[place[1]]
            chosen[leaves], chosen[comes] = False, True
            row += 2 * (self.form[comes] - self.form[leaves])
        return chosen

    def relaxed(self) -> Relaxed:
        """Return the best bound of semidefinite relaxation, and its tangent.

        With x = x0 t + Z y, Z spanning the plane of the counts, and a_i' (t, y) = 2 x_i - t, it is the most
        of sum z with C - A' diag(z) A positive semidefinite, where (t, y)' C (t, y) is the value, and A has
        the a_i and the unit vector of t as rows. Then u = 4 z.
        """
        start = (self.each / self.sizes)[self.group]
        plane = null_space((self.group == np.arange(len(self.each))[:, None]).astype(float))
        basis = np.column_stack([start, plane])  # (n, k)
        unit = np.zeros(basis.shape[1])
        unit[0] = 1.0
        half = np.outer(unit, self.linear @ basis) / 2
        z = _dual(basis.T @ self.form @ basis + half + half.T, np.vstack([2 * basis - unit, unit]))
        u = 4 * z[:-1]
        convex, linear = self.form - np.diag(u), self.linear + u
        curved = plane.T @ convex @ plane
        slope = plane.T @ (2 * convex @ start + linear)
        x = start - plane @ np.linalg.lstsq(curved, slope, rcond=1e-13)[0] / 2
        tangent = 2 * convex @ x + linear
        below = float(x @ convex @ x + linear @ x + tangent @ (self.least(tangent) - x)) + self.constant
        return Relaxed(below, x, tangent)


@dataclass(frozen=True, eq=False)
class Relaxed:
    """A ``bound`` below all sets, where the relaxation takes it, ``x`` (n,), and its ``tangent`` (n,) there.

    No set has less than the tangent there; the least of the tangent is the bound.
    """

    bound: float
    x: Floats
    tangent: Floats

    def fixed(self, pairs: _Pairs, most: float) -> tuple[Bools, Bools]:
        """Return which members have one choice (n,) where the other exceeds ``most``, and which are in."""
        ones = pairs.least(self.tangent)
        other = np.empty(len(ones))
        for group in range(len(pairs.each)):
            inside, outside = (pairs.group == group) & ones, (pairs.group == group) & ~ones
            other[inside] = self.tangent[outside].min() - self.tangent[inside]
            other[outside] = self.tangent[outside] - self.tangent[inside].max()
        return self.bound + other > most, ones


class _Search:
    """Branch and bound: the best set so far, and what may still hold a better one, the lowest bound first."""

    def __init__(self, whole: _Pairs) -> None:
        self.whole = whole
        self.best = min(map(whole.exchanged, whole.starts()), key=whole.value)
        self.value = whole.value(self.best)

    @property
    def most(self) -> float:
        """The value that a better set stays below."""
        return self.value - PROVEN * abs(self.value)

    def run(self, work: int) -> tuple[Bools, float]:
        """Return the best set (n,), and a bound below all sets."""
        size, ticks = len(self.whole.group), counting()
        nobody = np.zeros(size, bool)
        heap = [(-np.inf, next(ticks), nobody, nobody)]
        while heap and heap[0][0] < self.most and work > 0:
            limit, _, fixed, ones = heapq.heappop(heap)
            work -= int((~fixed).sum()) ** 3
            for node in self.divided(limit, fixed, ones):
                heapq.heappush(heap, (node[0], next(ticks), *node[1:]))
        return self.best, min(self.value, heap[0][0]) if heap else self.value

    def divided(self, limit: float, fixed: Bools, ones: Bools) -> list[tuple[float, Bools, Bools]]:
        """Return the parts of a node that may hold a better set, with their bounds: two, or none."""
        fixed, ones = fixed.copy(), ones.copy()
        while True:
            pairs = self.whole.rest(fixed, ones)
            free, settled = np.flatnonzero(~fixed), pairs.settled()
            if settled.any():
                fixed[free[settled]], ones[free[settled]] = True, (pairs.each > 0)[pairs.group[settled]]
                continue
            if not len(free):
                self.take(ones)
                return []
            relaxed = pairs.relaxed()
            better = ones.copy()
            better[free] = pairs.exchanged(pairs.least(-relaxed.x))
            self.take(better)
            limit = max(limit, relaxed.bound)
            if limit >= self.most:
                return []
            sure, inside = relaxed.fixed(pairs, self.most)
            if 4 * sure.sum() < len(sure):
                break
            fixed[free[sure]], ones[free[sure]] = True, inside[sure]
        fixed[free[sure]], ones[free[sure]] = True, inside[sure]
        undecided = np.where(sure, np.inf, np.abs(relaxed.x - 0.5))
        member, parts = free[undecided.argmin()], []
        for is_in in (True, False):
            part = fixed.copy(), ones.copy()
            part[0][member], part[1][member] = True, is_in
            parts.append((limit, *part))
        return parts

    def take(self, chosen: Bools) -> None:
        """Keep a set where it is better."""
        chosen = self.whole.exchanged(chosen)
        value = self.whole.value(chosen)
        if value < self.value:
            self.best, self.value = chosen, value


def _dual(objective: Floats, rows: Floats) -> Floats:
    """Return z (r,) of nearly the greatest sum for which S = objective - rows' diag(z) rows is positive.

    ``rows`` are (r, k). By the primal and dual interior point method of https://doi.org/10.1137/0806020: X
    and S tend to each other's inverses times a weight that is lowered from step to step.
    """
    k = len(objective)
    weight = 10.0 * max(1.0, float(np.linalg.norm(objective, 2)))
    z = np.full(len(rows), -weight)  # nearly on the central path
    slack = objective - (rows.T * z) @ rows
    factor = np.linalg.cholesky(slack)
    primal = weight * cho_solve((factor, True), np.eye(k))
    for _ in range(INTERIOR):
        inverse = cho_solve((factor, True), np.eye(k))
        sides = rows @ inverse, rows @ primal
        system = (sides[0] @ rows.T) * (sides[1] @ rows.T)
        size = 1.0 / np.sqrt(system.diagonal())
        system = system * size * size[:, None] + 1e-12 * np.eye(len(z))  # two rows may be one
        step = size * np.linalg.solve(system, size * (1.0 - weight * (sides[0] * rows).sum(1)))
        turn = (sides[0].T * step) @ sides[1]
        change = weight * inverse - primal + (turn + turn.T) / 2
        lengths = _length(primal, change), _length(slack, -(rows.T * step) @ rows)
        tried = z + lengths[1] * step
        slack = objective - (rows.T * tried) @ rows
        try:
            factor = np.linalg.cholesky(slack)
        except np.linalg.LinAlgError:  # as near the edge as rounding lets it be
            break
        primal, z = primal + lengths[0] * change, tried
        between = float((primal * slack).sum())
        if between < PRECISION * max(1.0, abs(float(z.sum()))):
            break
        weight = between / k * (0.1 if min(lengths) > 0.7 else 0.5)
    return z


def _length(matrix: Floats, change: Floats) -> float:
    """Return the largest step, at most 1, along a change that keeps a positive matrix positive."""
    try:
        factor = np.linalg.cholesky(matrix)
    except np.linalg.LinAlgError:
        return 0.0
    half = solve_triangular(factor, change, lower=True)
    half = solve_triangular(factor, half.T, lower=True)
    least = float(np.linalg.eigvalsh((half + half.T) / 2)[0])
    return min(1.0, -0.95 / least) if least < 0 else 1.0
