"""Second moments of the gradients of each matrix of a file, as one vector by row and one by column (torch).

To second order an error e of a matrix W changes the loss by 1/2 E[(sum_rc g_rc e_rc)^2], g the gradient of W
(``zerolm.passes.walk``). Products of two rounding errors cancel: 1/2 sum_rc E[g_rc^2] e_rc^2 remains.
E[g_rc^2] is stored as its sums over rows and over columns. All tokens of a sequence share the error, so g is
summed over them; for an expert it is summed over the tokens that are routed to it. The method does not depend
on the modules that use a matrix: convolutions, recurrences, experts and heads all have gradients.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray
from torch import Tensor
from transformers import PreTrainedModel

from zerolm.architecture import Floats
from zerolm.children.child_tensors import Child
from zerolm.children.gguf.file_tensors import FileMatrix, matrices
from zerolm.io.cache import ArrayCache, Arrays
from zerolm.networks.blocks import Blocks
from zerolm.networks.mapped import by_tensor
from zerolm.networks.pooling import MEAN, TokenPooling
from zerolm.networks.roles import body_prefix, places_of
from zerolm.passes.matrix_moments import (
    MatrixMoments,
    Place,
    add_embedding,
    add_head,
    embedding_factor,
    mean_of,
    outside_layers,
)
from zerolm.passes.walk import batch_groups, gradient_above
from zerolm.progress import Progress, silent
from zerolm.text.tokens import Tokens

DECODER_TOKENS: Final = 1 << 12
ENCODER_TOKENS: Final = 1 << 14
"""Number of tokens for an encoder, whose samples are sequences."""
KINDS: Final = ("read", "felt", "both")
LEAST: Final = 1e-300
LAYER_EMBEDDING: Final = "layer_embedding"
"""The role of token embeddings that layers get in addition to hidden states, concatenated over layers."""


@dataclass(frozen=True, eq=False)
class GradientMoments:
    """Moments of the m matrices (n, k) of a tensor: ``inputs`` (m, k), ``gradients`` (m, n), ``factor`` (m,).

    E[g_rc^2] of a matrix is approximated by its factor x gradients_r x inputs_c, as in a ``MatrixMoments``.
    """

    inputs: NDArray[np.floating]
    gradients: NDArray[np.floating]
    factor: Floats

    def of(self, number: int) -> MatrixMoments:
        inputs, gradients = (each[number].astype(np.float64) for each in (self.inputs, self.gradients))
        return MatrixMoments(inputs, gradients, float(self.factor[number]))


def file_moments(
    model: PreTrainedModel,
    child: Child,
    tokens: Tokens,
    *,
    pooling: TokenPooling = MEAN,
    progress: Progress = silent,
    cache: ArrayCache = ArrayCache(),  # noqa: B008
) -> dict[str, list[GradientMoments]]:
    """Return the moments of the matrices of an uncut child, by their names in a file.

    A tied embedding has two entries. Other matrices outside the layers have none, unless they embed tokens.
    Memory holds one layer and its gradients; sums are float32. ``pooling`` makes an encoder's embeddings.
    Sums in the ``cache`` are resumed. Raises ``ValueError`` where a gradient is not finite.
    """
    predicts = Blocks(model, []).predicts
    blocks = Blocks(model, tokens.most(DECODER_TOKENS if predicts else ENCODER_TOKENS).filled(1))
    every = list(matrices(child))
    ends = outside_layers(predicts=predicts)
    inside: dict[int | None, list[FileMatrix]] = {}
    for matrix in every:
        inside.setdefault(matrix.stack.place[0], []).append(matrix)
    sums = _empty([matrix for layer, some in inside.items() if layer is not None for matrix in some])
    shapes = dict.fromkeys(ends, (blocks.vocab, int(model.config.hidden_size)))
    for matrix in inside.get(None, ()):
        if matrix.stack.place[1] == LAYER_EMBEDDING:
            shapes[LAYER_EMBEDDING] = matrix.rows, matrix.columns
    for name, (rows, columns) in shapes.items():
        lengths = zip(KINDS, (columns, rows, 1), strict=True)
        sums |= {f"{name}.{kind}": np.zeros(length) for kind, length in lengths}
    before = f"{body_prefix(model)}{places_of(model).modules.layers}"
    for part in batch_groups(blocks, sums, cache, "sums", "computing second moments of gradients", progress):
        upstream = []
        for index, last in zip(part.indices, part.states[-1], strict=True):
            if predicts:
                add_head(blocks, index, last, sums)
            upstream.append(gradient_above(blocks, index, last, pooling=pooling))
        for gradients in part.weight_gradients(upstream):
            named = {f"{before}.{gradients.layer}.{name}": each for name, each in gradients.weights.items()}
            stored = dict(by_tensor(child.parent, named, body_prefix(model)))
            for matrix in inside.get(gradients.layer, ()):
                _add(sums, matrix, stored)
            if gradients.inputs is not None:
                _add_inputs(blocks, gradients.index, gradients.layer, gradients.inputs, sums)
            if gradients.layer == 0:
                below = blocks.keys.alone(gradients.downstream)
                add_embedding(blocks, gradients.index, below, sums)
    counted = [blocks.tokens(index) for index in range(len(blocks.batches))]
    count = sum(int(each.sum()) if predicts else len(each) for each in counted)
    factor = embedding_factor(blocks) ** 2 if predicts else 1.0
    return {matrix.name: each for matrix in every if (each := _means(matrix, sums, count, factor, ends))}


def of_matrices(child: Child, moments: Mapping[Place, MatrixMoments]) -> dict[str, list[GradientMoments]]:
    """Return the same from ``moments`` of modules, for a file that only reorders rows of matrices."""
    every = {}
    for matrix in matrices(child):
        place, piece = matrix.stack.place, matrix.piece
        is_tied = place == (None, "embedding") and child.parent.layout.tied and (None, "head") in moments
        uses = [place, (None, "head")] if is_tied else [place]
        every[matrix.name] = [
            GradientMoments(each.inputs[None], each.gradients[None, piece.rows], np.array([each.factor]))
            for each in (moments[use] for use in uses if use in moments)
        ]
    return {name: each for name, each in every.items() if each}


def _empty(every: list[FileMatrix]) -> Arrays:
    """Return zero sums for every matrix, in float32 because there may be many thousands of experts."""
    return {
        f"{matrix.name}.{kind}": np.zeros((matrix.count, length), np.float32)
        for matrix in every
        for kind, length in (("read", matrix.columns), ("felt", matrix.rows))
    }


def _add(sums: Arrays, matrix: FileMatrix, stored: Mapping[str, Tensor]) -> None:
    tensors = matrix.stack.tensors
    if not all(tensor.source in stored for tensor in tensors):
        return  # a layer that does not use it
    inputs, gradients = (sums[f"{matrix.name}.{kind}"] for kind in ("read", "felt"))
    if not matrix.is_by_expert:
        squares = _squares(matrix, stored[tensors[0].source])
        inputs += squares.sum(1)
        gradients += squares.sum(2)
        return
    for number in range(matrix.count):
        alone = tensors[0].slot.expert is not None
        gradient = stored[tensors[number].source][None] if alone else stored[tensors[0].source][number][None]
        if gradient.count_nonzero():
            squares = _squares(matrix, gradient)
            inputs[number] += squares[0].sum(0)
            gradients[number] += squares[0].sum(1)


def _add_inputs(blocks: Blocks, index: int, layer: int, gradients: Tensor, sums: Arrays) -> None:
    """Add the squares of gradients (b, t, p) in a layer's token inputs other than hidden states."""
    tokens, width = blocks.tokens(index), gradients.shape[-1]
    squares = gradients[tokens].float().square().sum(0).cpu().double().numpy()
    sums[f"{LAYER_EMBEDDING}.read"][layer * width : (layer + 1) * width] += squares
    if layer == 0:
        total = sums[f"{LAYER_EMBEDDING}.felt"]
        ids = blocks.batches[index]["input_ids"][tokens].cpu().numpy()
        total += np.bincount(ids, minlength=len(total))[: len(total)]


def _squares(matrix: FileMatrix, gradient: Tensor) -> NDArray[np.float32]:
    """Return the squared gradients in the matrices (m, n, k) of a file, from that in the stored tensor."""
    return np.square(matrix.of(gradient.float().cpu().numpy()) * matrix.slopes)


def _means(
    matrix: FileMatrix, sums: Arrays, count: int, embedded: float, ends: tuple[str, ...]
) -> list[GradientMoments]:
    """Return the moments of a matrix; an empty list where none were measured."""
    layer, role = matrix.stack.place
    if layer is not None:
        inputs, gradients = (sums[f"{matrix.name}.{kind}"] / np.float32(count) for kind in ("read", "felt"))
        both = inputs.sum(1, dtype=np.float64)
        return [GradientMoments(inputs, gradients, 1.0 / np.maximum(both, LEAST))]
    if role == LAYER_EMBEDDING:
        return [_outside(matrix, sums, role, count, input_factor(matrix) ** 2)]
    if role not in ends:
        return []
    of_both = role == "embedding" and matrix.stack.first.child.parent.layout.tied
    return [_outside(matrix, sums, name, count, embedded) for name in (ends if of_both else (role,))]


def input_factor(matrix: FileMatrix) -> float:
    """Return the derivative of a layer's token input by the token's row.

    Rows are multiplied by the root of the number of components, and averaged with a projection of the
    embedding: x = (projection + row sqrt(p)) / sqrt(2), as in ``Gemma4TextModel``.
    """
    return float((matrix.stack.first.child.parent.layout.sizes["layer_inputs"] / 2) ** 0.5)


def _outside(matrix: FileMatrix, sums: Arrays, name: str, count: int, embedded: float) -> GradientMoments:
    mean, slope = mean_of(sums, name, count), float(matrix.slopes[0, 0])
    scale = slope**2 * (1.0 if name == "head" else embedded)
    return GradientMoments(scale * mean.inputs[None], mean.gradients[None], np.array([mean.factor]))
