"""Second moments of the inputs and output gradients of every matrix (torch).

An error e of a matrix W changes its output by e x. To second order it changes the loss by 1/2 E[(G . e x)^2],
G the gradient there (``zerolm.passes.walk``). Rounding errors are small, many and of random sign, so products
of two of them cancel: 1/2 sum_rc e_rc^2 E[G_r^2 x_c^2] remains. E[G_r^2 x_c^2] is approximated by two
vectors, E[G_r^2] and E[x_c^2], and one factor for each matrix: the mean of their joint sum over the product
of their sums. Plans with all of E[G_r^2 x_c^2] are no better.

The loss of an encoder is by sequence, and all tokens of a sequence have the same errors of a matrix. There
the sum over tokens of G_r x_c replaces G_r x_c, and the vectors are the sums of its squares by column and by
row.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import torch
from torch import Tensor, nn

from zerolm.architecture import Floats
from zerolm.io.cache import Arrays
from zerolm.networks.blocks import Blocks, embedded, tokens_at_once
from zerolm.networks.roles import StockLayer, layer_list, norm_gain, places_of
from zerolm.passes.walk import Accumulator, LayerGradients, NormInput, normalised

UNTIED: Final = ("embedding", "head")
EMBEDDING: Final = ("embedding",)
"""The role outside the layers of an encoder, and of a decoder with a tied head."""
Place = tuple[int | None, str]
"""A layer and the role of a matrix in it; None and ``embedding`` or ``head`` outside the layers."""


@dataclass(frozen=True, eq=False)
class MatrixMoments:
    """Moments of a matrix: ``inputs`` (k,) = E[x_c^2], ``gradients`` (n,) = E[G_r^2], and a joint ``factor``.

    For the embedding ``gradients`` holds the share of each token, and ``inputs`` the squared gradients by
    component.
    """

    inputs: Floats
    gradients: Floats
    factor: float


class MatrixSums(Accumulator):
    """Sums of the squared inputs and squared output gradients of every matrix."""

    def __init__(self, blocks: Blocks) -> None:
        self.paths = places_of(blocks.model).modules.projections
        self.arrays, self.needs_head_input = _empty(blocks), blocks.predicts

    def watched(self, layer: StockLayer) -> Mapping[str, nn.Module]:
        return {role: layer.module.get_submodule(path) for role, path in self.paths.items()}

    def above(self, blocks: Blocks, index: int, last: Tensor, reading: NormInput | None) -> None:
        if blocks.predicts:
            gain = norm_gain(blocks.model, "final_norm", None).to(last)
            add_head(blocks, index, last, self.arrays, lambda states, _: normalised(states) * gain)

    def layer(self, layer_gradients: LayerGradients, blocks: Blocks) -> None:
        add = _add if blocks.predicts else _add_sequences
        for role in self.paths:
            inputs, upstream = layer_gradients.values.inputs[role], layer_gradients.gradients.outputs[role]
            add(self.arrays, _name(layer_gradients.layer, role), inputs, upstream, layer_gradients.tokens)
        if layer_gradients.layer == 0:
            add_embedding(blocks, layer_gradients.index, layer_gradients.downstream, self.arrays)

    def matrices(self, blocks: Blocks) -> dict[Place, MatrixMoments]:
        """Return the means over all tokens of the batches; for an encoder over its sequences."""
        predicts = blocks.predicts
        counted = [blocks.tokens(index) for index in range(len(blocks.batches))]
        count = sum(int(tokens.sum()) if predicts else len(tokens) for tokens in counted)
        places: list[Place] = [
            (layer, role) for layer in range(len(layer_list(blocks.model))) for role in self.paths
        ]
        places += [(None, role) for role in outside_layers(predicts=predicts)]
        moments = {place: mean_of(self.arrays, _name(*place), count) for place in places}
        if predicts:
            embedding = moments[None, "embedding"]
            inputs = embedding.inputs * embedding_factor(blocks) ** 2
            moments[None, "embedding"] = replace(embedding, inputs=inputs)
        return moments


def outside_layers(*, predicts: bool) -> tuple[str, ...]:
    """Return the roles of the matrices outside the layers that have moments."""
    return UNTIED if predicts else EMBEDDING


@torch.no_grad()
def embedding_factor(blocks: Blocks) -> float:
    """Return the factor of the rows of a decoder's embedding before its first layer.

    It is 1 except in families that scale their stream: by the root of its width, or by a configured factor.
    """
    embedding, ids = blocks.model.get_input_embeddings(), blocks.batches[0]["input_ids"][:1]
    rows = embedding.get_parameter("weight")[ids].float()
    once, twice = (blocks.embed(0, factor * embedded(embedding, ids)) for factor in (1.0, 2.0))
    difference = blocks.keys.alone(twice - once)
    return float((difference * rows).sum() / rows.square().sum())


def _name(layer: int | None, role: str) -> str:
    return role if layer is None else f"{role}.{layer}"


def _empty(blocks: Blocks) -> Arrays:
    hidden = int(blocks.model.config.hidden_size)
    shapes = {name: (blocks.vocab, hidden) for name in outside_layers(predicts=blocks.predicts)}
    for number, layer in enumerate(layer_list(blocks.model)):
        for role, path in places_of(blocks.model).modules.projections.items():
            rows, columns = layer.get_submodule(path).get_parameter("weight").shape
            shapes[_name(number, role)] = (rows, columns)
    return {
        f"{name}.{kind}": np.zeros(size)
        for name, (rows, columns) in shapes.items()
        for kind, size in (("read", columns), ("felt", rows), ("both", 1))
    }


def _squares(values: Tensor) -> Floats:
    """Return the sums of squares over tokens, (k,) of (n, k)."""
    total: Floats = values.float().square().sum(0).cpu().double().numpy()
    return total


def _add(sums: Arrays, name: str, inputs: Tensor, gradients: Tensor, tokens: Tensor) -> None:
    x, g = inputs[tokens].float(), gradients[tokens].float()
    sums[f"{name}.read"] += _squares(x)
    sums[f"{name}.felt"] += _squares(g)
    sums[f"{name}.both"] += float((x.square().sum(1) * g.square().sum(1)).double().sum())


def _add_sequences(sums: Arrays, name: str, inputs: Tensor, gradients: Tensor, tokens: Tensor) -> None:
    """Add the squared gradients of each sequence of a batch in a matrix, summed over its tokens."""
    for x, g, wanted in zip(inputs, gradients, tokens, strict=True):
        _add_squares(sums, name, g[wanted].float().T @ x[wanted].float())


def _add_squares(sums: Arrays, name: str, gradient: Tensor, rows: Tensor | None = None) -> None:
    """Add the squares of a gradient (n, k) by column and by row; ``rows`` are its rows in the matrix."""
    squares = gradient.square()
    by_row = squares.sum(1).cpu().double().numpy()
    sums[f"{name}.read"] += squares.sum(0).cpu().double().numpy()
    if rows is None:
        sums[f"{name}.felt"] += by_row
    else:
        sums[f"{name}.felt"][rows.cpu().numpy()] += by_row
    sums[f"{name}.both"] += float(by_row.sum())


def add_embedding(blocks: Blocks, index: int, downstream: Tensor, sums: Arrays) -> None:
    """Add the moments of the embedding for a batch, from the gradients (b, t, d) before the first layer."""
    if not blocks.predicts:
        _add_embedded_sequences(blocks, index, downstream, sums)
        return
    tokens = blocks.tokens(index)
    ids = blocks.batches[index]["input_ids"][tokens].cpu().numpy()
    sums["embedding.felt"] += np.bincount(ids, minlength=blocks.vocab)
    sums["embedding.read"] += _squares(downstream[tokens])


def _add_embedded_sequences(blocks: Blocks, index: int, downstream: Tensor, sums: Arrays) -> None:
    """Add each sequence's gradients in the embedding, before its norm and what else is added to it."""
    ids = blocks.batches[index]["input_ids"]
    vectors = embedded(blocks.model.get_input_embeddings(), ids).requires_grad_()
    below = blocks.embed(index, vectors, gradients=True)
    (gradients,) = torch.autograd.grad(below, vectors, grad_outputs=downstream)
    for row, gradient, wanted in zip(ids, gradients, blocks.tokens(index), strict=True):
        some, places = torch.unique(row[wanted], return_inverse=True)
        total = gradient.new_zeros(len(some), gradient.shape[1])
        _add_squares(sums, "embedding", total.index_add_(0, places, gradient[wanted]), some)


def add_head(
    blocks: Blocks,
    index: int,
    last: Tensor,
    sums: Arrays,
    input_of: Callable[[Tensor, Tensor], Tensor] = lambda _, read: read,
) -> None:
    """Add the squared inputs of the head, and the uncertainty of each of its outputs z: p (1 - p) f'(z)^2.

    Logits are f(z), each a function of its own z: some families scale them, others cap them. ``input_of``
    returns the head's input from the states behind the last layer and from what the model passes to the head.
    """
    tokens, size = blocks.tokens(index), tokens_at_once(blocks, len(last))
    for states, wanted in zip(torch.split(last, size, 1), torch.split(tokens, size, 1), strict=True):
        z: list[Tensor] = []

        def head(module: nn.Module, read: Tensor, z: list[Tensor] = z) -> Tensor:
            z.extend([read.detach(), type(module).forward(module, read).detach().requires_grad_()])
            return z[-1]

        logits = blocks.finish(index, states, head=head, gradients=True).logits
        uncertain = (p := logits.detach().float().softmax(-1)[wanted]) * (1.0 - p)  # (n, v)
        if logits is not z[1]:
            (slope,) = torch.autograd.grad(logits.sum(), z[1])
            uncertain *= slope[wanted].float().square()
        x = input_of(states, z[0])[wanted]
        sums["head.read"] += _squares(x)
        sums["head.felt"] += uncertain.sum(0).cpu().double().numpy()
        sums["head.both"] += float((x.square().sum(1) * uncertain.sum(1)).double().sum())


def mean_of(sums: Arrays, name: str, count: int) -> MatrixMoments:
    inputs, gradients = sums[f"{name}.read"] / count, sums[f"{name}.felt"] / count
    separate, joint = float(inputs.sum() * gradients.sum()), float(sums[f"{name}.both"][0]) / count
    return MatrixMoments(inputs, gradients, joint / separate if joint and separate else 1.0)
