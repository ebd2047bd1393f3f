"""The same architectures with other matrices counted: dropped, split, fused, or embeddings added."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Final

import numpy as np

from zerolm.architecture import Architecture, Floats, Matrix
from zerolm.scores.capacity import DEVIATION

Matrices = tuple[Matrix, ...]
FULL: Final = "as published"
EMBEDDED: Final = "with embeddings"
WITHOUT: Final = "without "
ATTENTION, FFN = "attention only", "ffn only"
SPLIT, FUSED = "qkv split", "qkv fused"


def variants(architectures: Sequence[Architecture]) -> Iterator[tuple[str, list[Architecture]]]:
    """Each variant of the list of matrices by name, the full one first, those without effect left out.

    ``without NAME`` for every label that a matrix has; one of several fused projections leaves the others
    fused.
    """
    yield FULL, list(architectures)
    layers = (layer for architecture in architectures for layer in architecture.layers)
    matrices = (matrix for layer in layers for matrix in layer.matrices)
    labels = dict.fromkeys(label for matrix in matrices for label in _projections(matrix))
    changes: dict[str, Callable[[Matrices], Matrices]] = {SPLIT: split, FUSED: fused}
    changes |= {WITHOUT + label: partial(_without, label) for label in labels if label}
    changes |= {ATTENTION: partial(_of_role, "attention"), FFN: partial(_of_role, "ffn")}
    for name, change in changes.items():
        changed = [_changed(architecture, change) for architecture in architectures]
        if any(a.layers != b.layers for a, b in zip(changed, architectures, strict=True)):
            yield name, changed


def split(matrices: Matrices) -> Matrices:
    """Every projection of a fused matrix as a matrix of its own."""
    return tuple(
        replace(matrix, rows=matrix.rows // matrix.parts, parts=1, name=label)
        for matrix in matrices
        for label in _projections(matrix)
    )


def fused(matrices: Matrices) -> Matrices:
    """q, k and v as one matrix, where they are alike in shape."""
    single = [matrix for matrix in matrices if matrix.name in ("q", "k", "v")]
    if len(single) != 3 or len(set(single)) != 1:
        return matrices
    one = replace(single[0], rows=3 * single[0].rows, parts=3, name="qkv")
    return (one, *(matrix for matrix in matrices if matrix.name not in ("q", "k", "v")))


def _without(label: str, matrices: Matrices) -> Matrices:
    remaining = []
    for matrix in matrices:
        others = [each for each in _projections(matrix) if each != label]
        if len(others) == matrix.parts:
            remaining.append(matrix)
        elif others:
            rows = matrix.rows // matrix.parts * len(others)
            remaining.append(replace(matrix, rows=rows, parts=len(others), name="".join(others)))
    return tuple(remaining)


def _of_role(role: str, matrices: Matrices) -> Matrices:
    return tuple(matrix for matrix in matrices if matrix.role == role)


def _projections(matrix: Matrix) -> tuple[str, ...]:
    """The labels of the projections in a matrix: those of a fused qkv are q, k and v."""
    if matrix.parts == 1:
        return (matrix.name,)
    return tuple(matrix.name) if matrix.name == "qkv" else (matrix.name,) * matrix.parts


def _changed(architecture: Architecture, change: Callable[[Matrices], Matrices]) -> Architecture:
    layers = tuple(replace(layer, matrices=change(layer.matrices)) for layer in architecture.layers)
    return replace(architecture, layers=layers)


def embedding_terms(architectures: Sequence[Architecture]) -> dict[str, Floats]:
    """Return the terms of the input embedding in each score, (n,), by the shapes of its matrices.

    Where a space gives only the count E of its weights, they are one matrix E / d x d, d the width of the
    first layer. ``zerolm`` adds the longer side times 0.02^2 whatever alpha, for an embedding is neither
    attention nor FFN; ``geo``, whose unit is weights, adds E, as a layer with E weights of each kind would;
    ``stable_rank`` adds rows cols / (sqrt rows + sqrt cols)^2.
    """
    shapes: list[list[tuple[float, float]]] = []
    for architecture in architectures:
        count, width = architecture.ends.embedding, architecture.layers[0].width
        listed: list[tuple[float, float]] = [
            (matrix.rows, matrix.cols) for matrix in architecture.ends.embedding_matrices
        ]
        shapes.append(listed or ([(count / width, width)] if count else []))
    terms = {
        "zerolm": [sum(map(max, each)) * math.pow(DEVIATION, 2) for each in shapes],
        "geo": [float(architecture.ends.embedding) for architecture in architectures],
        "stable_rank": [sum(n * m / (math.sqrt(n) + math.sqrt(m)) ** 2 for n, m in each) for each in shapes],
    }
    return {name: np.array(values) for name, values in terms.items()}
