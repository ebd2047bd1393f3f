"""Criteria with tokens: how much each FFN neuron and each KV group adds to the residual stream."""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor

from zerolm.architecture import Floats
from zerolm.networks.roles import StockLayer, bias, matrix
from zerolm.units.kept_units import Dimensions


class UnitStatistics(Protocol):
    """Sums over the tokens of one layer, and from them the importance of its units."""

    def add(self, heads: Tensor, neurons: Tensor, weights: Tensor) -> None:
        """Add tokens: the inputs of o_proj (n, heads x head size) and of down_proj (n, f).

        ``weights`` (n, 2) are the weights of a token's squared errors behind ``o`` and behind ``down``.
        """

    def importance(self) -> tuple[Floats, Floats]:
        """Return the scores of KV groups (g,) and neurons (f,); higher is better."""


class OfSequences:
    """Statistics of whole sequences: ``add`` gets the tokens of one of them at a time."""


class Amp:
    """AMP (arXiv 2504.21174), from magnitudes.

    A neuron m: I_m = mean over tokens of |a_m|, a the input of down_proj; the weights of down_proj are not
    used. A head n: I_n = mean over tokens of ||h_n W_n||_1, h_n its output and W_n its columns of o_proj. The
    score of a KV group is the mean of its heads' (the paper has no groups).
    """

    def __init__(self, sizes: Dimensions, layer: StockLayer) -> None:
        self.sizes, self.count = sizes, 0
        self.columns = per_head(matrix(layer.writers["o"]), sizes)  # (d, h, e)
        self.heads = self.columns.new_zeros(sizes.heads, dtype=torch.float64)
        self.neurons = self.columns.new_zeros(matrix(layer.writers["down"]).shape[1], dtype=torch.float64)

    def add(self, heads: Tensor, neurons: Tensor, weights: Tensor) -> None:
        self.count += len(heads)
        self.neurons += neurons.abs().sum(0)  # (f,)
        split = per_head(heads, self.sizes)  # (n, h, e)
        for head in range(self.sizes.heads):
            output = split[:, head] @ self.columns[:, head].T  # (n, d)
            self.heads[head] += output.abs().sum()

    def importance(self) -> tuple[Floats, Floats]:
        heads = (self.heads / self.count).reshape(self.sizes.kv_heads, -1)  # (g, heads of a group)
        neurons = (self.neurons / self.count).reshape(self.sizes.ffn, -1)  # (f, neurons of a unit)
        return heads.mean(1).cpu().numpy(), neurons.mean(1).cpu().numpy()


class OutputEnergy:
    """The energy that a unit adds to the output of its matrix.

    A neuron: second moment of its activation times the squared norm of its output column. A head: trace(W_n M
    W_n^T), M the second moments of its output. The score of a KV group is the sum of its heads'. Where the
    output matrix has a bias, which can absorb a mean, moments are about the mean.
    """

    def __init__(self, sizes: Dimensions, layer: StockLayer) -> None:
        self.sizes, self.layer, self.count = sizes, layer, 0
        o, down = (matrix(layer.writers[role]) for role in ("o", "down"))
        zeros, h, e, f = o.new_zeros, sizes.heads, o.shape[1] // sizes.heads, down.shape[1]
        self.heads, self.head_sums = zeros(h, e, e, dtype=torch.float64), zeros(h, e, dtype=torch.float64)
        self.neurons, self.neuron_sums = zeros(f, dtype=torch.float64), zeros(f, dtype=torch.float64)

    def add(self, heads: Tensor, neurons: Tensor, weights: Tensor) -> None:
        heads, neurons = heads.double(), neurons.double()  # a variance is a small difference
        self.count += len(heads)
        self.neurons += neurons.square().sum(0)  # (f,)
        self.neuron_sums += neurons.sum(0)
        split = per_head(heads, self.sizes).transpose(0, 1)  # (h, n, e)
        self.heads += split.mT @ split  # (h, e, e)
        self.head_sums += split.sum(1)

    def importance(self) -> tuple[Floats, Floats]:
        neurons, heads = self.neurons / self.count, self.heads / self.count
        if bias(self.layer.writers["down"]) is not None:
            neurons = neurons - (self.neuron_sums / self.count).square()
        if bias(self.layer.writers["o"]) is not None:
            mean = self.head_sums / self.count  # (h, e)
            heads = heads - mean[:, :, None] * mean[:, None, :]
        columns = per_head(matrix(self.layer.writers["o"]), self.sizes).double()  # (d, h, e)
        energy = torch.einsum("dhe,hef,dhf->h", columns, heads, columns)
        groups = energy.reshape(self.sizes.kv_heads, -1).sum(1)
        neurons = neurons * matrix(self.layer.writers["down"]).square().sum(0, dtype=torch.float64)
        neurons = neurons.reshape(self.sizes.ffn, -1).sum(1)
        return groups.cpu().numpy(), neurons.cpu().numpy()


def per_head(x: Tensor, sizes: Dimensions) -> Tensor:
    """Return (n, heads x head size) as (n, heads, head size)."""
    return x.reshape(len(x), sizes.heads, -1)
