"""Ridge regression from second moments: the output columns that reproduce a target from the kept inputs.

With inputs x_i (k,), weights w_i, targets in two parts a_i and b_i (d,), and W0 the columns before,

    W = W0 + A + B,
    A = argmin sum_i w_i ||a_i - (W0 + A) x_i||^2 + alpha ||A||_F^2
      = (sum w a x^T - W0 sum w x x^T) (sum w x x^T + alpha I)^-1,
    B = argmin sum_i w_i ||b_i - B x_i||^2 + beta ||B||_F^2.

a is the output of the matrix in the parent, b the error of the layers before. Inputs explain far less of b
than of a, so b needs a stronger ridge: with one ridge for both, each layer fits noise to the others' errors.
A bias is the column of an input that is always one, with no ridge on it: that is the same as centring inputs
and targets. alpha and beta are shares of the mean diagonal of sum w x x^T, centred where there is a bias.
Only the sums are needed: the loss on held-out tokens is a quadratic form in theirs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from typing import Final

import torch
from torch import Tensor

from zerolm.passes.token_sums import TokenSums
from zerolm.units.ridges import UNTRIED, Ridges

OUTPUT_RIDGES: Final = (1e-4, 1e-3, 1e-2, 1e-1, 1.0)
ERROR_RIDGES: Final = (1e-1, 1.0, 1e1, 1e2)
"""The ridges tried for a matrix's own output in the parent, and for the error of the layers before."""
OUTPUTS: Final = 64
"""With more outputs than this, ridges are chosen on this number of random linear combinations of them."""
WIDE: Final = 1024
"""From this number of inputs on, ridges are chosen in float32; columns are always solved in float64."""


class SecondMoments:
    """Weighted sums over tokens of inputs (k,) and of targets in two parts, (d,) each."""

    def __init__(self, inputs: int, outputs: int, *, bias: bool, device: torch.device | None = None) -> None:
        self.bias, self.outputs = bias, outputs
        self.sums = TokenSums(inputs, 2 * outputs, centred=bias, device=device)

    def add(
        self, x: Tensor, output: Tensor, earlier_error: Tensor | None = None, weights: Tensor | None = None
    ) -> None:
        """Add tokens: inputs (n, k), targets (n, d) in one part or two, weights (n,)."""
        output = output.float()
        earlier_error = torch.zeros_like(output) if earlier_error is None else earlier_error.float()
        self.sums.add(x, torch.cat([output, earlier_error], 1), weights)

    @property
    def count(self) -> int:
        """The number of tokens."""
        return self.sums.count

    @property
    def inputs(self) -> Tensor:
        """The sum of x x^T, centred where there is a bias, (k, k)."""
        return self.sums.squares

    def missing(self, start: Tensor, mix: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Return sums of x e^T (k, d), e the error of columns (k, d) on the first part, and of x b^T.

        With a ``mix`` (d, m) those of linear combinations of the outputs, (k, m).
        """
        output, earlier_error = self.sums.crossed.tensor_split(2, 1)
        if mix is not None:  # before the products of k x k, because m is small
            start, output, earlier_error = start @ mix, output @ mix, earlier_error @ mix
        return output - self.inputs @ start, earlier_error

    def offset(self, columns: Tensor) -> Tensor:
        """Return the bias (d,) with which columns (k, d) reproduce the mean of the sum of both parts."""
        targets = self.sums.outputs[: self.outputs] + self.sums.outputs[self.outputs :]
        offset: Tensor = (targets - self.sums.inputs @ columns) / (self.sums.total or 1.0)
        return offset


def solved(inputs: Tensor, missing: Sequence[Tensor], share: float) -> list[Tensor]:
    """Return the changes (X^T X + share mean I)^-1 M of columns for each M (k, d), of X^T X (k, k)."""
    mean = float(inputs.diagonal().mean()) if len(inputs) else 0.0
    pulled = inputs.clone()
    pulled.diagonal().add_(max(share * mean, 1e-300))
    factor, failed = torch.linalg.cholesky_ex(pulled)
    if failed:  # not positive definite, by rounding
        return [torch.linalg.solve(pulled, each) for each in missing]
    return [torch.cholesky_solve(each, factor) for each in missing]


@dataclass(frozen=True, eq=False)
class Fit:
    """The moments of one matrix on the tokens to fit it on, and on those held out."""

    fitted: SecondMoments
    held: SecondMoments

    @classmethod
    def empty(cls, inputs: int, outputs: int, *, bias: bool, device: torch.device | None = None) -> Fit:
        new, again = (SecondMoments(inputs, outputs, bias=bias, device=device) for _ in range(2))
        return cls(new, again)

    def add(
        self, x: Tensor, output: Tensor, earlier_error: Tensor | None, weights: Tensor, *, is_held: bool
    ) -> None:
        """Add sequences: inputs (b, t, k), targets (b, t, d), weights (b, t), 0 for tokens to omit."""
        rows = weights > 0
        if not rows.any():
            return

        def taken(values: Tensor) -> Tensor:
            return values.flatten(0, 1) if rows.all() else values[rows]

        moments = self.held if is_held else self.fitted
        moments.add(
            taken(x), taken(output), None if earlier_error is None else taken(earlier_error), taken(weights)
        )

    def best(self, start: Tensor, ridges: Ridges | None = None) -> tuple[Tensor, Ridges]:
        """Return the columns (k, d) and their ridges: the given ones, else the best on held-out tokens."""
        if ridges is None:
            ridges = self.chosen(start) if self.held.count else UNTRIED
        output, earlier_error = self.fitted.missing(start)
        columns = start + solved(self.fitted.inputs, [output], ridges.output)[0]
        if bool(earlier_error.any()):
            columns = columns + solved(self.fitted.inputs, [earlier_error], ridges.lost)[0]
        return columns, ridges

    def improves(self, start: Tensor, columns: Tensor) -> bool:
        """Return whether columns have a lower loss on held-out tokens than ``start``, both (k, d)."""
        output, earlier_error = self.held.missing(start)
        change = columns - start
        return float((change * (self.held.inputs @ change - 2 * (output + earlier_error))).sum()) < 0

    def chosen(self, start: Tensor) -> Ridges:
        """Return the ridges of ``OUTPUT_RIDGES`` and ``ERROR_RIDGES`` with the lowest held-out loss."""
        outputs = start.shape[1]
        mix = torch.eye(outputs, dtype=start.dtype, device=start.device)
        if outputs > OUTPUTS:
            generator = torch.Generator().manual_seed(0)
            mix = torch.randn(outputs, OUTPUTS, dtype=torch.float64, generator=generator).to(start)
        dtype = torch.float32 if len(start) >= WIDE else torch.float64
        parts = [part.to(dtype) for part in self.fitted.missing(start, mix)]
        held, missing = self.held.inputs.to(dtype), self.held.missing(start, mix)
        wanted = (missing[0] + missing[1]).to(dtype)
        inputs = self.fitted.inputs.to(dtype)
        changes = {share: solved(inputs, parts, share) for share in {*OUTPUT_RIDGES, *ERROR_RIDGES}}
        output = {share: changes[share][0] for share in OUTPUT_RIDGES}
        earlier_error = {share: changes[share][1] for share in ERROR_RIDGES}
        predicted = {share: held @ change for share, change in earlier_error.items()}

        def alone(change: Tensor, predicted: Tensor) -> float:
            return float((change * (predicted - 2 * wanted)).sum())

        firsts = {share: alone(change, held @ change) for share, change in output.items()}
        seconds = {share: alone(change, predicted[share]) for share, change in earlier_error.items()}

        def loss(pair: tuple[float, float]) -> float:
            together = 2 * float((output[pair[0]] * predicted[pair[1]]).sum())
            return firsts[pair[0]] + seconds[pair[1]] + together

        return Ridges(*min(product(OUTPUT_RIDGES, ERROR_RIDGES), key=loss))
