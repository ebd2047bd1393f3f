"""Scores of the neurons of a layer's experts without tokens, and the losses of removing some."""

from __future__ import annotations

import numpy as np

from zerolm.architecture import Floats
from zerolm.carving.experts.expert_scores import sums_along
from zerolm.carving.experts.fewer_experts import AXIS, NEURONS, expert_matrices, neurons_along
from zerolm.checkpoints import Checkpoint
from zerolm.checkpoints.ledger import Ledger


def by_weights(checkpoint: Checkpoint, layer: int, ledger: Ledger) -> Floats:
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


def drawn(seed: int, layer: int, experts: int, neurons: int) -> Floats:
    """Return random scores (e, m) of the neurons of the experts of a layer."""
    return np.random.default_rng((seed, layer, neurons)).random((experts, neurons))


def losses(scores: Floats) -> Floats:
    """Return the loss of each expert by number of kept neurons, (e, m + 1): a sum of smallest scores."""
    least = np.cumsum(np.sort(scores, axis=1), axis=1)
    sums = np.concatenate([np.zeros((len(scores), 1)), least], axis=1)
    return sums[:, ::-1]
