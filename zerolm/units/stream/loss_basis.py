"""A basis of the residual stream by the Fisher information of the loss (torch)."""

from __future__ import annotations

from typing import Final

import numpy as np
from transformers import PreTrainedModel

from zerolm.networks.roles import norm_gain
from zerolm.passes.fisher import Fisher
from zerolm.units.stream.narrowing import Basis, energies, ordered_basis

BY_LOSS: Final = "loss"


def loss_basis(model: PreTrainedModel, fisher: Fisher) -> Basis:
    """Return the basis with the least loss increase from removed directions, to second order.

    At every norm the removed part of the normalised stream is weighted by the Fisher information there.
    Second moments and Fisher information are both summed over all norms.
    """
    gain = norm_gain(model, "final_norm", None).double().cpu().numpy()
    energy, metric, moments = (fisher.stream[name] for name in ("energy", "metric", "last"))
    vectors = ordered_basis(energy, metric)
    return Basis(BY_LOSS, vectors, energies(vectors, energy), moments / np.trace(moments), gain)
