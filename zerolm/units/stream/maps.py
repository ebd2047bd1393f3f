"""The tensors of a child with a narrower stream, each one product with its parent's, a block at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from zerolm.checkpoints import Checkpoint
from zerolm.checkpoints.dtypes import widened
from zerolm.families.family import BIAS, Family
from zerolm.units.stream.narrowing import Narrowing, norm_before, writes

Values = NDArray[np.float32]
PRODUCT_BLOCK: Final = 1024
"""Rows or columns of a product at a time, equal everywhere so that equal products have equal bits."""


def stored_gain(checkpoint: Checkpoint, norm: str, layer: int | None) -> Values:
    """Return the gain of a norm of a checkpoint, (d,)."""
    name = checkpoint.layout.name(norm, layer)
    assert name is not None
    gain: Values = checkpoint.read(name) + np.float32(checkpoint.family.tensors.factors.shift)
    return gain


@dataclass(frozen=True, eq=False)
class StreamMaps:
    """The factors of the tensors that have an axis along the stream, by role and layer.

    ``gain(norm, layer)`` returns a norm's gain (d,) of the parent. ``fitted`` holds maps (d, k) by (layer,
    norm) that replace those of the basis; the last norm has the number of layers. The ``family`` determines
    how gains and embeddings are stored.
    """

    narrowing: Narrowing
    depth: int
    gain: Callable[[str, int | None], Values]
    fitted: Mapping[tuple[int, str], Values]
    family: Family

    @property
    def grown(self) -> float:
        """Return the factor of a stored embedding where the model scales it by the root of the width."""
        if not self.family.tensors.factors.rooted:
            return 1.0
        return float(np.sqrt(len(self.narrowing.basis) / self.narrowing.width.hidden))

    def input_map(self, norm: str, layer: int | None) -> Values:
        """Return the map of the matrices behind a norm, (d, k)."""
        fitted = self.fitted.get((self.depth if layer is None else layer, norm))
        if fitted is not None:
            return fitted
        return self.narrowing.input_map(norm, self.gain(norm, layer).astype(np.float64)).astype(np.float32)

    def blocks(
        self, role: str, layer: int | None, raw: NDArray[Any], dtype: str, *, turned: bool = False
    ) -> Iterator[Values]:
        """Yield the child's tensor in blocks of rows, from the parent's ``raw`` numbers of a ``dtype``.

        Experts in one tensor are yielded one after another; ``turned``: stored as (inputs, outputs).
        """
        role = role.split("+")[0]
        if raw.ndim == 3:
            for expert in raw:
                matrix = self.whole(role, layer, expert.T if turned else expert, dtype)
                yield np.ascontiguousarray(matrix.T if turned else matrix)[None]
        elif role.endswith("norm"):
            ones = np.ones(self.narrowing.width.hidden)
            final = self.narrowing.final_gain if role == "final_norm" else None
            gain = ones if final is None else final / self.grown
            yield (gain - self.family.tensors.factors.shift).astype(np.float32)
        elif writes(role):
            is_of_experts = raw.ndim == 2 and role.endswith(BIAS)
            yield self._written(raw.T, dtype).T if is_of_experts else self._written(raw, dtype)
        else:
            factor = self._factor(role, layer)
            for start in range(0, len(raw), PRODUCT_BLOCK):
                yield widened(raw[start : start + PRODUCT_BLOCK], dtype) @ factor

    def whole(
        self, role: str, layer: int | None, raw: NDArray[Any], dtype: str, *, turned: bool = False
    ) -> Values:
        """Return the child's tensor."""
        return np.concatenate(list(self.blocks(role, layer, raw, dtype, turned=turned)))

    def applied(self, role: str, layer: int | None, values: Values, vectors: Values) -> Values:
        """Return the child's matrices times ``vectors`` (n, p), from the parent's ``values`` alone."""
        role = role.split("+")[0]
        if writes(role):
            return np.asarray(self.narrowing.basis.T.astype(np.float32) @ (values @ vectors))
        return np.asarray(values @ (self._factor(role, layer) @ vectors))

    def _factor(self, role: str, layer: int | None) -> Values:
        if role == "embedding":
            return (self.grown * self.narrowing.embedding).astype(np.float32)
        return self.input_map(norm_before(role), layer)

    def _written(self, raw: NDArray[Any], dtype: str) -> Values:
        """Return R^T W, or R^T b of a bias, with W (d, n) read some columns at a time."""
        across = np.ascontiguousarray(self.narrowing.basis.T.astype(np.float32))  # (k, d)
        if raw.ndim == 1:
            return across @ widened(raw, dtype)
        out = np.empty((len(across), raw.shape[1]), np.float32)
        for start in range(0, raw.shape[1], PRODUCT_BLOCK):
            columns = np.ascontiguousarray(raw[:, start : start + PRODUCT_BLOCK])
            out[:, start : start + PRODUCT_BLOCK] = across @ widened(columns, dtype)
        return out
