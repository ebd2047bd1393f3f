"""AZ-NAS: four proxies of what sub-blocks do to Gaussian states and random directions."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from zerolm.lab.zero_cost.combine import rank_product
from zerolm.lab.zero_cost.definitions.matrix_terms import total
from zerolm.lab.zero_cost.passes import Passes
from zerolm.lab.zero_cost.registry import LeftOut, Pool, proxy

TERMS = ("az_expressivity", "az_progressivity", "az_trainability", "az_complexity")


def az_nas(pool: Pool) -> dict[str, Sequence[float] | LeftOut]:
    """Return the four terms, and the sum of the logarithms of a candidate's ranks in three of them.

    Progressivity is not among these: the authors' code leaves it out of vision transformers.
    """
    columns: dict[str, Sequence[float] | LeftOut] = dict(zip(TERMS, zip(*pool, strict=True), strict=True))
    if len(pool) < 2:
        return {**columns, "az_nas": LeftOut("it adds up ranks, and one network has none: take several")}
    ranked = [columns[name] for name in TERMS if name != "az_progressivity"]
    merged = rank_product(np.array(ranked, np.float64)).tolist()
    return {**columns, "az_nas": merged}


@proxy("az_nas", source="AZ-NAS, arXiv 2403.19232, equations 1-8", needs=["transfer"], finish=az_nas)
def az_terms(passes: Passes) -> Sequence[float]:
    """Expressivity: sum of the entropies of the states' spectra. Progressivity: their smallest rise.

    Trainability: mean of 2 - s - 1 / (s + 1e-6) over sub-blocks, s the largest gain of a
    direction in the backward pass, best at s = 1. Complexity: multiply-accumulates of an input.
    """
    entropies = passes.transfer.entropies
    gains = [2 - s - 1 / (s + 1e-6) for s in passes.transfer.gains if s is not None]
    if not gains:
        raise LeftOut("the network has but one sub-block")
    return (
        total(entropies),
        min(after - before for before, after in pairwise(entropies)),
        total(gains) / len(gains),
        passes.transfer.macs,
    )
