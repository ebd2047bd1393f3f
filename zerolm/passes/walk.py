"""One forward and one backward pass through a parent, layer by layer, with the gradients of its loss (torch).

For a small change d of an output, token by token, KL(parent || changed) is to second order
1/2 E[(sum_t G_t . d_t)^2]. G is the gradient in that output of -sum log p(y), y sampled from the parent's own
predictions at every position. An encoder's embeddings e are compared by 1 - cosine: there G is the gradient
of r . e / |e| with a normal r, and the formula is the same.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from zerolm.io.cache import ArrayCache, Arrays
from zerolm.networks.blocks import Blocks, tokens_at_once
from zerolm.networks.hooks import Seen, watching
from zerolm.networks.pooling import MEAN, TokenPooling
from zerolm.networks.roles import StockLayer, layer_list, norm_gain
from zerolm.progress import Counted, Progress, silent

EPSILON: Final = 1e-12
SAVED: Final = 8
"""How many times the sums of a pass are stored."""
BY_WEIGHTS: Final = "check the parent, or decide by weights alone: --criterion capacity, without --text"
LARGE: Final = 1 << 15
SAMPLED: Final = 8
"""With a vocabulary of ``LARGE`` tokens or more, one position in ``SAMPLED`` is predicted."""
STATES_SHARE: Final = 4
"""The states of batches that pass through the network together may take one in ``STATES_SHARE`` bytes of
memory."""
Watched = Callable[[StockLayer], Mapping[str, nn.Module]]


@dataclass(frozen=True, eq=False)
class LayerGradients:
    """Activations and gradients of one layer for the batch ``index``; ``tokens`` (b, t) masks its padding.

    ``below`` and ``above`` (b, t, d) are the states before and behind the layer, ``upstream`` and
    ``downstream`` the gradients behind and before it. ``values`` are the inputs and outputs of the watched
    modules, ``gradients`` the gradients in them.
    """

    index: int
    layer: int
    stock_layer: StockLayer
    tokens: Tensor
    below: Tensor
    above: Tensor
    upstream: Tensor
    downstream: Tensor
    values: Seen
    gradients: Seen


@dataclass(frozen=True, eq=False)
class NormInput:
    """The input ``stream`` of a norm and the ``gradient`` in it normalised, (b, t, d) both."""

    stream: Tensor
    gradient: Tensor


@dataclass(frozen=True, eq=False)
class WeightGradients:
    """The gradients of the batch ``index`` in the matrices of a ``layer``, by the names of its parameters.

    ``downstream`` (b, t, d) are those before the layer, ``inputs`` (b, t, p) those in the layer's other
    inputs for each token, if any.
    """

    index: int
    layer: int
    downstream: Tensor
    weights: Mapping[str, Tensor]
    inputs: Tensor | None


@dataclass(frozen=True, eq=False)
class BatchGroup:
    """Batches that pass through the network together, so that each layer is read once for all of them.

    ``states[layer]`` are the states before each layer, and last those behind the last layer: one (b, t, d)
    for each batch of ``indices``. ``step()`` reports that a layer is done.
    """

    blocks: Blocks
    indices: range
    states: list[list[Tensor]]
    step: Callable[[], None]

    def layers(self, upstream: Sequence[Tensor], watched: Watched) -> Iterator[LayerGradients]:
        """Yield the activations and gradients of each layer, from the last to the first, batch by batch.

        ``upstream`` are the gradients behind the last layer. One layer's graph is in memory at a time. Raises
        ``ValueError`` for gradients that are not finite.
        """
        for index, layer, pair, above in self._backwards(list(upstream)):
            layer_gradients = _layer_gradients(self.blocks, index, layer, pair, above[index], watched)
            yield layer_gradients
            above[index] = layer_gradients.downstream

    def weight_gradients(self, upstream: Sequence[Tensor]) -> Iterator[WeightGradients]:
        """Yield gradients in the matrices of each layer, in the order and with the errors of ``layers``."""
        for index, layer, pair, above in self._backwards(list(upstream)):
            gradients = _weight_gradients(self.blocks, index, layer, pair[0], above[index])
            yield gradients
            above[index] = gradients.downstream

    def _backwards(
        self, upstream: Sequence[Tensor]
    ) -> Iterator[tuple[int, int, tuple[Tensor, Tensor], dict[int, Tensor]]]:
        """Yield batches and layers, last layer first: states before and behind it, and gradients behind it.

        The caller replaces those gradients by the ones before the layer.
        """
        above = dict(zip(self.indices, upstream, strict=True))
        for layer in reversed(range(len(self.states) - 1)):
            for place, index in enumerate(self.indices):
                if not above[index].isfinite().all():
                    raise ValueError(
                        f"the gradients of layer {layer} are not finite: it has no estimates; {BY_WEIGHTS}"
                    )
                yield index, layer, (self.states[layer][place], self.states[layer + 1][place]), above
            self.states[layer + 1] = []  # has served
            self.step()


def batch_groups(
    blocks: Blocks, sums: Arrays, cache: ArrayCache, name: str, text: str, progress: Progress
) -> Iterator[BatchGroup]:
    """Yield the batches that pass through the network together, and store the ``sums`` after each group.

    Sums in the ``cache`` under ``name`` are resumed: they are copied into the arrays of ``sums``.
    """
    count, depth = len(blocks.batches), len(layer_list(blocks.model))
    stored = cache.get(name)
    done = int(stored["batches"]) if stored else 0
    if stored:
        for kind, total in sums.items():
            total[...] = stored[kind]
    room = blocks.compute.limit // STATES_SHARE // (depth * max(blocks.state_bytes))
    size = max(1, min(count // SAVED, room))
    steps = Counted(progress, text, 2 * depth * -(-count // size), 2 * depth * (done // size))
    for first in range(done, count, size):
        indices = range(first, min(first + size, count))
        states = [[blocks.embed(index) for index in indices]]
        for layer in range(depth):
            below = zip(indices, states[-1], strict=True)
            states.append([blocks.call(index, layer, each) for index, each in below])
            if not all(bool(each.isfinite().all()) for each in states[-1]):
                raise ValueError(
                    f"the outputs of layer {layer} are not finite: its weights or inputs are too large; "
                    f"{BY_WEIGHTS}"
                )
            steps()
        yield BatchGroup(blocks, indices, states, steps)
        cache.put(name, sums | {"batches": np.array(indices.stop)})


class Accumulator(ABC):
    """Sums over one forward and backward pass, by name in ``arrays``, which are changed in place.

    One that ``needs_head_input`` gets the input of the last norm, which then has to be a root mean square.
    """

    arrays: Arrays
    needs_head_input = False

    @abstractmethod
    def watched(self, layer: StockLayer) -> Mapping[str, nn.Module]:
        """Return the modules of a layer whose inputs, outputs and gradients are added, by name."""

    def above(self, blocks: Blocks, index: int, last: Tensor, reading: NormInput | None) -> None:
        """Add the states ``last`` (b, t, d) behind the last layer, and the input of the last norm.

        ``reading`` is None where no accumulator reads the head.
        """
        del blocks, index, last, reading  # most accumulators need layers only

    @abstractmethod
    def layer(self, layer_gradients: LayerGradients, blocks: Blocks) -> None:
        """Add a layer of a batch; the last layer comes first."""


def walk(
    blocks: Blocks,
    accumulators: Mapping[str, Accumulator],
    cache: ArrayCache,
    text: str,
    *,
    pooling: TokenPooling = MEAN,
    progress: Progress = silent,
    name: str = "sums",
) -> None:
    """Pass all batches forward and backward through the network, once for all accumulators.

    Sums in the ``cache`` under ``name`` are resumed. Raises ``ValueError`` where a gradient is not finite.
    """
    every = accumulators.values()
    needs_head_input = any(each.needs_head_input for each in every)
    sums = {f"{of}.{kind}": x for of, each in accumulators.items() for kind, x in each.arrays.items()}

    def watched(layer: StockLayer) -> Mapping[str, nn.Module]:
        return {name: module for each in every for name, module in each.watched(layer).items()}

    for part in batch_groups(blocks, sums, cache, name, text, progress):
        upstream = []
        for index, last in zip(part.indices, part.states[-1], strict=True):
            reading = None
            if needs_head_input:
                reading, above = gradient_by_head(blocks, index, last)
            else:
                above = gradient_above(blocks, index, last, pooling=pooling)
            for accumulator in every:
                accumulator.above(blocks, index, last, reading)
            upstream.append(above)
        for layer_gradients in part.layers(upstream, watched):
            for accumulator in every:
                accumulator.layer(layer_gradients, blocks)


def gradient_above(blocks: Blocks, index: int, last: Tensor, *, pooling: TokenPooling = MEAN) -> Tensor:
    """Return the gradient (b, t, d) in the states behind the last layer."""
    if blocks.predicts:
        return _gradient_by_predictions(blocks, index, last, blocks.finish)
    top = last.detach().requires_grad_()
    with torch.enable_grad():
        states = blocks.finish(index, top, gradients=True).last_hidden_state
        tokens, generator = blocks.tokens(index), torch.Generator().manual_seed(index)
        directions = pooling.direction(pooling(states, tokens))  # (b, d)
        drawn = torch.randn(directions.shape, generator=generator).to(directions)
        (gradient,) = torch.autograd.grad((directions * drawn).sum(), top)
    return gradient


def gradient_by_head(blocks: Blocks, index: int, last: Tensor) -> tuple[NormInput, Tensor]:
    """Return the input of the last norm with its gradient, and the gradient before it.

    The norm has to be a root mean square.
    """
    gain = norm_gain(blocks.model, "final_norm", None).to(blocks.device)
    gradient, parts = torch.zeros_like(last), list[Tensor]()

    def read(index: int, top: Tensor, *, gradients: bool) -> Any:
        head_input = normalised(top) * gain
        head_input.register_hook(parts.append)  # type: ignore[no-untyped-call]
        return blocks.head(index, head_input, gradients=gradients)

    upstream = _gradient_by_predictions(blocks, index, last, read)
    places, scale = _predicted(blocks, last.shape[1])
    gradient[:, places] = scale * gain * torch.cat(parts, 1)
    return NormInput(last, gradient), upstream


def predicted_step(vocab: int) -> int:
    """Return how far apart positions are that are predicted with a vocabulary of this size."""
    return SAMPLED if vocab >= LARGE else 1


def predicted_places(length: int, step: int) -> range:
    """Return the positions that are predicted in a sequence, ``step`` apart."""
    return range(min(step // 2, length - 1), length, step)


def _predicted(blocks: Blocks, length: int) -> tuple[slice, float]:
    """Return the positions of sequences whose predictions are sampled, and a scale for their gradients.

    With a large vocabulary that is one position in ``SAMPLED``. Sampled y make the gradients of different
    predictions uncorrelated. So the second moments of a sum over some predictions are a share of those over
    all, and the scale corrects for the share.
    """
    places = predicted_places(length, predicted_step(blocks.vocab))
    return slice(places.start, None, places.step), float((length / len(places)) ** 0.5)


def _gradient_by_predictions(blocks: Blocks, index: int, last: Tensor, end: Callable[..., Any]) -> Tensor:
    """Return the gradient (b, t, d) of -log p of sampled tokens, summed, in the states behind the last layer.

    Where only some positions are predicted, it is scaled so that its second moments are those of all. It is
    computed for some positions at a time, so that few logits are in memory. A batch always samples the same
    tokens.
    """
    generator, (places, scale) = torch.Generator().manual_seed(index), _predicted(blocks, last.shape[1])
    some, tokens = last[:, places], blocks.tokens(index)[:, places]
    gradients, size = torch.zeros_like(last), tokens_at_once(blocks, len(last))
    parts = []
    for part, wanted in zip(torch.split(some, size, 1), torch.split(tokens, size, 1), strict=True):
        top = part.detach().requires_grad_()
        with torch.enable_grad():
            logits = end(index, top, gradients=True).logits.float()
            if not logits.isfinite().all():
                raise ValueError(
                    f"the parent's predictions are not finite: no loss can be estimated; {BY_WEIGHTS}"
                )
            log = functional.log_softmax(logits, dim=-1).flatten(0, 1)  # (b x n, v)
            drawn = torch.multinomial(log.detach().exp().cpu(), 1, generator=generator)  # (b x n, 1)
            surprise = -log.gather(1, drawn.to(log.device))[wanted.flatten()].sum()
            (gradient,) = torch.autograd.grad(surprise, top)
        parts.append(gradient)
    gradients[:, places] = scale * torch.cat(parts, 1)
    return gradients


def _layer_gradients(
    blocks: Blocks, index: int, layer: int, states: tuple[Tensor, Tensor], upstream: Tensor, watched: Watched
) -> LayerGradients:
    """Return the activations and gradients of a layer for a batch with these states before and behind it."""
    below, stock_layer = states[0].detach().requires_grad_(), blocks.layer(layer)
    with torch.enable_grad(), watching(watched(stock_layer), below) as seen:
        out = blocks.call(index, layer, below, stock_layer.module, gradients=True)
    places = [*seen.inputs.values(), *seen.outputs.values()]
    *inside, downstream = torch.autograd.grad(out, [*places, below], grad_outputs=upstream)
    values, gradients = (
        Seen(
            dict(zip(seen.inputs, each, strict=False)),
            dict(zip(seen.outputs, each[len(seen.inputs) :], strict=True)),
        )
        for each in ([place.detach() for place in places], inside)
    )
    return LayerGradients(
        index, layer, stock_layer, blocks.tokens(index), *states, upstream, downstream, values, gradients
    )


def _weight_gradients(
    blocks: Blocks, index: int, layer: int, below: Tensor, upstream: Tensor
) -> WeightGradients:
    """Return the gradients of a layer for a batch with these states before it; unused matrices have none."""
    below, module = below.detach().requires_grad_(), blocks.layer(layer).module
    matrices = {name: weight for name, weight in module.named_parameters() if weight.dim() > 1}
    more = blocks.inputs_of_layer(index, layer)
    leaves = [*matrices.values(), *([] if more is None else [more])]
    try:
        for leaf in leaves:
            leaf.requires_grad_(True)
        out = blocks.call(index, layer, below, module, gradients=True)
        downstream, *inside = torch.autograd.grad(
            out, [below, *leaves], grad_outputs=upstream, allow_unused=True
        )
    finally:
        for leaf in leaves:
            leaf.requires_grad_(False)
    weights = {name: each for name, each in zip(matrices, inside, strict=False) if each is not None}
    return WeightGradients(index, layer, downstream, weights, None if more is None else inside[-1])


def norm_inputs(layer_gradients: LayerGradients, blocks: Blocks) -> Iterator[NormInput]:
    """Yield the inputs of a layer's norms with their gradients, where ``input_norms`` were watched."""
    for norm in ("attention_norm", "ffn_norm"):
        stream = layer_gradients.values.inputs[norm]
        gain = norm_gain(blocks.model, norm, layer_gradients.layer).to(stream)
        yield NormInput(stream, layer_gradients.gradients.outputs[norm] * gain)


def input_norms(layer: StockLayer) -> dict[str, nn.Module]:
    """Return the norms of a layer, before all modules that read the residual stream."""
    return {"attention_norm": layer.norms["before"], "ffn_norm": layer.norms["between"]}


def writers(layer: StockLayer) -> Mapping[str, nn.Module]:
    """Return the modules that write to the residual stream."""
    return layer.writers


def writers_and_norms(layer: StockLayer) -> Mapping[str, nn.Module]:
    """Return the modules that write to the residual stream, and the norms behind them."""
    return {**layer.writers, **layer.behind}


def normalised(x: Tensor) -> Tensor:
    """Return states (b, t, d) divided by their root mean square."""
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + EPSILON)
