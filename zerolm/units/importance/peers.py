"""Criteria of published methods that score units by activations, for comparison: each its paper's formula.

a_im is the input of the FFN's output matrix for token i and neuron m, h_in (e,) the output of head n. Most
papers prune no KV groups, or single heads; each class names the rule that replaces this.
"""

from __future__ import annotations

import torch
from torch import Tensor

from zerolm.architecture import Floats
from zerolm.networks.roles import StockLayer, matrix
from zerolm.units.importance.activations import OfSequences
from zerolm.units.kept_units import Dimensions


class CommonActivations:
    """Mean square of activations: COMPACT (arXiv 2509.06836), "common act^2".

    I_m = sum_i w_i a_im^2 / sum_i w_i, where w_i is 0 for a token that was removed from the vocabulary, else
    1. The paper prunes no attention. Here a KV group has the sum of the same over the outputs of its heads.
    """

    def __init__(self, sizes: Dimensions, layer: StockLayer) -> None:
        self.sizes, self.count = sizes, 0.0
        self.heads, self.neurons = _sums(layer)

    def add(self, heads: Tensor, neurons: Tensor, weights: Tensor, counted: Tensor | None = None) -> None:
        """Add tokens; ``counted`` (n,) are w_i, where some are not 1. ``weights`` are not used."""
        heads, neurons = heads.float(), neurons.float()
        counted = heads.new_ones(len(heads)) if counted is None else counted.to(heads)
        self.count += float(counted.sum())
        self.heads += (counted @ heads.square()).double()  # (h e,)
        self.neurons += (counted @ neurons.square()).double()  # (f,)

    def importance(self) -> tuple[Floats, Floats]:
        count = max(self.count, 1.0)
        return _by_unit(self.heads / count, self.sizes.kv_heads), _by_unit(
            self.neurons / count, self.sizes.ffn
        )


class TwoSSP(OfSequences):
    """Mean norm of activations over a sequence: 2SSP (arXiv 2501.17771), its first stage.

    I_m = mean over sequences of sqrt(sum_i a_im^2). The paper removes whole attention sublayers. Here a KV
    group has the mean over sequences of the Frobenius norm of its heads' outputs.
    """

    def __init__(self, sizes: Dimensions, layer: StockLayer) -> None:
        self.sizes, self.count = sizes, 0
        self.groups = torch.zeros(sizes.kv_heads, dtype=torch.float64)
        self.neurons = torch.zeros(sizes.ffn, dtype=torch.float64)

    def add(self, heads: Tensor, neurons: Tensor, weights: Tensor) -> None:
        self.count += 1
        self.groups += _norms(heads, self.sizes.kv_heads)
        self.neurons += _norms(neurons, self.sizes.ffn)

    def importance(self) -> tuple[Floats, Floats]:
        return (self.groups / self.count).numpy(), (self.neurons / self.count).numpy()


class Minitron(OfSequences):
    """Norm over sequences of mean activations: Minitron (arXiv 2407.14679), its (L2, mean) aggregation.

    I_m = sqrt(sum over sequences of (mean_i |a_im|)^2). A head has the same of ||h_in||_2; a KV group has the
    sum of its heads.
    """

    def __init__(self, sizes: Dimensions, layer: StockLayer) -> None:
        self.sizes = sizes
        self.heads = torch.zeros(sizes.heads, dtype=torch.float64)
        self.neurons = torch.zeros(matrix(layer.writers["down"]).shape[1], dtype=torch.float64)

    def add(self, heads: Tensor, neurons: Tensor, weights: Tensor) -> None:
        lengths = heads.double().reshape(len(heads), self.sizes.heads, -1).norm(dim=2)  # (n, h)
        self.heads += lengths.mean(0).square().cpu()
        self.neurons += neurons.double().abs().mean(0).square().cpu()

    def importance(self) -> tuple[Floats, Floats]:
        return (
            _by_unit(self.heads.sqrt(), self.sizes.kv_heads),
            _by_unit(self.neurons.sqrt(), self.sizes.ffn),
        )


class Flap:
    """Fluctuation of activations, weighted: FLAP (arXiv 2312.11983), equation 5.

    I_m = sum_i (a_im - mean a_m)^2 / (n - 1) x ||w_m||^2, w_m the output column. A KV group has the mean of
    the squares of the same over the elements of its heads, as the released code has it for a head. The
    standardised scores that set the sizes of layers are not part of it, nor is the bias, which
    ``--repair bias`` adds where the matrix has one.
    """

    def __init__(self, sizes: Dimensions, layer: StockLayer) -> None:
        self.sizes, self.layer, self.count = sizes, layer, 0
        (self.heads, self.neurons), (self.head_sums, self.neuron_sums) = _sums(layer), _sums(layer)

    def add(self, heads: Tensor, neurons: Tensor, weights: Tensor) -> None:
        heads, neurons = heads.double(), neurons.double()  # a variance is a small difference
        self.count += len(heads)
        self.heads += heads.square().sum(0)
        self.head_sums += heads.sum(0)
        self.neurons += neurons.square().sum(0)
        self.neuron_sums += neurons.sum(0)

    def importance(self) -> tuple[Floats, Floats]:
        heads = self._weighted("o", self.heads, self.head_sums).square()
        neurons = self._weighted("down", self.neurons, self.neuron_sums)
        per_group = len(heads) // self.sizes.kv_heads
        return _by_unit(heads, self.sizes.kv_heads) / per_group, _by_unit(neurons, self.sizes.ffn)

    def _weighted(self, role: str, squares: Tensor, sums: Tensor) -> Tensor:
        variance = (squares - sums.square() / self.count).clamp(min=0) / max(self.count - 1, 1)
        return variance * matrix(self.layer.writers[role]).double().square().sum(0)


def _sums(layer: StockLayer) -> tuple[Tensor, Tensor]:
    """Return zeros for sums over the inputs of ``o`` (h e,) and of ``down`` (f,)."""
    o, down = (
        matrix(layer.writers[role]).new_zeros(matrix(layer.writers[role]).shape[1], dtype=torch.float64)
        for role in ("o", "down")
    )
    return o, down


def _by_unit(values: Tensor, units: int) -> Floats:
    """Return the sum of values over the consecutive elements of each unit, (units,)."""
    summed: Floats = values.reshape(units, -1).sum(1).cpu().numpy()
    return summed


def _norms(tokens: Tensor, units: int) -> Tensor:
    """Return the norms over tokens and elements of each unit, (units,), of (n, units x size)."""
    return tokens.double().square().sum(0).reshape(units, -1).sum(1).sqrt().cpu()
