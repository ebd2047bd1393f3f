"""A basis of the stream from the weights alone: what is written to it, and what is read of it."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from zerolm.architecture import Floats
from zerolm.carving.width.maps import stored_gain
from zerolm.carving.width.narrowing import READERS, WRITERS, Basis, channel_basis, energies, ordered_basis
from zerolm.checkpoints import Checkpoint
from zerolm.checkpoints.dtypes import widened
from zerolm.families.family import BIAS
from zerolm.progress import Progress, silent

BY_WEIGHTS: Final = "weights"
SAMPLED_ROWS: Final = 512
"""Evenly spread rows (or columns) of a matrix that its second moments are taken from."""


def weights_basis(checkpoint: Checkpoint, *, progress: Progress = silent) -> Basis:
    """Return a basis that needs no tokens.

    The stream is taken for the normalised embeddings plus what o_proj and down_proj write, biases too,
    in equal parts; what an error costs for what the reading matrices, all of one norm, make of it.
    """
    layout = checkpoint.layout
    readers = [role for role in ("q", "k", "v", "gate", "up") if role != "gate" or layout.gated]
    embedding = _moments(_embeddings(checkpoint))
    written, read = np.zeros_like(embedding), np.zeros_like(embedding)
    for layer in range(layout.depth):
        progress("reading what the layers write and read", layer, layout.depth)
        for role in WRITERS:
            if layout.part(role, layer) is not None or not role.endswith(BIAS):
                written += _moments(_columns(checkpoint, role, layer))
        for role in readers:
            read += _normalised(_reading(checkpoint, role, layer))
    read += _normalised(_reading(checkpoint, "head", None))
    energy = embedding / np.trace(embedding) + written / max(np.trace(written), 1e-300)
    vectors = ordered_basis(energy, read)
    gain = stored_gain(checkpoint, "final_norm", None).astype(np.float64)
    return Basis(BY_WEIGHTS, vectors, energies(vectors, energy), np.eye(len(vectors)), gain)


def weights_channels(checkpoint: Checkpoint) -> Basis:
    """Return the channels of the stream as ``weights_basis`` takes it, those of most energy first."""
    written = sum(
        np.square(_columns(checkpoint, role, layer)).sum(axis=0, dtype=np.float64)
        for layer in range(checkpoint.layout.depth)
        for role in ("o", "down")
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


def _spread(count: int) -> NDArray[np.int64]:
    return np.linspace(0, count - 1, min(count, SAMPLED_ROWS)).astype(np.int64)


def _embeddings(checkpoint: Checkpoint) -> NDArray[np.float32]:
    """Return embeddings of mean square 1."""
    rows = _sampled(checkpoint, "embedding", None)
    return rows / np.sqrt(np.square(rows).mean(axis=1, keepdims=True) + 1e-20)  # type: ignore[no-any-return]


def _reading(checkpoint: Checkpoint, role: str, layer: int | None) -> NDArray[np.float32]:
    """Return rows of a reading matrix with the gain of its norm in them."""
    stored = "embedding" if role == "head" and checkpoint.layout.tied else role
    rows = _sampled(checkpoint, stored, layer)
    return np.asarray(rows * stored_gain(checkpoint, READERS[role], layer))


def _sampled(checkpoint: Checkpoint, role: str, layer: int | None) -> NDArray[np.float32]:
    name, part = _place(checkpoint, role, layer)
    rows = np.asarray(checkpoint.raw(name)[part.along])
    return widened(np.ascontiguousarray(rows[_spread(len(rows))]), checkpoint.tensors[name].dtype)


def _columns(checkpoint: Checkpoint, role: str, layer: int) -> NDArray[np.float32]:
    """Return columns of a writing matrix (d, n), or a bias (d,), as rows."""
    name, _ = _place(checkpoint, role, layer)
    raw = checkpoint.raw(name)
    raw = raw[:, None] if raw.ndim == 1 else raw
    columns = np.ascontiguousarray(raw[:, _spread(raw.shape[1])].T)
    return widened(columns, checkpoint.tensors[name].dtype)


def _place(checkpoint: Checkpoint, role: str, layer: int | None) -> tuple[str, Any]:
    place = checkpoint.layout.part(role, layer)
    if place is None:
        raise ValueError(f"the checkpoint has no {role}" + ("" if layer is None else f" in layer {layer}"))
    return place
