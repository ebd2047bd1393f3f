"""Criteria of published methods that score units by activations, for comparison: each its paper's formula.

a_im is the input of the FFN's output matrix for token i and neuron m, h_in (e,) the output of head n. Most
papers prune no KV groups, or single heads; each class names the rule that replaces this.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from zerolm.architecture import Floats
from zerolm.networks.roles import StockLayer, matrix
from zerolm.units.importance.activations import OfSequences, by_unit, per_head, zeros
from zerolm.units.kept_units import Dimensions
from zerolm.units.within_layers import unit_of_role


class CommonActivations:
    """Mean square of activations: COMPACT (arXiv 2509.06836), "common act^2".

    I_m = sum_i a_im^2 / n over the tokens of the vocabulary that is kept: others do not occur. The paper
    prunes no attention. Here a KV group has the sum of the same over the outputs of its heads.
    """

    def __init__(self, sizes: Dimensions, layer: StockLayer) -> None:
        self.sizes, self.count, self.sums = sizes, 0, zeros(layer)

    def add(self, inputs: Mapping[str, Tensor], weights: Mapping[str, Tensor]) -> None:
        self.count += len(inputs["o"])
        for role, sums in self.sums.items():
            x = inputs[role].float()
            sums += (x.new_ones(len(x)) @ x.square()).double()  # (k,)

    def importance(self) -> dict[str, Floats]:
        return {role: summed(each / max(self.count, 1), role, self.sizes) for role, each in self.sums.items()}


class TwoSSP(OfSequences):
    """Mean norm of activations over a sequence: 2SSP (arXiv 2501.17771), its first stage.

    I_m = mean over sequences of sqrt(sum_i a_im^2). The paper removes whole attention sublayers. Here a KV
    group has the mean over sequences of the Frobenius norm of its heads' outputs.
    """

    def __init__(self, sizes: Dimensions, layer: StockLayer) -> None:
        self.sizes, self.count = sizes, 0
        units = {role: unit_of_role(role).count(sizes) for role in layer.writers}
        self.norms = {role: torch.zeros(count, dtype=torch.float64) for role, count in units.items()}

    def add(self, inputs: Mapping[str, Tensor], weights: Mapping[str, Tensor]) -> None:
        self.count += 1
        for role, norms in self.norms.items():
            squares = inputs[role].double().square().sum(0)  # over the tokens of a sequence, (k,)
            norms += by_unit(squares, role, self.sizes).sum(1).sqrt().cpu()

    def importance(self) -> dict[str, Floats]:
        return {role: (each / self.count).numpy() for role, each in self.norms.items()}


class Minitron(OfSequences):
    """Norm over sequences of mean activations: Minitron (arXiv 2407.14679), its (L2, mean) aggregation.

    I_m = sqrt(sum over sequences of (mean_i |a_im|)^2). A head has the same of ||h_in||_2; a KV group has the
    sum of its heads.
    """

    def __init__(self, sizes: Dimensions, layer: StockLayer) -> None:
        self.sizes = sizes
        self.sums = {**zeros(layer), "o": torch.zeros(sizes.heads, dtype=torch.float64)}

    def add(self, inputs: Mapping[str, Tensor], weights: Mapping[str, Tensor]) -> None:
        for role, sums in self.sums.items():
            x = inputs[role].double()
            lengths = per_head(x, self.sizes).norm(dim=2) if role == "o" else x.abs()  # (n, h), (n, f)
            sums += lengths.mean(0).square().to(sums)

    def importance(self) -> dict[str, Floats]:
        return {role: summed(each.sqrt(), role, self.sizes) for role, each in self.sums.items()}


class Flap:
    """Fluctuation of activations, weighted: FLAP (arXiv 2312.11983), equation 5.

    I_m = sum_i (a_im - mean a_m)^2 / (n - 1) x ||w_m||^2, w_m the output column. A KV group has the mean of
    the squares of the same over the elements of its heads, as the released code has it for a head. The
    standardised scores that set the sizes of layers are not part of it, nor is the bias.
    """

    def __init__(self, sizes: Dimensions, layer: StockLayer) -> None:
        self.sizes, self.layer, self.count = sizes, layer, 0
        self.squares, self.sums = zeros(layer), zeros(layer)

    def add(self, inputs: Mapping[str, Tensor], weights: Mapping[str, Tensor]) -> None:
        self.count += len(inputs["o"])
        for role, sums in self.sums.items():
            x = inputs[role].double()  # a variance is a small difference
            self.squares[role] += x.square().sum(0)
            sums += x.sum(0)

    def importance(self) -> dict[str, Floats]:
        scores = {}
        for role, sums in self.sums.items():
            variance = (self.squares[role] - sums.square() / self.count).clamp(min=0) / max(self.count - 1, 1)
            weighted = variance * matrix(self.layer.writers[role]).double().square().sum(0)
            scores[role] = summed(weighted if role != "o" else weighted.square(), role, self.sizes)
            if role == "o":
                scores[role] = scores[role] / (len(weighted) // len(scores[role]))
        return scores


def summed(values: Tensor, role: str, sizes: Dimensions) -> Floats:
    """Return the sum of values over the consecutive elements of each unit of an output matrix, (units,)."""
    sums: Floats = by_unit(values, role, sizes).sum(1).cpu().numpy()
    return sums
