"""The part of a set whose least total score, over several rows of scores, is the largest."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from zerolm.architecture import Floats, Ints

NODES: Final = 20_000
"""Nodes of branch and bound at most: a number, so that all machines choose alike."""
PROVEN: Final = 1e-6
"""A gap, as a share of the value, that counts as none."""


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
