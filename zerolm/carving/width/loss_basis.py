"""A basis of the stream by what the loss feels of it (torch)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional
from transformers import PreTrainedModel

from zerolm.carving.width.narrowing import Basis, energies, ordered_basis
from zerolm.io.cache import ArrayCache, Arrays
from zerolm.networks.blocks import Blocks
from zerolm.networks.hooks import watching
from zerolm.networks.roles import StockLayer, layer_list, norm_gain
from zerolm.progress import Progress, silent
from zerolm.text.tokens import Tokens

BY_LOSS: Final = "loss"
BASIS_SEQUENCES: Final = 64
"""So many, evenly spread, suffice: second moments of a few thousand tokens hardly move."""
BASIS_BATCH: Final = 2
EPSILON: Final = 1e-12
BASIS_SUMS: Final = ("energy", "metric", "last")
SAVED: Final = 8
"""How often sums are stored."""
READ: Final = ("attention_norm", "ffn_norm")


def loss_basis(
    model: PreTrainedModel,
    tokens: Tokens,
    *,
    progress: Progress = silent,
    cache: ArrayCache = ArrayCache(),  # noqa: B008
) -> Basis:
    """Return the basis that loses least of what the loss feels, to second order.

    Wherever a norm reads the stream, let x (d,) be the normalised stream without the norm's gain, and g (d,)
    the gradient of -log p(y) in it, for a y that is drawn from the model's own predictions. What goes of x is
    weighed by the Fisher information, the mean of g g^T; both x x^T and g g^T are summed over all norms.

    Hidden states of one batch are in memory, one of each layer. Sums that are in the ``cache`` are gone on
    with.
    """
    blocks = Blocks(model, tokens.spread(BASIS_SEQUENCES).batches(BASIS_BATCH))
    gain = norm_gain(model, "final_norm", None).double().cpu().numpy()
    count, size = len(blocks.batches), len(gain)
    zeros = {name: np.zeros((size, size)) for name in BASIS_SUMS}
    sums = cache.get("sums") or zeros | {"batches": np.array(0)}
    for index in range(int(sums["batches"]), count):
        progress("weighing directions of the stream", index, count)
        _add_batch(model, blocks, index, sums)
        if (index + 1) % max(1, count // SAVED) == 0:
            cache.put("sums", sums)
    energy, last = sums["energy"], sums["last"]
    vectors = ordered_basis(energy, sums["metric"])
    return Basis(BY_LOSS, vectors, energies(vectors, energy), last / np.trace(last), gain)


def _add_batch(model: PreTrainedModel, blocks: Blocks, index: int, sums: Arrays) -> None:
    generator = torch.Generator().manual_seed(index)
    mask = blocks.batches[index].get("attention_mask")
    for reading in _readings(model, blocks, index, generator):
        rows = torch.ones(reading.stream.shape[:2]).bool() if mask is None else mask.bool()
        x = normalised(reading.stream)[rows].double().cpu()  # (n, d)
        g = reading.felt[rows].double().cpu()  # (n, d)
        moments = (x.T @ x).numpy()
        sums["energy"] += moments
        sums["metric"] += (g.T @ g).numpy()
        if reading.is_last:
            sums["last"] += moments
    sums["batches"] = np.array(index + 1)


@dataclass(frozen=True, eq=False)
class Reading:
    """The ``stream`` (b, t, d) before a norm, and the gradient ``felt`` (b, t, d) in it normalised."""

    stream: Tensor
    felt: Tensor
    is_last: bool


def _readings(
    model: PreTrainedModel, blocks: Blocks, index: int, generator: torch.Generator
) -> Iterator[Reading]:
    """Yield what each norm reads of a batch, from the last to the first."""
    states = [blocks.embed(index)]
    depth = len(layer_list(model))
    for layer in range(depth):
        states.append(blocks.call(index, layer, states[-1]))
    top, gain = states[-1].detach().requires_grad_(), norm_gain(model, "final_norm", None)
    with torch.enable_grad():
        sent = normalised(top) * gain
        loss = _surprise(blocks.head(index, sent, gradients=True).logits, generator)
        felt, upstream = torch.autograd.grad(loss, (sent, top))
    yield Reading(states[-1], felt * gain, True)
    for layer in reversed(range(depth)):
        below, ours = states[layer].detach().requires_grad_(), blocks.layer(layer)
        with torch.enable_grad(), watching(_watched(ours)) as seen:
            out = blocks.call(index, layer, below, ours.module, gradients=True)
            reads = (seen.inputs["attention_norm"], seen.inputs["ffn_norm"])
            *felt_in, upstream = torch.autograd.grad(out, (*reads, below), grad_outputs=upstream)
        between = states[layer] + seen.outputs["o"].detach()
        for norm, stream, gradient in zip(READ, (states[layer], between), felt_in, strict=True):
            yield Reading(stream, gradient * norm_gain(model, norm, layer), False)


def _surprise(logits: Tensor, generator: torch.Generator) -> Tensor:
    """Return the sum of -log p of tokens that are drawn from the predictions (b, t, v) themselves."""
    log = functional.log_softmax(logits.float(), dim=-1).flatten(0, 1)  # (b x t, v)
    drawn = torch.multinomial(log.detach().exp().cpu(), 1, generator=generator)  # (b x t, 1)
    return -log.gather(1, drawn.to(log.device)).sum()


def _watched(layer: StockLayer) -> Mapping[str, nn.Module]:
    return {"attention_norm": layer.attention_in[0], "ffn_norm": layer.ffn_in[0], "o": layer.attention_out}


def normalised(x: Tensor) -> Tensor:
    """Return states (b, t, d) over their root mean square."""
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + EPSILON)
