"""Criteria with tokens: how much each unit adds to the residual stream."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

import torch
from torch import Tensor

from zerolm.architecture import Floats
from zerolm.networks.roles import StockLayer, bias, matrix
from zerolm.units.kept_units import Dimensions
from zerolm.units.within_layers import unit_of_role


class UnitStatistics(Protocol):
    """Sums over the tokens of one layer, and from them the importance of its units."""

    def add(self, inputs: Mapping[str, Tensor], weights: Mapping[str, Tensor]) -> None:
        """Add tokens: the ``inputs`` (n, k) of each output matrix by its role.

        They are n x heads x head size for ``o``, n x neurons for ``down``. ``weights`` (n,) are those of the
        squared errors of tokens behind each.
        """

    def importance(self) -> dict[str, Floats]:
        """Return the scores (units,) of the units that each output matrix reads; higher is better."""


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
        self.sums = {**zeros(layer), "o": self.columns.new_zeros(sizes.heads, dtype=torch.float64)}

    def add(self, inputs: Mapping[str, Tensor], weights: Mapping[str, Tensor]) -> None:
        self.count += len(inputs["o"])
        split = per_head(inputs["o"], self.sizes)  # (n, h, e)
        for head in range(self.sizes.heads):
            output = split[:, head] @ self.columns[:, head].T  # (n, d)
            self.sums["o"][head] += output.abs().sum()
        for role in self.sums.keys() - {"o"}:
            self.sums[role] += inputs[role].abs().sum(0)  # (f,)

    def importance(self) -> dict[str, Floats]:
        means = {role: by_unit(each / self.count, role, self.sizes) for role, each in self.sums.items()}
        return {role: mean.mean(1).cpu().numpy() for role, mean in means.items()}


class OutputEnergy:
    """The energy that a unit adds to the output of its matrix.

    A neuron: second moment of its activation times the squared norm of its output column. A head: trace(W_n M
    W_n^T), M the second moments of its output. The score of a KV group is the sum of its heads'. Where the
    output matrix has a bias, which can absorb a mean, moments are about the mean.
    """

    def __init__(self, sizes: Dimensions, layer: StockLayer) -> None:
        self.sizes, self.layer, self.count = sizes, layer, 0
        self.squares, self.sums = zeros(layer), zeros(layer)
        h, e = sizes.heads, matrix(layer.writers["o"]).shape[1] // sizes.heads
        self.squares["o"] = self.squares["o"].new_zeros(h, e, e)

    def add(self, inputs: Mapping[str, Tensor], weights: Mapping[str, Tensor]) -> None:
        self.count += len(inputs["o"])
        for role, sums in self.sums.items():
            x = inputs[role].double()  # a variance is a small difference
            sums += x.sum(0)
            split = per_head(x, self.sizes).transpose(0, 1) if role == "o" else x  # (h, n, e)
            self.squares[role] += split.mT @ split if role == "o" else x.square().sum(0)

    def importance(self) -> dict[str, Floats]:
        scores = {}
        for role, squares in self.squares.items():
            module, columns = self.layer.writers[role], matrix(self.layer.writers[role])
            moments, mean = squares / self.count, self.sums[role] / self.count
            if role == "o":
                mean, columns = per_head(mean[None], self.sizes)[0], per_head(columns, self.sizes).double()
                if bias(module) is not None:
                    moments = moments - mean[:, :, None] * mean[:, None, :]
                energy = torch.einsum("dhe,hef,dhf->h", columns, moments, columns)
            else:
                moments = moments if bias(module) is None else moments - mean.square()
                energy = moments * columns.square().sum(0, dtype=torch.float64)
            scores[role] = by_unit(energy, role, self.sizes).sum(1).cpu().numpy()
        return scores


def zeros(layer: StockLayer) -> dict[str, Tensor]:
    """Return zeros for sums over the inputs of each output matrix of a layer, (k,) float64, by role."""
    matrices = {role: matrix(module) for role, module in layer.writers.items()}
    return {role: each.new_zeros(each.shape[1], dtype=torch.float64) for role, each in matrices.items()}


def by_unit(values: Tensor, role: str, sizes: Dimensions) -> Tensor:
    """Return values of the inputs of an output matrix, or of its heads, as (units, values of a unit)."""
    return values.reshape(unit_of_role(role).count(sizes), -1)


def per_head(x: Tensor, sizes: Dimensions) -> Tensor:
    """Return (n, heads x head size) as (n, heads, head size)."""
    return x.reshape(len(x), sizes.heads, -1)
