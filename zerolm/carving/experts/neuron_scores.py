"""Scores of the neurons of a layer's experts without tokens, and the choice of those to keep."""

from __future__ import annotations

import numpy as np

from zerolm.architecture import Floats, Ints
from zerolm.carving.experts.fewer_experts import AXIS, NEURONS, neuron_places
from zerolm.checkpoints import Checkpoint
from zerolm.checkpoints.ledger import Ledger, best_summing
from zerolm.checkpoints.matrix_sums import sums_of


def by_weights(checkpoint: Checkpoint, layer: int, ledger: Ledger) -> Floats:
    """Return scores (e, m) from weights alone: products of the norms of a neuron's gate, up and down vectors.

    It bounds the contribution of a gated expert's neuron for a token of norm one. Unlike a sum of squares,
    the capacity of dense neurons, it does not change when up is multiplied and down divided by a number,
    which does not change the network. Biases are ignored. Matrices are read one at a time; the ``ledger`` has
    the sums of those that are separate tensors.
    """
    layout = checkpoint.layout
    scores = np.ones((layout.sizes[AXIS], layout.sizes[NEURONS]))
    for name in layout.layer(layer).values():
        slot, info = layout.slots[name], checkpoint.tensors[name]
        if not slot.is_matrix or not slot.of_experts:
            continue
        axes = slot.axes if slot.expert is not None else slot.axes[1:]
        every = [neuron_places(checkpoint, label) for label in axes]
        axis = next(number for number, places in enumerate(every) if places is not None)
        places = every[axis]
        if slot.expert is not None:
            sums = ledger.cols(name) if axis else ledger.rows(name)
            scores[slot.expert] *= np.sqrt(sums.squares)[places].prod(0)
            continue
        for expert in range(info.shape[0]):
            tensor = info.one(expert)
            squares = sums_of(tensor, best_summing(tensor.end - tensor.start))[axis].squares
            scores[expert] *= np.sqrt(squares)[places].prod(0)
    return scores


def drawn(seed: int, layer: int, experts: int, neurons: int) -> Floats:
    """Return random scores (e, m) of the neurons of the experts of a layer."""
    return np.random.default_rng((seed, layer, neurons)).random((experts, neurons))


def best_neurons(scores: Floats, count: int) -> Ints:
    """Return the ``count`` neurons (e, count), ascending, with the largest scores (e, m) of each expert.

    Ties go to the first. Raises ``ValueError`` for a score that is not finite.
    """
    if not np.isfinite(scores).all():
        raise ValueError("a neuron's score is NaN or infinite: the model's activations are not finite")
    order = np.argsort(-scores, axis=1, kind="stable")[:, :count]
    kept: Ints = np.sort(order, axis=1)
    return kept


def losses(scores: Floats) -> Floats:
    """Return the loss of each expert by number of kept neurons, (e, m + 1): a sum of smallest scores."""
    least = np.cumsum(np.sort(scores, axis=1), axis=1)
    sums = np.concatenate([np.zeros((len(scores), 1)), least], axis=1)
    return sums[:, ::-1]
