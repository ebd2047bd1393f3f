"""The scores of a layer's experts, and of their neurons, from one pass of tokens or from weights alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import numpy as np

from zerolm.architecture import Floats
from zerolm.carving.experts.fewer_experts import AXIS, NEURONS, expert_matrices, neurons_along
from zerolm.carving.request import SUMMED
from zerolm.checkpoints import Checkpoint, TensorInfo
from zerolm.checkpoints.ledger import Ledger, best_summing
from zerolm.checkpoints.matrix_sums import Sums, sums_of
from zerolm.checkpoints.packed_values import PackedTensor, sums_of_packed
from zerolm.io.cache import Arrays
from zerolm.registry import Entry, Registry

Worth = Callable[[Arrays], Floats]
AIMER: Final = "aimer"
RANDOM: Final = "random"
TOKENS: Final = "tokens"
PAIRS: Final = "pairs"

EXPERT_CRITERIA: Final[Registry[Worth | None]] = Registry("criterion of experts")
"""From the sums of a layer (``ExpertSums``) to the scores of its experts, (e,), or to the losses of removing
pairs of them, (e, e); None for criteria without sums."""


def _reap(sums: Arrays) -> Floats:
    """Return the mean of gate times norm of the output (e,); 0 for an expert without tokens."""
    return np.asarray(sums["share_norm"] / np.maximum(sums["count"], 1), np.float64)


def _total(name: str) -> Worth:
    return lambda sums: np.asarray(sums[name], np.float64)


for _name, _scores, _source, _needs in (
    ("reap", _reap, "mean of gate times norm of the output, gates of a token adding up to 1", (TOKENS,)),
    ("frequency", _total("count"), "the number of its tokens", (TOKENS,)),
    (SUMMED, _total("product"), "product of what two experts send to a token, summed", (TOKENS, PAIRS)),
    (AIMER, None, "how unevenly the weights are spread: even ones go first", ()),
    (RANDOM, None, "drawn by --seed", ()),
):
    EXPERT_CRITERIA.add(Entry(_name, _scores, _source, _needs))


def needs_tokens(name: str) -> bool:
    """Return whether a criterion of experts needs tokens; ``ValueError`` for an unknown one."""
    return TOKENS in EXPERT_CRITERIA.entry(name).needs


def is_of_pairs(name: str) -> bool:
    """Return whether a criterion of experts scores pairs of removed experts, whose sum is minimised."""
    return PAIRS in EXPERT_CRITERIA.entry(name).needs


def by_weights(checkpoint: Checkpoint, layer: int, ledger: Ledger) -> Floats:
    """Return scores (e,) from weights alone: minus the mean absolute value over the root mean square (AIMER).

    The ratio is over gate, up and down projections together, as in https://arxiv.org/abs/2603.18492: experts
    with the highest ratio are removed first. The ``ledger`` has the sums of matrices that are separate
    tensors; those of packed ones are summed here, one at a time.
    """
    sums = np.zeros((3, checkpoint.layout.sizes[AXIS]))
    for _, expert, matrix in expert_matrices(checkpoint, layer):
        if isinstance(matrix, PackedTensor):
            totals = sums_of_packed(matrix)
        else:
            rows = sums_along(checkpoint, matrix, ledger)[0]
            totals = float(rows.absolute.sum()), float(rows.squares.sum())
        sums[:, expert] += matrix.count, *totals
    return spread(*sums)


def spread(count: Floats, absolute: Floats, squares: Floats) -> Floats:
    """Return minus the mean absolute of ``count`` weights over their root mean square (e,), -1 for 0."""
    means = np.sqrt(squares / count)
    return -np.divide(absolute / count, means, out=np.ones_like(means), where=means > 0)


def sums_along(checkpoint: Checkpoint, matrix: TensorInfo, ledger: Ledger) -> tuple[Sums, Sums]:
    """Return the sums of the rows and columns of an expert's matrix: the ledger's where it is a tensor."""
    if matrix.name in checkpoint.tensors:
        return ledger.rows(matrix.name), ledger.cols(matrix.name)
    return sums_of(matrix, best_summing(matrix.end - matrix.start))


def drawn(seed: int, layer: int, experts: int) -> Floats:
    """Return random scores (e,) of the experts of a layer."""
    return np.random.default_rng((seed, layer)).random(experts)


def neurons_by_weights(checkpoint: Checkpoint, layer: int, ledger: Ledger) -> Floats:
    """Return scores (e, m) from weights alone: products of the norms of a neuron's gate, up and down vectors.

    It bounds the contribution of a gated expert's neuron for a token of norm one. Unlike a sum of squares,
    the capacity of dense neurons, it does not change when up is multiplied and down divided by a number,
    which does not change the network. Biases are ignored. Matrices are read one at a time; the ``ledger`` has
    the sums of those that are separate tensors.
    """
    layout = checkpoint.layout
    scores = np.ones((layout.sizes[AXIS], layout.sizes[NEURONS]))
    for slot, expert, matrix in expert_matrices(checkpoint, layer):
        along = neurons_along(checkpoint, slot)
        assert along is not None, "neurons lie along an axis of each matrix of an expert"
        axis, places = along
        squares = sums_along(checkpoint, matrix, ledger)[axis].squares
        scores[expert] *= np.sqrt(squares)[places].prod(0)
    return scores


def drawn_neurons(seed: int, layer: int, experts: int, neurons: int) -> Floats:
    """Return random scores (e, m) of the neurons of the experts of a layer."""
    return np.random.default_rng((seed, layer, neurons)).random((experts, neurons))


def losses_of_neurons(scores: Floats) -> Floats:
    """Return the loss of each expert by number of kept neurons, (e, m + 1): a sum of smallest scores."""
    least = np.cumsum(np.sort(scores, axis=1), axis=1)
    sums = np.concatenate([np.zeros((len(scores), 1)), least], axis=1)
    return sums[:, ::-1]
