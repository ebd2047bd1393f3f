"""A basis of the stream from the weights alone: those that write to it, and those that read it."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from zerolm.architecture import Floats
from zerolm.checkpoints import Checkpoint, Part
from zerolm.checkpoints.dtypes import widened
from zerolm.families.family import BIAS
from zerolm.progress import Progress, silent
from zerolm.units.stream.maps import stored_gain
from zerolm.units.stream.narrowing import (
    WRITERS,
    Basis,
    channel_basis,
    energies,
    norm_before,
    ordered_basis,
    writes,
)

BY_WEIGHTS: Final = "weights"
SAMPLED_ROWS: Final = 512
"""Evenly spread rows (or columns) of a matrix that its second moments are computed from."""
SAMPLED_EXPERTS: Final = 4
"""Evenly spread experts of a layer that represent all."""
StreamPart = tuple[str, str, Part, tuple[int, ...]]
"""A matrix or bias in a layer that has an axis along the stream: role, tensor, part of it, expert in it."""


def weights_basis(checkpoint: Checkpoint, *, progress: Progress = silent) -> Basis:
    """Return a basis that needs no tokens.

    The energy is that of the normalised embeddings plus that of the columns of o_proj and down_proj, with
    biases, in equal parts. The cost of an error is its squared product with the reading matrices, each scaled
    to the same norm.
    """
    layout = checkpoint.layout
    embedding = _moments(_embeddings(checkpoint))
    written, read = np.zeros_like(embedding), np.zeros_like(embedding)
    for layer in range(layout.depth):
        progress("reading the weights of the residual stream", layer, layout.depth)
        inside = _inside(checkpoint, layer)
        for matrix in inside:
            if writes(matrix[0]):
                written += _moments(_columns(checkpoint, matrix))
        for matrix in inside:
            if not writes(matrix[0]):
                read += _normalised(_reading(checkpoint, matrix, layer))
    head = "embedding" if layout.tied else "head"
    read += _normalised(_reading(checkpoint, ("head", *_place(checkpoint, head), ()), None))
    energy = embedding / np.trace(embedding) + written / max(np.trace(written), 1e-300)
    vectors = ordered_basis(energy, read)
    gain = stored_gain(checkpoint, "final_norm", None).astype(np.float64)
    return Basis(BY_WEIGHTS, vectors, energies(vectors, energy), np.eye(len(vectors)), gain)


def weights_channels(checkpoint: Checkpoint) -> Basis:
    """Return the channels of the stream by the energy that ``weights_basis`` uses, the largest first."""
    written = sum(
        np.square(_columns(checkpoint, matrix)).sum(axis=0, dtype=np.float64)
        for layer in range(checkpoint.layout.depth)
        for matrix in _inside(checkpoint, layer)
        if writes(matrix[0]) and not matrix[0].endswith(BIAS)
    )
    embedding = np.square(_embeddings(checkpoint)).sum(axis=0, dtype=np.float64)
    energy = embedding / embedding.sum() + written / max(np.sum(written), 1e-300)
    return channel_basis(energy, stored_gain(checkpoint, "final_norm", None).astype(np.float64))


def _moments(rows: NDArray[np.float32]) -> Floats:
    """Return X^T X (d, d) of rows X (n, d)."""
    return np.asarray(rows.T @ rows, np.float64)


def _normalised(rows: NDArray[np.float32]) -> Floats:
    moments = _moments(rows)
    return np.asarray(moments / max(np.trace(moments), 1e-300))


def _spread(count: int, most: int = SAMPLED_ROWS) -> NDArray[np.int64]:
    return np.linspace(0, count - 1, min(count, most)).astype(np.int64)


def _inside(checkpoint: Checkpoint, layer: int) -> list[StreamPart]:
    """Return a layer's matrices that read or write the stream, with sampled experts; usual roles first."""
    layout = checkpoint.layout
    matrices: list[StreamPart] = []
    chosen = set(_spread(layout.sizes.get("experts", 1), SAMPLED_EXPERTS).tolist())
    for name in layout.layer(layer).values():
        slot = layout.slots[name]
        if "hidden" not in slot.axes or (slot.expert is not None and slot.expert not in chosen):
            continue
        is_of_all = slot.of_experts and slot.expert is None
        inside: list[tuple[int, ...]] = [(expert,) for expert in sorted(chosen)] if is_of_all else [()]
        parts = (part for part in slot.parts if not part.role.endswith("norm"))
        matrices += [(part.role, name, part, expert) for part in parts for expert in inside]
    order = (*WRITERS, "q", "k", "v", "gate", "up")
    return sorted(matrices, key=lambda one: order.index(one[0]) if one[0] in order else len(order))


def _embeddings(checkpoint: Checkpoint) -> NDArray[np.float32]:
    rows = _rows(checkpoint, "embedding", *_place(checkpoint, "embedding"), ())
    return rows / np.sqrt(np.square(rows).mean(axis=1, keepdims=True) + 1e-20)  # type: ignore[no-any-return]


def _reading(checkpoint: Checkpoint, matrix: StreamPart, layer: int | None) -> NDArray[np.float32]:
    return np.asarray(_rows(checkpoint, *matrix) * stored_gain(checkpoint, norm_before(matrix[0]), layer))


def _rows(
    checkpoint: Checkpoint, role: str, name: str, part: Part, expert: tuple[int, ...]
) -> NDArray[np.float32]:
    raw = _oriented(checkpoint, name, part, expert)
    return widened(np.ascontiguousarray(raw[_spread(len(raw))]), checkpoint.tensors[name].dtype)


def _columns(checkpoint: Checkpoint, matrix: StreamPart) -> NDArray[np.float32]:
    """Return columns of a writing matrix (d, n), or a bias (d,), as rows."""
    _, name, part, expert = matrix
    raw = _oriented(checkpoint, name, part, expert)
    raw = raw[:, None] if raw.ndim == 1 else raw
    columns = np.ascontiguousarray(raw[:, _spread(raw.shape[1])].T)
    return widened(columns, checkpoint.tensors[name].dtype)


def _oriented(checkpoint: Checkpoint, name: str, part: Part, expert: tuple[int, ...]) -> NDArray[Any]:
    """Return a part as (outputs, inputs), raw, of one expert where there are several."""
    place: list[Any] = [slice(None)] * len(checkpoint.tensors[name].shape)
    place[part.axis] = part.along
    place[: len(expert)] = expert
    raw = np.asarray(checkpoint.raw(name)[tuple(place)])
    of_each = part.role.endswith(BIAS) and raw.ndim == 2  # a bias of each expert
    return raw.T if checkpoint.layout.slots[name].transposed or of_each else raw


def _place(checkpoint: Checkpoint, role: str) -> tuple[str, Part]:
    place = checkpoint.layout.part(role)
    if place is None:
        raise ValueError(f"the checkpoint has no {role}")
    return place
