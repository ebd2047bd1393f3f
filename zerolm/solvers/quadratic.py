"""A part of a set whose sum over all pairs no exchange of two members lowers.

    minimise p' F p  over  p in {0, 1}^n  with the same number of ones in each group.

``F`` (n, n) is of any sign. Exchanges begin from several sets, and the best of their ends is the choice.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np

from zerolm.architecture import Bools, Floats, Ints

STARTS: Final = 24
"""Random sets that exchanges begin from, in addition to two others."""
NO_GAIN: Final = -1e-12
"""Change of an exchange, as a share of the largest entry, that counts as none."""


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
