"""Costs of an architecture, exact in integers and additive over layers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, Final, Self

import numpy as np

from zerolm.architecture import Architecture, Ends, Ints, Layer, Shapes
from zerolm.cost_columns import COLUMNS
from zerolm.cost_columns import LATENCY as LATENCY

COSTS: Final = tuple(COLUMNS)
GROUP_BYTES: Final = 2
"""Bytes that a quantised group stores in addition to its weights (one 16-bit scale)."""


@dataclass(frozen=True, slots=True)
class CostModel:
    """How the network is run: what the costs depend on in addition to its shapes.

    ``context`` tokens attended to, ``batch`` sequences, ``kv_bits`` a cached number (in halves: types of
    blocks have 8.5), ``bits`` a weight of the body and head, in groups of ``group_size`` (16 and 32 bits need
    no groups).
    """

    context: int = 1024
    batch: int = 1
    kv_bits: float = 16
    bits: int = 16
    group_size: int = 128

    @property
    def names(self) -> tuple[str, ...]:
        """Return the names of the costs, in the order of the columns: ``COSTS``, and what else is known."""
        return COSTS

    def of_task(self, task: str) -> Self:
        """Return the costs of networks that predict this: only for the next token they keep a KV cache."""
        return self if task == "next" else replace(self, kv_bits=0)

    @property
    def conditions(self) -> dict[str, Any]:
        return {setting.name: getattr(self, setting.name) for setting in fields(CostModel)}

    def rows(self, layers: Callable[[], Sequence[Layer]], shapes: Shapes) -> Ints:
        """Return the costs that ``layers()``, of these ``shapes``, add: (n, k) int64 by ``names``.

        ``layers()`` is called only for costs that shapes do not determine, such as latency.
        """
        return self.layers(shapes)

    def layers(self, shapes: Shapes) -> Ints:
        """Return the costs that each layer adds, (n, 6) int64, columns in the order of ``COSTS``.

        ``params`` stored numbers; ``active_params`` those without the experts that a token does not meet;
        ``macs`` multiply-accumulates of one token that attends to ``context`` tokens, or to as many as a
        layer's window holds, and writes and reads each number of a state once; ``kv_bytes`` bytes of their
        keys and values and of states; ``weight_bytes`` bytes on disk.
        """
        weights = shapes.weights.sum(axis=1)
        windows = np.where(shapes.window > 0, shapes.window, self.context)
        tokens = np.minimum(windows, self.context)
        half_bits = (2 * shapes.kv_width * tokens + shapes.state) * (self.batch * round(2 * self.kv_bits))
        return np.stack(
            [
                weights + shapes.vectors,
                weights + shapes.vectors - shapes.idle - shapes.idle_vectors,
                weights + shapes.body_vectors,
                weights - shapes.idle + 2 * tokens * shapes.query_width + 2 * shapes.state,
                -(-half_bits // 16),
                self._matrix_bytes(shapes.weights).sum(axis=1) + shapes.vectors * self._rest_bytes,
            ],
            axis=1,
        )

    def ends(self, ends: Ends) -> Ints:
        """Return the costs of all that is outside the layers, (k,) int64 in the order of ``names``."""
        head = np.array([matrix.weights for matrix in ends.head_matrices], np.int64)
        stored = ends.embedding + ends.vectors
        return np.array(
            [
                stored + ends.head,
                stored + ends.head,
                ends.body_vectors,
                ends.tied_head + ends.head,
                0,
                int(self._matrix_bytes(head).sum()) + stored * self._rest_bytes,
            ],
            np.int64,
        )

    def of(self, architecture: Architecture) -> dict[str, int]:
        counts = Counter(architecture.layers)
        rows = self.rows(lambda: list(counts), Shapes.of(list(counts))).tolist()
        total = self.ends(architecture.ends).tolist()
        for row, count in zip(rows, counts.values(), strict=True):
            total = [a + count * b for a, b in zip(total, row, strict=True)]
        return dict(zip(self.names, total, strict=True))

    @property
    def _rest_bytes(self) -> int:
        """Return bytes of a number that is never quantised: embeddings, norms, biases."""
        return 4 if self.bits == 32 else 2

    def _matrix_bytes(self, weights: Ints) -> Ints:
        packed = -(-weights * self.bits // 8)
        if self.bits in (16, 32):
            return packed
        return packed + GROUP_BYTES * -(-weights // self.group_size)


@dataclass(frozen=True, eq=False)
class Latencies:
    """Microseconds that were measured: of each of the ``layers``, and of all that is outside them."""

    layers: Mapping[Layer, int]
    ends: int


@dataclass(frozen=True)
class TimedCosts(CostModel):
    """Costs with one more, the microseconds of a forward pass: the sum of ``latencies`` of all parts."""

    latencies: Latencies = field(kw_only=True)

    @property
    def names(self) -> tuple[str, ...]:
        return (*COSTS, LATENCY)

    def rows(self, layers: Callable[[], Sequence[Layer]], shapes: Shapes) -> Ints:
        """Return the costs of each layer, (n, 7); ``ValueError`` where the latency of one was not
        measured."""
        each = layers()
        missing = next((layer for layer in each if layer not in self.latencies.layers), None)
        if missing is not None:
            raise ValueError(f"no latency was measured of a layer of {missing.weights:,} weights")
        latencies = [self.latencies.layers[layer] for layer in each]
        return np.column_stack([self.layers(shapes), np.array(latencies, np.int64)])

    def ends(self, ends: Ends) -> Ints:
        return np.append(super().ends(ends), self.latencies.ends)
