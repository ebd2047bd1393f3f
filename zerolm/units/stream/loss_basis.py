"""A basis of the stream by what the loss feels of it (torch)."""

from __future__ import annotations

from typing import Final

import numpy as np
from transformers import PreTrainedModel

from zerolm.networks.roles import norm_gain
from zerolm.passes.fisher import Fisher
from zerolm.units.stream.narrowing import Basis, energies, ordered_basis

BY_LOSS: Final = "loss"


def loss_basis(model: PreTrainedModel, fisher: Fisher) -> Basis:
    """Return the basis that loses least of what the loss feels, to second order.

    Wherever a norm reads the stream, what goes of the normalised stream is weighed by the Fisher information
    there; both are summed over all norms.
    """
    gain = norm_gain(model, "final_norm", None).double().cpu().numpy()
    energy, metric, moments = (fisher.stream[name] for name in ("energy", "metric", "last"))
    vectors = ordered_basis(energy, metric)
    return Basis(BY_LOSS, vectors, energies(vectors, energy), moments / np.trace(moments), gain)
