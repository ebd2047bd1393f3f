"""REAM in numbers: which experts are merged, and which neuron of one is which of the other.

https://arxiv.org/abs/2604.04356. What its formulas leave open is decided here, and said where it is.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from scipy.linalg import eigh
from scipy.optimize import linear_sum_assignment

from zerolm.architecture import Floats, Ints

MOST: Final = 16
"""Experts of a group at most, the one that stays among them."""
COMPONENTS: Final = 64
Groups = dict[int, list[int]]
"""By expert that stays the experts that are merged into it, those without any left out."""


def similarity(cosines: Floats, together: Floats, profiles: Floats) -> Floats:
    """Return the similarity (e, e) of experts in 0 to 1: half by what they send, half by what sends to them.

    ``cosines`` are sums of the cosine of what two experts send over the ``together`` tokens that meet both,
    ``profiles`` the products of the router's logits, Z' Z of Z (t, e). The first half is the mean of
    (cosine + 1) / 2, the second the cosine of two columns of Z, put into 0 to 1 likewise. Decided here: the
    mean is over the tokens that meet both, and the cosine of two that never meet is 0.
    """
    sent = np.divide(cosines, together, out=np.zeros_like(cosines), where=together > 0)
    length = np.sqrt(np.diagonal(profiles))
    scale = np.outer(length, length)
    wanted = np.divide(profiles, scale, out=np.zeros_like(profiles), where=scale > 0)
    both: Floats = ((sent + 1) / 2 + (wanted + 1) / 2) / 2
    return both


def grouped(salience: Floats, likeness: Floats, kept: Ints) -> Groups:
    """Return which experts are merged into those of ``kept``: all others, each into one.

    ``salience`` (e,), ``likeness`` (e, e). One of ``kept`` after another, from the most salient, takes the
    most like of those that are left, until its group has ``MOST`` experts. Decided here: where so many would
    leave some over, groups may be as large as even ones have to be; of equals the first.
    """
    left = [expert for expert in range(len(salience)) if expert not in set(kept.tolist())]
    most = max(MOST, -(-len(salience) // len(kept)))
    groups = Groups()
    for centre in sorted(kept.tolist(), key=lambda expert: (-salience[expert], expert)):
        taken = sorted(left, key=lambda expert: (-likeness[centre, expert], expert))[: most - 1]
        if taken:
            groups[centre] = sorted(taken)
        left = [expert for expert in left if expert not in taken]
    return groups


def matched(ours: Floats, theirs: Floats, rows: Floats, others: Floats) -> Ints:
    """Return for each neuron (m,) of an expert the neuron of another that does most nearly what it does.

    ``ours`` and ``theirs`` are activations (m, t) of the same tokens, ``rows`` and ``others`` weights (m, w)
    of each neuron. Distances add up: of activations of length one, and of the ``COMPONENTS`` main components
    of the weights of both. Their sum is least over all permutations. Decided here: each kind of distance is
    divided by its mean, so that neither outweighs the other.
    """
    parts = main_components(np.concatenate([rows, others]))
    distances = (
        _distances(_of_length_one(ours), _of_length_one(theirs)),
        _distances(parts[: len(rows)], parts[len(rows) :]),
    )
    _, order = linear_sum_assignment(sum(each / max(each.mean(), 1e-300) for each in distances))
    return np.asarray(order, np.int64)


def main_components(rows: Floats) -> Floats:
    """Return rows (n, w), less their mean, in the basis of their main components, ``COMPONENTS`` at most."""
    centred = rows - rows.mean(0)
    by_rows = len(rows) < rows.shape[1]
    gram = centred @ centred.T if by_rows else centred.T @ centred
    size = len(gram)
    values, vectors = eigh(gram, subset_by_index=[max(0, size - COMPONENTS), size - 1])
    parts: Floats = vectors * np.sqrt(np.maximum(values, 0)) if by_rows else centred @ vectors
    return parts


def shares(salience: Floats, centre: int, members: list[int]) -> Floats:
    """Return what share each of a group has of the merged one, the one that stays first; they add up to 1.

    Where none of them is salient the one that stays is as it was.
    """
    weights = np.array([salience[expert] for expert in (centre, *members)], np.float64)
    total = weights.sum()
    parts: Floats = weights / total if total > 0 else np.eye(len(weights))[0]
    return parts


def _of_length_one(rows: Floats) -> Floats:
    """Return rows divided by their length; one without any stays."""
    length = np.linalg.norm(rows, axis=1, keepdims=True)
    units: Floats = np.divide(rows, length, out=np.zeros_like(rows), where=length > 0)
    return units


def _distances(rows: Floats, others: Floats) -> Floats:
    """Return the distance (m, n) of each row (m, w) to each of the others (n, w)."""
    squares = (rows**2).sum(1)[:, None] + (others**2).sum(1) - 2 * rows @ others.T
    distances: Floats = np.sqrt(np.maximum(squares, 0))
    return distances
