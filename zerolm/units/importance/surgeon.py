"""Optimal Brain Surgeon for whole units: which ones to remove when the others are refitted.

W (d, n) is an output matrix whose inputs have second moments H (n, n). Least squares on the remaining inputs
recovers part of a removed unit's output. An error e of the output costs 1/2 e^T F e, where F (d, d) is the
Fisher information there. So removing a unit u with columns W_u costs 1/2 tr(F W_u (H^-1)_uu^-1 W_u^T), and
the rest becomes

    W - W_u (H^-1)_uu^-1 (H^-1)_u,    H^-1 - (H^-1)_,u (H^-1)_uu^-1 (H^-1)_u

(Hassibi and Stork, NeurIPS 1992; units: ZipLM, arXiv 2302.04089; F: LLM Surgeon, arXiv 2312.17244). The loss
increase after least squares is the sum of the costs of the removed units, each at its removal.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
import torch
from torch import Tensor

from zerolm.architecture import Floats, Ints
from zerolm.networks.roles import StockLayer, bias, matrix
from zerolm.passes.token_sums import TokenSums
from zerolm.units.kept_units import Dimensions
from zerolm.units.within_layers import unit_of_role

RIDGE: Final = 1e-2
"""A share of the mean second moment of an input; ten times more or less chooses as well."""
FEW: Final = 5
"""The ridge is at least the number of inputs over ``FEW`` times the tokens: few tokens seem to be explained
by any inputs."""
STEPS: Final = 64
"""Least number of updates of the inverse; units removed between two updates account for each other."""
WINDOW: Final = 4
"""Candidates of a step, the cheapest units, as a multiple of the number that it removes."""
WIDE: Final = 1024
COMPACTED: Final = 0.75
"""Removed units are dropped from the matrices when at most this share of the units remains."""


class Surgeon:
    """The cost of removing a KV group or a neuron after all units removed before it, in nats per token.

    ``roots`` are R (d, d) of the outputs by role. Where an output matrix has a bias, which can
    absorb a mean, moments are about the mean. Token weights follow the size of the gradients: one over the
    mean square of the token's stream, and of the output where a norm stands behind it. Otherwise the few
    tokens with massive activations (arXiv 2402.17762) would dominate.
    """

    def __init__(self, sizes: Dimensions, layer: StockLayer, roots: Mapping[str, Floats]) -> None:
        self.units = {role: unit_of_role(role).count(sizes) for role in layer.writers}
        self.modules, self.roots = layer.writers, roots
        self.moments = dict[str, TokenSums]()
        for role, module in layer.writers.items():
            weight, centred = matrix(module), bias(module) is not None
            self.moments[role] = TokenSums(weight.shape[1], centred=centred, device=weight.device)

    def add(self, inputs: Mapping[str, Tensor], weights: Mapping[str, Tensor]) -> None:
        for role, moments in self.moments.items():
            moments.add(inputs[role], weights=weights.get(role))

    def importance(self) -> dict[str, Floats]:
        return {role: self._scores(role) for role in self.moments}

    def _scores(self, role: str) -> Floats:
        module, sums = self.modules[role], self.moments[role]
        moments = sums.squares / sums.total
        root = torch.from_numpy(self.roots[role]).to(moments)
        ridge = max(RIDGE, len(moments) / (FEW * sums.count))
        return elimination(moments, root.T @ matrix(module).to(moments), self.units[role], ridge).scores()


@dataclass(frozen=True, eq=False)
class Elimination:
    """The ``order`` (u,) in which units are removed, and the ``costs`` (u,) of each removal."""

    order: Ints
    costs: Floats

    def scores(self) -> Floats:
        """Return the scores of the units, (u,): their costs, made to increase in the order of removal.

        A unit that costs less than an earlier one gets the earlier score, and a little more.
        """
        scores, least = np.empty(len(self.order)), 0.0
        for unit, cost in zip(self.order.tolist(), self.costs.tolist(), strict=True):
            least = scores[unit] = max(cost, least * (1 + 1e-9))
        return scores


def elimination(moments: Tensor, columns: Tensor, units: int, ridge: float = RIDGE) -> Elimination:
    """Return the order and costs of removing units one by one, always the cheapest given those that remain.

    ``moments`` (n, n) are H, of ``units`` blocks of one size; ``columns`` (r, n) are R^T W with F = R R^T.
    Both are float64. The ``ridge`` is a share of the mean second moment. Each step removes some units, one by
    one, from the cheapest at its beginning, a candidate set a few times larger. From ``WIDE`` inputs on all
    is computed in float32.
    """
    dtype = torch.float32 if len(moments) >= WIDE else torch.float64
    moments, columns = moments.to(dtype), columns.to(dtype, copy=True)
    least = ridge * moments.diagonal().mean().clamp_min(torch.finfo(dtype).tiny)
    regular = moments + least * torch.eye(len(moments)).to(moments)
    total = 0.5 * float(((columns @ regular) * columns).sum())
    remaining = _Remaining(torch.cholesky_inverse(torch.linalg.cholesky(regular)), columns, units)
    order: list[int] = []
    costs: list[float] = []
    while len(order) < units - 1:
        count = min(max(1, units // STEPS), units - 1 - len(order))
        near = torch.argsort(remaining.costs(), stable=True)[: min(WINDOW * count, units - len(order))]
        removed, removal_costs = remaining.part(near).cheapest(count)
        order += remaining.names[near[removed]].tolist()
        costs += removal_costs
        remaining.remove(near[removed])
    last = remaining.names[remaining.kept].tolist()
    return Elimination(np.array([*order, *last]), np.array([*costs, max(total - sum(costs), 0.0)]))


class _Remaining:
    """The remaining units, by place, with their ``inverse`` (n, n) and ``columns`` (r, n)."""

    def __init__(self, inverse: Tensor, columns: Tensor, units: int) -> None:
        self.inverse, self.columns, self.size = inverse, columns, len(inverse) // units
        self.names = torch.arange(units)
        self.kept = torch.ones(units, dtype=torch.bool)

    def costs(self) -> Tensor:
        """Return the cost of removing each unit, (u,); infinite for a removed one."""
        if self.size == 1:
            costs = 0.5 * self.columns.square().sum(0) / self.inverse.diagonal()
        else:
            blocks = _blocks(self.inverse, self.size)
            blocks[~self.kept] = torch.eye(self.size).to(blocks)
            columns = self.columns.T.reshape(len(blocks), self.size, -1)  # (u, size, r)
            costs = 0.5 * (columns * _solved(blocks, columns)).sum((1, 2))
        costs = costs.cpu()
        costs[~self.kept] = torch.inf
        return costs

    def part(self, near: Tensor) -> _Window:
        """Return only the units ``near``."""
        places = self._places(near)
        columns = self.columns[:, places]
        return _Window(self.inverse[places][:, places], columns.T @ columns, self.size)

    def remove(self, removed: Tensor) -> None:
        """Remove units, and refit the others."""
        places = self._places(removed)
        inverse = self.inverse[places]  # (k, n)
        solved = torch.linalg.solve(inverse[:, places], inverse)
        self.columns.addmm_(self.columns[:, places], solved, alpha=-1)
        self.inverse.addmm_(inverse.T, solved, alpha=-1)
        self.kept[removed] = False
        if int(self.kept.sum()) <= COMPACTED * len(self.kept):
            places = self._places(torch.nonzero(self.kept)[:, 0])
            self.inverse, self.columns = self.inverse[places][:, places], self.columns[:, places]
            self.names = self.names[self.kept]
            self.kept = torch.ones(len(self.names), dtype=torch.bool)

    def _places(self, units: Tensor) -> Tensor:
        """Return the indices of the inputs of units, (units x size,)."""
        return (units[:, None] * self.size + torch.arange(self.size)).flatten().to(self.inverse.device)


class _Window:
    """A few units, with their ``inverse`` (n, n) and the ``gram`` (n, n) of their columns."""

    def __init__(self, inverse: Tensor, gram: Tensor, size: int) -> None:
        self.inverse, self.gram, self.size = inverse, gram, size

    def cheapest(self, count: int) -> tuple[Tensor, list[float]]:
        """Return the places (count,) of units removed one by one, cheapest first, and the cost of each."""
        kept = torch.ones(len(self.gram) // self.size, dtype=torch.bool)
        removed: list[int] = []
        removal_costs: list[float] = []
        for _ in range(count):
            costs = self._costs(kept).cpu()
            unit = int(costs.masked_fill(~kept, torch.inf).argmin())
            removed.append(unit)
            removal_costs.append(float(costs[unit]))
            kept[unit] = False
            self._remove(slice(unit * self.size, (unit + 1) * self.size))
        return torch.tensor(removed), removal_costs

    def _costs(self, kept: Tensor) -> Tensor:
        if self.size == 1:
            return 0.5 * self.gram.diagonal() / self.inverse.diagonal()
        blocks, grams = (_blocks(each, self.size) for each in (self.inverse, self.gram))
        blocks[~kept] = torch.eye(self.size).to(blocks)
        costs: Tensor = 0.5 * _solved(blocks, grams).diagonal(dim1=1, dim2=2).sum(1)
        return costs

    def _remove(self, unit: slice) -> None:
        solved = torch.linalg.solve(self.inverse[unit, unit], self.inverse[unit])  # (size, n)
        crossed = self.gram[:, unit] @ solved
        self.gram += solved.T @ self.gram[unit, unit] @ solved - crossed - crossed.T
        self.inverse -= self.inverse[:, unit] @ solved


def _solved(blocks: Tensor, wanted: Tensor) -> Tensor:
    """Return the solutions for positive definite blocks (u, size, size).

    torch's LU decomposition of several matrices fails on some processors when it uses threads.
    """
    return torch.cholesky_solve(wanted, torch.linalg.cholesky(blocks))


def _blocks(square: Tensor, size: int) -> Tensor:
    """Return a copy of the blocks on the diagonal, (u, size, size) of (u x size, u x size)."""
    units = len(square) // size
    of_pairs = square.reshape(units, size, units, size)
    blocks: Tensor = of_pairs.diagonal(dim1=0, dim2=2).permute(2, 0, 1).clone()
    return blocks
