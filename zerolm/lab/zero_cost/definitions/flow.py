"""Proxies of the flow of absolute weights: no data."""

from __future__ import annotations

import torch

from zerolm.lab.zero_cost.definitions.matrix_terms import added, attention, ffn, total
from zerolm.lab.zero_cost.passes import Passes
from zerolm.lab.zero_cost.passes.shared import nuclear
from zerolm.lab.zero_cost.registry import proxy


@proxy("synflow", source="Synflow, arXiv 2006.05467, equation 2", needs=["flow"])
def synflow(passes: Passes) -> float:
    """Sum of |W| dR / d|W|."""
    return total(added(w * g) for w, g in passes.flow.values())


@proxy("log_synflow", source="FreeREA, arXiv 2207.05135; faithful: LPZero's code", needs=["flow"])
def log_synflow(passes: Passes) -> float:
    """Sum of |W| ln(1 + dR / d|W|), which damps exploding gradients.

    Faithful: of |W| |ln(dR / d|W|)|, without zeros, which grows again where gradients are tiny. Queries and
    keys get no gradient from ones but rounding, so this is not the same on every machine.
    """
    if passes.protocol.faithful:
        pairs = ((w, g.abs()) for w, g in passes.flow.values())
        return total(added(w * torch.where(g > 0, g, 1.0).log().abs()) for w, g in pairs)
    return total(added(w * torch.log1p(g.abs())) for w, g in passes.flow.values())


@proxy("dss", source="TF-TAS, arXiv 2203.12217, equations 4-6", needs=["flow"])
def dss(passes: Passes) -> float:
    """Synaptic diversity of attention plus synaptic saliency of FFN, both of the flow.

    Embedding and head, which TF-TAS adds to the latter, add nothing here.
    """
    diverse = ((nuclear(passes.flow[a][0]), nuclear(passes.flow[a][1])) for a in attention(passes))
    salient = (passes.flow[f] for f in ffn(passes))
    return total(w * g for w, g in diverse) + total(added((w * g).abs()) for w, g in salient)
