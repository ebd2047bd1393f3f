"""Architectures as lists of layers of weight matrices: shapes only, nothing is allocated."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal

import numpy as np
from numpy.typing import NDArray

from zerolm.io.brief import brief

Role = Literal["attention", "ffn", "embedding", "head"]
Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]
OF_LAYER: Final = (
    *("width", "query_width", "kv_width", "vectors", "body_vectors", "window"),
    *("idle", "state", "idle_vectors"),
)
"""The sizes of a layer other than those of its matrices."""
MAX_DEPTH: Final = 1024
MAX_WIDTH: Final = 1 << 20
MAX_VOCAB: Final = 1 << 24
"""No shape beyond these is read, so that exact int64 arithmetic cannot overflow."""


@dataclass(frozen=True, order=True, slots=True)
class Matrix:
    """The shape of one weight matrix, ``rows`` (outputs) x ``cols`` (inputs).

    ``parts`` is the number of projections fused along the rows (3 for a fused QKV matrix).
    ``scaled`` marks a projection into the residual stream whose initial deviation is divided by
    sqrt(2 L) in a network of L layers, as GPT-2 does. ``name`` says what the matrix is within its layer
    (q, qkv, o, up, ...); a label and no shape, it never makes two matrices differ.
    """

    role: Role
    rows: int
    cols: int
    parts: int = 1
    scaled: bool = False
    name: str = field(default="", compare=False)

    @property
    def weights(self) -> int:
        return self.rows * self.cols


@dataclass(frozen=True, order=True, slots=True)
class Layer:
    """One layer: its matrices and what else a cost needs to know.

    ``width`` is the size of the residual stream, ``query_width`` heads x head size of the queries that
    attend to the context, ``kv_width`` KV heads x head size. ``vectors`` counts biases and norms;
    ``body_vectors`` those of them that ``body_params`` counts. ``window`` is how many tokens it attends to
    at most, 0 for all; ``idle`` the weights that a token does not meet (experts not chosen for it);
    ``state`` the numbers that it keeps of a sequence however long that is; ``idle_vectors`` the biases of
    idle experts.
    """

    matrices: tuple[Matrix, ...]
    width: int
    query_width: int
    kv_width: int
    vectors: int = 0
    body_vectors: int = 0
    window: int = 0
    idle: int = 0
    state: int = 0
    idle_vectors: int = 0

    @property
    def weights(self) -> int:
        return sum(matrix.weights for matrix in self.matrices)


@dataclass(frozen=True, slots=True)
class Ends:
    """The parts of a network outside its layers.

    ``embedding`` and ``head`` count weights; ``embedding_matrices`` are the shapes behind the first where
    it is not one matrix as wide as the residual stream. A tied head is stored with the embedding: it adds
    multiply-accumulates but no parameters. ``vectors`` are final norms and the biases of the head;
    ``body_vectors`` those that ``body_params`` counts. ``head_matrices`` are the untied matrices of
    the head, which are quantised like the body's.
    """

    embedding: int
    tied_head: int = 0
    head_matrices: tuple[Matrix, ...] = ()
    vectors: int = 0
    body_vectors: int = 0
    embedding_matrices: tuple[Matrix, ...] = ()

    @property
    def head(self) -> int:
        return sum(matrix.weights for matrix in self.head_matrices)

    @property
    def outside(self) -> int:
        """Return the weights of embedding and head; a tied head is the embedding."""
        return self.embedding + self.head


@dataclass(frozen=True, repr=False)
class Architecture:
    """A concrete network: the choices made in its space (plain JSON) and the layers they give."""

    space: str
    choices: dict[str, Any]
    layers: tuple[Layer, ...]
    ends: Ends

    def __repr__(self) -> str:
        weights = sum(layer.weights for layer in self.layers)
        width = f"{self.mean_width:g}" if self.layers else "0"
        return brief(self, f"{self.space}, {self.depth} x {width}", f"{weights:,} weights in its layers")

    @property
    def plain(self) -> dict[str, Any]:
        """Return its choices: JSON has no more of it, for its space reads them again."""
        return self.choices

    @property
    def depth(self) -> int:
        return len(self.layers)

    @property
    def mean_width(self) -> float:
        return sum(layer.width for layer in self.layers) / len(self.layers)

    @property
    def identity(self) -> str:
        """Return text that is equal for what is the same network: the space, and a digest of all else.

        The names of matrices count here: what is kept of one network is never taken for another's.
        """
        choices = json.dumps(self.choices, sort_keys=True)
        shapes = repr((self.layers, self.ends))
        digest = hashlib.sha256(f"{choices}\n{shapes}".encode()).hexdigest()
        return f"{self.space}:{digest}"

    def shape_key(self) -> tuple[Layer, ...]:
        """Return a key that is equal for architectures whose layers are permutations of each other."""
        return tuple(sorted(self.layers))


@dataclass(frozen=True)
class Shapes:
    """Layers as columns: the arrays that every score and every cost is a function of.

    With n layers of at most m matrices, ``rows``, ``cols``, ``parts`` (int64) and ``attention``,
    ``ffn``, ``scaled`` (bool) are (n, m), absent matrices having 0 rows and columns and 1 part;
    ``width``, ``query_width``, ``kv_width``, ``vectors``, ``body_vectors``, ``window``, ``idle``, ``state``,
    ``idle_vectors`` are (n,) int64.
    """

    rows: Ints
    cols: Ints
    parts: Ints
    attention: Bools
    ffn: Bools
    scaled: Bools
    width: Ints
    query_width: Ints
    kv_width: Ints
    vectors: Ints
    body_vectors: Ints
    window: Ints
    idle: Ints
    state: Ints
    idle_vectors: Ints

    @classmethod
    def of(cls, layers: Sequence[Layer]) -> Shapes:
        size = (len(layers), max((len(layer.matrices) for layer in layers), default=0))
        rows, cols = np.zeros(size, np.int64), np.zeros(size, np.int64)
        parts = np.ones(size, np.int64)
        attention, ffn, scaled = (np.zeros(size, np.bool_) for _ in range(3))
        for i, layer in enumerate(layers):
            for j, matrix in enumerate(layer.matrices):
                rows[i, j], cols[i, j], parts[i, j] = matrix.rows, matrix.cols, matrix.parts
                attention[i, j] = matrix.role == "attention"
                ffn[i, j] = matrix.role == "ffn"
                scaled[i, j] = matrix.scaled
        columns = [np.array([getattr(layer, name) for layer in layers], np.int64) for name in OF_LAYER]
        return cls(rows, cols, parts, attention, ffn, scaled, *columns)

    @classmethod
    def of_columns(cls, layer: Layer, count: int) -> Shapes:
        """Return ``count`` layers of one layer whose sizes are columns (count,), or numbers for all.

        A layer lacks a matrix where its rows and columns are 0.
        """

        def column(value: Any) -> Ints:
            return np.broadcast_to(np.asarray(value, np.int64), count)

        def stacked(name: str) -> Ints:
            return np.stack([column(getattr(matrix, name)) for matrix in layer.matrices]).T

        def marked(marks: Sequence[bool]) -> Bools:
            return np.broadcast_to(np.array(marks), (count, len(marks)))

        rows, cols, parts = (stacked(name) for name in ("rows", "cols", "parts"))
        attention, ffn = (
            marked([matrix.role == role for matrix in layer.matrices]) for role in ("attention", "ffn")
        )
        if not rows.all():
            attention, ffn = attention & (rows > 0), ffn & (rows > 0)
        scaled = marked([matrix.scaled for matrix in layer.matrices])
        columns = [column(getattr(layer, name)) for name in OF_LAYER]
        return cls(rows, cols, parts, attention, ffn, scaled, *columns)

    def __len__(self) -> int:
        return len(self.width)

    @property
    def present(self) -> Bools:
        """Return which matrices exist, (n, m)."""
        return self.rows > 0

    @property
    def weights(self) -> Ints:
        """Return the weights of each matrix, (n, m)."""
        return self.rows * self.cols
