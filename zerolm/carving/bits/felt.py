"""Second moments of what every matrix reads, and of what is felt of its outputs (torch).

An error e of a matrix W changes its output by e x, and the loss to second order by 1/2 E[(G . e x)^2], G the
gradient there (``zerolm.carving.backward``). The errors of rounding are small, many and of random sign, so
that the products of two of them cancel: what is left is 1/2 sum_rc e_rc^2 E[G_r^2 x_c^2]. Of G_r^2 x_c^2 two
vectors are kept, E[G_r^2] and E[x_c^2], and how much more the two are together than apart, a number for each
matrix: with all of E[G_r^2 x_c^2] plans are no better.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from zerolm.architecture import Floats
from zerolm.carving.backward import felt_by_head, normalised, together
from zerolm.io.cache import ArrayCache, Arrays
from zerolm.networks.blocks import Blocks, tokens_at_once
from zerolm.networks.roles import StockLayer, layer_list, norm_gain, places_of
from zerolm.progress import Progress, silent
from zerolm.text.tokens import Tokens

FELT_TOKENS: Final = 1 << 12
FELT_BATCH: Final = 2
Place = tuple[int | None, str]
"""A layer and the role of a matrix in it; None and ``embedding`` or ``head`` outside the layers."""


@dataclass(frozen=True, eq=False)
class FeltMatrix:
    """Of a matrix: ``read`` (k,) = E[x_c^2], ``felt`` (n,) = E[G_r^2], and their product's ``factor``.

    Of the embedding ``felt`` are the shares of each token, and ``read`` what is felt of a component.
    """

    read: Floats
    felt: Floats
    factor: float


def felt_matrices(
    model: PreTrainedModel,
    tokens: Tokens,
    *,
    progress: Progress = silent,
    cache: ArrayCache = ArrayCache(),  # noqa: B008
) -> dict[Place, FeltMatrix]:
    """Return what is read and felt of every matrix of a decoder with root mean square norms.

    That of the embedding (``read`` by component of the stream) and of the head are under None. Sums that are
    in the ``cache`` are gone on with. Raises ``ValueError`` where a gradient is not finite.
    """
    blocks = Blocks(model, tokens.most(FELT_TOKENS).batches(FELT_BATCH))
    sums = _empty(model, blocks)
    text = "weighing every matrix"
    paths = places_of(model).modules.projections

    def watched(layer: StockLayer) -> Mapping[str, nn.Module]:
        return {role: layer.module.get_submodule(path) for role, path in paths.items()}

    for part in together(blocks, sums, cache, "sums", text, progress):
        upstream = []
        for index, last in zip(part.indices, part.states[-1], strict=True):
            _add_head(blocks, index, last, sums)
            upstream.append(felt_by_head(blocks, index, last)[1])
        for felt in part.felt(upstream, watched):
            for role in paths:
                name = _name(felt.layer, role)
                _add(sums, name, felt.values.inputs[role], felt.gradients.outputs[role], felt.tokens)
            if felt.layer == 0:
                ids = blocks.batches[felt.index]["input_ids"][felt.tokens].cpu().numpy()
                sums["embedding.felt"] += np.bincount(ids, minlength=blocks.vocab)
                sums["embedding.read"] += _squares(felt.downstream[felt.tokens])
    count = sum(int(blocks.tokens(index).sum()) for index in range(len(blocks.batches)))
    depth = len(layer_list(model))
    places: list[Place] = [(layer, role) for layer in range(depth) for role in paths]
    return {
        place: _mean(sums, _name(*place), count) for place in [*places, (None, "embedding"), (None, "head")]
    }


def _name(layer: int | None, role: str) -> str:
    return role if layer is None else f"{role}.{layer}"


def _empty(model: PreTrainedModel, blocks: Blocks) -> Arrays:
    """Return sums of nothing yet, of every matrix."""
    hidden = int(model.config.hidden_size)
    shapes = {name: (blocks.vocab, hidden) for name in ("embedding", "head")}
    for number, layer in enumerate(layer_list(model)):
        for role, path in places_of(model).modules.projections.items():
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


def _add(sums: Arrays, name: str, read: Tensor, felt: Tensor, tokens: Tensor) -> None:
    x, g = read[tokens].float(), felt[tokens].float()
    sums[f"{name}.read"] += _squares(x)
    sums[f"{name}.felt"] += _squares(g)
    sums[f"{name}.both"] += float((x.square().sum(1) * g.square().sum(1)).double().sum())


def _add_head(blocks: Blocks, index: int, last: Tensor, sums: Arrays) -> None:
    """Add what the head reads, and how uncertain each of its logits is: p (1 - p)."""
    gain = norm_gain(blocks.model, "final_norm", None).to(last)
    tokens, size = blocks.tokens(index), tokens_at_once(blocks, len(last))
    for states, wanted in zip(torch.split(last, size, 1), torch.split(tokens, size, 1), strict=True):
        p = blocks.finish(index, states).logits.float().softmax(-1)[wanted]  # (n, v)
        x = (normalised(states) * gain)[wanted]
        uncertain = p * (1.0 - p)
        sums["head.read"] += _squares(x)
        sums["head.felt"] += uncertain.sum(0).cpu().double().numpy()
        sums["head.both"] += float((x.square().sum(1) * uncertain.sum(1)).double().sum())


def _mean(sums: Arrays, name: str, count: int) -> FeltMatrix:
    read, felt = sums[f"{name}.read"] / count, sums[f"{name}.felt"] / count
    apart, both = float(read.sum() * felt.sum()), float(sums[f"{name}.both"][0]) / count
    return FeltMatrix(read, felt, both / apart if both and apart else 1.0)
