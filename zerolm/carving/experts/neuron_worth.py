"""The worth of the neurons of a layer's experts without tokens, and which of them stay."""

from __future__ import annotations

import numpy as np

from zerolm.architecture import Floats, Ints
from zerolm.carving.experts.fewer_experts import AXIS, NEURONS, neuron_places
from zerolm.checkpoints import Checkpoint
from zerolm.checkpoints.ledger import Ledger, best_summing
from zerolm.checkpoints.matrix_sums import sums_of


def by_weights(checkpoint: Checkpoint, layer: int, ledger: Ledger) -> Floats:
    """Return the worth (e, m) by weights alone: the length of a neuron's gate times its up times its column.

    It bounds what a neuron of a gated expert adds for a token of length one. Unlike a sum of squares, as the
    capacity of dense neurons is, it stays when up is multiplied and down divided by a number, which changes
    nothing of the network. Biases do not count. Matrices are read one at a time; the ``ledger`` has the sums
    of those that are tensors of their own.
    """
    layout = checkpoint.layout
    worth = np.ones((layout.sizes[AXIS], layout.sizes[NEURONS]))
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
            worth[slot.expert] *= np.sqrt(sums.squares)[places].prod(0)
            continue
        for expert in range(info.shape[0]):
            one = info.one(expert)
            squares = sums_of(one, best_summing(one.end - one.start))[axis].squares
            worth[expert] *= np.sqrt(squares)[places].prod(0)
    return worth


def drawn(seed: int, layer: int, experts: int, neurons: int) -> Floats:
    """Return a random worth (e, m) of the neurons of the experts of a layer."""
    return np.random.default_rng((seed, layer, neurons)).random((experts, neurons))


def best_neurons(worth: Floats, count: int) -> Ints:
    """Return the ``count`` neurons (e, count), ascending, of the largest worth (e, m) of each expert.

    Of equal ones the first stay. ``ValueError`` for a worth that is no number.
    """
    if not np.isfinite(worth).all():
        raise ValueError("a neuron's score is NaN or infinite: the model's activations are not finite")
    order = np.argsort(-worth, axis=1, kind="stable")[:, :count]
    kept: Ints = np.sort(order, axis=1)
    return kept


def lost(worth: Floats) -> Floats:
    """Return what each expert loses (e, m + 1) with so many neurons: the sum of the least worths."""
    least = np.cumsum(np.sort(worth, axis=1), axis=1)
    sums = np.concatenate([np.zeros((len(worth), 1)), least], axis=1)
    return sums[:, ::-1]
