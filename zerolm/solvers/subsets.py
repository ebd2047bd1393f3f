"""Parts of a set: the one whose least sum is the largest, and one whose sum over all pairs is small.

The sum over pairs is p' F p for p in {0, 1}^n with the same number of ones in each group, for ``F`` (n, n) of
any sign: no exchange of two members lowers it. Exchanges begin from several sets, and the best of their ends
is the choice.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np

from zerolm.architecture import Bools, Floats, Ints

NODES: Final = 20_000
"""Nodes of branch and bound at most: a number, so that all machines choose alike."""
PROVEN: Final = 1e-6
"""A gap, as a share of the value, that counts as none."""
STARTS: Final = 24
"""Random sets that exchanges begin from, in addition to two others."""
NO_GAIN: Final = -1e-12
"""Change of an exchange, as a share of the largest entry, that counts as none."""


@dataclass(frozen=True, eq=False)
class BestAtWorst:
    """The ``chosen`` members, ascending, their ``value`` where it is least, and the ``bound`` above all's."""

    chosen: Ints
    value: float
    bound: float

    @property
    def gap(self) -> float:
        """The most by which another choice may exceed the value, as a share of it; 0 where proven."""
        more = self.bound - self.value
        return more / abs(self.value) if more > PROVEN * abs(self.value) else 0.0


def best_at_worst(scores: Floats, count: int, groups: int = 1) -> BestAtWorst:
    """Return the ``count`` members, equal numbers of each group, whose least sum over the rows is the
    largest.

    ``scores`` are (ways, n); members of a group follow one another. As a mixed-integer programme: maximise t
    with scores x >= t and equal numbers of ones of x in each group. ``ValueError`` for NaN or infinity.
    """
    from scipy.optimize import Bounds, LinearConstraint, milp

    if not np.isfinite(scores).all():
        raise ValueError("an expert's score is NaN or infinite: the model's activations are not finite")
    ways, size = scores.shape
    scale = float(np.abs(scores).max()) or 1.0
    of_group = np.repeat(np.arange(groups), size // groups) == np.arange(groups)[:, None]
    rows = np.block([[scores / scale, -np.ones((ways, 1))], [of_group, np.zeros((groups, 1))]])
    per_group = np.full(groups, count // groups)
    result = milp(
        np.append(np.zeros(size), -1.0),
        constraints=LinearConstraint(
            rows,
            np.concatenate([np.zeros(ways), per_group]),
            np.concatenate([np.full(ways, np.inf), per_group]),
        ),
        integrality=np.append(np.ones(size), 0),
        bounds=Bounds(np.append(np.zeros(size), -np.inf), np.append(np.ones(size), np.inf)),
        options={"mip_rel_gap": PROVEN / 10, "node_limit": NODES},
    )
    if result.x is None:
        raise RuntimeError(f"HiGHS found no answer: {result.message}")
    chosen = np.flatnonzero(np.rint(result.x[:-1]))
    value = float(scores[:, chosen].sum(1).min())
    return BestAtWorst(chosen, value, max(value, -float(result.mip_dual_bound) * scale))


def least_pairs(form: Floats, count: int, groups: int = 1) -> Ints:
    """Return ``count`` members, ascending, with a small p' F p, equal numbers of each group.

    ``form`` F is (n, n), its symmetric part counts; members of a group follow one another. Raises
    ``ValueError`` for NaN or infinity, and for a count that the groups do not divide.
    """
    size = len(form)
    if not np.isfinite(form).all():
        raise ValueError("a sum of pairs is not finite: neither are outputs of the network")
    if count % groups or size % groups or not 0 <= count <= size:
        raise ValueError(f"{count} of {size} members cannot be divided into {groups} groups")
    scaled = (form + form.T) / (2 * (float(np.abs(form).max()) or 1.0))
    group = np.repeat(np.arange(groups), size // groups)
    ends = (_exchanged(scaled, start, group) for start in _starts(scaled, count // groups, groups))
    return np.flatnonzero(min(ends, key=lambda chosen: scaled[np.ix_(chosen, chosen)].sum()))


def _starts(form: Floats, each: int, groups: int) -> Iterator[Bools]:
    """Yield sets (n,) to begin from: of least rows, greedily, and random ones."""
    rng = np.random.default_rng(0)
    yield _least(form.sum(1), each, groups)
    yield _greedy(form, each, groups)
    for _ in range(STARTS):
        yield _least(rng.random(len(form)), each, groups)


def _least(costs: Floats, each: int, groups: int) -> Bools:
    """Return the set with ``each`` members of least costs (n,) of every group; of equal ones the first."""
    order = np.argsort(costs.reshape(groups, -1), axis=1, kind="stable")[:, :each]
    chosen = np.zeros((groups, len(costs) // groups), bool)
    np.put_along_axis(chosen, order, True, axis=1)
    return chosen.reshape(-1)


def _greedy(form: Floats, each: int, groups: int) -> Bools:
    """Return a set to which the member that adds least was added again and again."""
    chosen, added = np.zeros((groups, len(form) // groups), bool), form.diagonal().copy()
    for _ in range(each * groups):
        closed = chosen | (chosen.sum(1, keepdims=True) == each)
        member = int(np.where(closed.reshape(-1), np.inf, added).argmin())
        chosen.reshape(-1)[member] = True
        added += 2 * form[member]
    return chosen.reshape(-1)


def _exchanged(form: Floats, start: Bools, group: Ints) -> Bools:
    """Return a set that no exchange of two members of a group betters."""
    chosen, diagonal = start.copy(), form.diagonal()
    row = 2 * form @ chosen  # (n,): what a member adds, but for its own square
    while chosen.any() and not chosen.all():
        out, into = np.flatnonzero(chosen), np.flatnonzero(~chosen)
        change = (diagonal - row)[out, None] + (diagonal + row)[into] - 2 * form[np.ix_(out, into)]
        change[group[out, None] != group[into]] = np.inf
        place = np.unravel_index(int(change.argmin()), change.shape)
        if change[place] >= NO_GAIN:
            break
        leaves, comes = out[place[0]], into[place[1]]
        chosen[leaves], chosen[comes] = False, True
        row += 2 * (form[comes] - form[leaves])
    return chosen
