"""The loss of cutting one layer alone: a small table, measured at the parent's output, that plans sum up.

Weights choose units within a layer tolerably, but hardly show which layer to cut. Measured losses of single
cuts, interpolated and summed, rank whole plans far better.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any, Final, TypeVar, cast

import numpy as np
import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from zerolm.architecture import Floats, Ints
from zerolm.io.cache import ArrayCache, Arrays
from zerolm.networks.blocks import Blocks, tokens_at_once
from zerolm.networks.pooling import MEAN, TokenPooling
from zerolm.networks.states import HiddenStates
from zerolm.networks.stream import Stream
from zerolm.passes.divergence import kl
from zerolm.passes.walk import LARGE
from zerolm.progress import Progress, silent
from zerolm.text.tokens import Tokens
from zerolm.units.importance.criterion import Criterion
from zerolm.units.kept_units import Cut, Dimensions, LayerCut
from zerolm.units.pruning import Repaired, carved_layer, dimensions_of, enter, finish
from zerolm.units.stream.narrowing import Basis, Width

CUT_SHARES: Final = (0.0, 0.125, 0.25, 0.5, 0.625, 0.75, 0.875)
"""Kept shares at which a layer is measured: of the FFN, and of KV groups where there are many; at least one
unit."""
STREAM_SHARES: Final = (0.25, 0.375, 0.5, 0.625, 0.75, 0.875)
"""Kept shares of the width of the stream at which it is measured."""
MANY: Final = 8
LOSS_SEQUENCES: Final = 64
LOSS_BATCH: Final = 4
FINAL_TOKENS: Final = 1 << 12
"""Tokens that measure each of the best plans, and about the same number to repair it, or more where a repair
needs them."""
PREDICTED: Final = 1 << 12
KEPT_SHARE: Final = 8
"""The parent's predictions are stored if they take at most one in ``KEPT_SHARE`` bytes of memory; else each
cut recomputes them."""

T = TypeVar("T")
Finish = Callable[[int, Tensor], Any]
"""A function of a batch and the states behind the last layer that returns a model's output."""


@dataclass(frozen=True, eq=False)
class LossTable(Criterion):
    """Chooses units as ``by`` does; the score of a choice is minus its loss.

    ``losses[kind][layer]`` (s,) belong to ``sizes[kind]`` (s,), ascending; the last size is the whole, with
    loss 0. Between sizes losses are interpolated geometrically, because the loss of the last units is a
    multiple of that of the first, and linearly towards 0. ``without_layer`` (depth,) are the losses without a
    layer. ``stream`` has those of a narrower stream, if it can be cut. ``repaired`` has the losses of the
    same cuts after least squares, where they are estimated.
    """

    by: Criterion
    sizes: dict[str, Ints]
    losses: dict[str, list[Floats]]
    without_layer: Floats
    stream: StreamLosses | None = None
    repaired: LossTable | None = None

    def choose(self, layer: int, kind: str, count: int) -> Ints:
        return self.by.choose(layer, kind, count)

    def score(self, layer: int, kind: str, count: int) -> float:
        return -interpolated(count, self.sizes[kind], self.losses[kind][layer])

    def without(self, layer: int) -> float:
        return -float(self.without_layer[layer])

    def narrower(self, width: Width) -> float | None:
        return None if self.stream is None else -self.stream.loss(width)

    @property
    def every(self) -> list[LossTable]:
        """The losses as cut; where losses after repair are known also the means of both, and the latter."""
        return [self] if self.repaired is None else [self, midway(self, self.repaired), self.repaired]

    def predicted(self, cut: Cut) -> float:
        """Return the sum of the losses of a cut's parts."""
        kept = {layer.layer: layer for layer in cut.layers}
        total = 0.0
        if cut.narrowing and self.stream:
            total += self.stream.loss(cut.narrowing.width)
        for layer in range(cut.parent.depth):
            if layer not in kept:
                total -= self.without(layer)
                continue
            total -= sum(self.score(layer, kind, len(units)) for kind, units in kept[layer].kept.items())
        return total


def midway(table: LossTable, other: LossTable) -> LossTable:
    """Return the geometric mean of two tables of the same cuts; the arithmetic mean of losses with a 0."""
    stream = table.stream
    if stream is not None and other.stream is not None:
        losses = {head: _mean_of(row, other.stream.losses[head]) for head, row in stream.losses.items()}
        stream = replace(stream, losses=losses)
    return replace(
        table,
        losses={
            kind: [_mean_of(*pair) for pair in zip(rows, other.losses[kind], strict=True)]
            for kind, rows in table.losses.items()
        },
        without_layer=_mean_of(table.without_layer, other.without_layer),
        stream=stream,
        repaired=None,
    )


def _mean_of(losses: Floats, others: Floats) -> Floats:
    geometric = (losses > 0) & (others > 0)
    return np.where(geometric, np.sqrt(np.where(geometric, losses * others, 1.0)), (losses + others) / 2)


@dataclass(frozen=True, eq=False)
class StreamLosses:
    """Losses of a narrower stream with everything else whole, (s,) at each of ``sizes`` (s,), ascending.

    ``losses`` are keyed by whether the head is tied; the loss at the parent's width is 0.
    """

    sizes: Ints
    losses: dict[bool, Floats]

    def by_width(self, tied: bool) -> dict[int, float]:
        """Return the measured losses by width."""
        return dict(zip(self.sizes.tolist(), self.losses[tied].tolist(), strict=True))

    def loss(self, width: Width) -> float:
        """Return the loss of a width, interpolated."""
        return interpolated(width.hidden, self.sizes, self.losses[width.tied])


def interpolated(size: int, sizes: Ints, losses: Floats) -> float:
    """Return the loss at a size, geometrically between two that are not 0."""
    above = int(np.searchsorted(sizes, size))
    ends = slice(max(above - 1, 0), above + 1)
    geometric = (losses[ends] > 0).all()
    loss = np.interp(size, sizes[ends], np.log(losses[ends]) if geometric else losses[ends])
    return float(np.exp(loss) if geometric else loss)


def stream_losses(
    model: PreTrainedModel,
    tokens: Tokens,
    basis: Basis,
    *,
    tied: bool,
    progress: Progress = silent,
    cache: ArrayCache = ArrayCache(),  # noqa: B008
) -> StreamLosses:
    """Return the losses of narrowing the stream of the whole network to a few sizes, measured without repair.

    For a parent with a tied head (``tied``) children are measured with a tied head and with a head of their
    own. Sizes in the ``cache`` are not measured again.
    """
    whole = Cut.whole(dimensions_of(model))
    hidden = whole.parent.hidden
    loss = Loss(Blocks(model, tokens.spread(LOSS_SEQUENCES).filled(LOSS_BATCH)), whole.parent.depth)
    sizes = np.unique([max(1, round(share * hidden)) for share in STREAM_SHARES])
    losses: dict[bool, list[float]] = {}
    for head in {False, tied}:
        losses[head] = []
        for number, size in enumerate(sizes.tolist()):
            progress("measuring widths of the stream", number, len(sizes))
            row = cache.get(f"{size}-{head}")
            if row is None:
                narrower = replace(whole, narrowing=basis.narrowing(Width(size, head)))
                row = {"loss": np.array(loss.of_cut(narrower))}
                cache.put(f"{size}-{head}", row)
            losses[head].append(float(row["loss"]))
    return StreamLosses(
        np.append(sizes, hidden), {head: np.array([*column, 0.0]) for head, column in losses.items()}
    )


def measured_losses(
    model: PreTrainedModel,
    tokens: Tokens,
    by: Criterion,
    kinds: Sequence[str],
    *,
    progress: Progress = silent,
    batch: int = LOSS_BATCH,
    pooling: TokenPooling = MEAN,
    cache: ArrayCache = ArrayCache(),  # noqa: B008
) -> LossTable:
    """Return the measured losses of cutting each layer alone to a few sizes by ``by``, without repair.

    ``kinds`` are those of ``UNITS`` that may be cut. Layers below the cut one are not run again:
    their output is the parent's. ``pooling`` makes an encoder's embeddings. The ``cache`` stores losses by
    the units that are kept, whatever the criterion; stored losses are not measured again.
    """
    parent = dimensions_of(model)
    wholes = parent.wholes
    sizes = {kind: _sizes(whole) if kind in kinds else np.array([whole]) for kind, whole in wholes.items()}
    loss = Loss(Blocks(model, tokens.spread(LOSS_SEQUENCES).filled(batch)), parent.depth, pooling)
    rows = []
    for layer in range(parent.depth):
        progress("measuring cuts of each layer", layer, parent.depth)
        units = {
            kind: [by.choose(layer, kind, int(count)) for count in counts[:-1]]
            for kind, counts in sizes.items()
        }
        name = f"layer-{layer}-{digest_of(units)}"
        row = cache.get(name)
        if row is None:
            row = _row(model, loss, layer, units)
            cache.put(name, row)
        rows.append(row)
    losses = {kind: [row[kind] for row in rows] for kind in sizes}
    return LossTable(by, sizes, losses, np.array([float(row["gone"]) for row in rows]))


def digest_of(units: Mapping[str, Any]) -> str:
    """Return the SHA-256 of the units that are kept, by kind and size, as lists of arrays."""
    content = repr([(kind, _plain(kept)) for kind, kept in units.items()])
    return hashlib.sha256(content.encode()).hexdigest()


def _plain(kept: Any) -> Any:
    return [_plain(each) for each in kept] if isinstance(kept, list) else kept.tolist()


def _row(model: PreTrainedModel, loss: Loss, layer: int, units: dict[str, list[Ints]]) -> Arrays:
    """Return the losses of a layer cut to these units, (s,) for each kind, and without it (``gone``)."""
    whole = Cut.whole(dimensions_of(model))
    row: Arrays = {"gone": np.array(loss.without([layer])[layer])}
    for kind, sizes in units.items():
        cuts = (_alone(model, whole, layer, kind, kept) for kept in sizes)
        row[kind] = np.array([*(loss.of(layer, module) for module in cuts), 0.0])
    return row


def cuts_of(parent: Dimensions) -> int:
    """Return the number of measured cuts of each layer."""
    return sum(len(_sizes(whole)) - 1 for whole in parent.units) + 1


def _sizes(whole: int) -> Ints:
    if whole <= MANY:
        return np.arange(1, whole + 1)
    return np.unique([max(1, round(share * whole)) for share in (*CUT_SHARES, 1.0)])


def _alone(model: PreTrainedModel, whole: Cut, layer: int, kind: str, units: Ints) -> nn.Module:
    kept = whole.layers[layer]
    cut = LayerCut(layer, {**kept.kept, kind: units})
    return carved_layer(model, whole, cut).module


class Loss:
    """The distance of outputs when a layer is replaced: KL of predictions in nats per token, or 1 - cosine.

    Models without a language-model head are compared by embeddings, made by ``pooling``. With a large
    vocabulary about ``PREDICTED`` predictions are compared, evenly from all positions. ``parent`` is the
    reference network, on the same texts; by default that of ``blocks``. If it has more tokens, ``rows``
    selects those of its predictions that are compared.
    """

    def __init__(
        self,
        blocks: Blocks,
        depth: int,
        pooling: TokenPooling = MEAN,
        *,
        parent: Blocks | None = None,
        rows: Tensor | None = None,
    ) -> None:
        self.blocks, self.depth, self.pooling = blocks, depth, pooling
        self.parent, self.rows = parent or blocks, rows
        self.stream = Stream(blocks)  # the parent's states before the replaced layer
        self.wanted: dict[tuple[int, int], Any] = {}
        tokens = sum(batch["input_ids"].numel() for batch in blocks.batches)
        shortest = min((batch["input_ids"].shape[1] for batch in blocks.batches), default=1)
        wanted = -(-tokens // PREDICTED) if blocks.predicts and blocks.vocab >= LARGE else 1
        self.step = max(1, min(wanted, shortest))
        self.is_kept = 4 * tokens // self.step * blocks.vocab <= blocks.compute.limit // KEPT_SHARE

    def let_go(self) -> None:
        """Let go of all but the states behind the parent's last layer."""
        self.wanted.clear()
        self.stream = Stream(self.blocks)

    @cached_property
    def last(self) -> HiddenStates:
        """Return the states behind the parent's last layer, (b, t, d) each."""
        return (self.stream if self.parent is self.blocks else Stream(self.parent)).before(self.depth)

    def of(self, layer: int, module: nn.Module) -> float:
        """Return the mean loss with ``module`` in place of the layer."""
        hidden = self.blocks.states()
        for i, states in enumerate(self.stream.before(layer)):
            hidden.append(self.blocks.call(i, layer, states, module))
        return self._from(layer + 1, hidden)

    def without(self, layers: Sequence[int]) -> dict[int, float]:
        """Return the mean loss without each of these layers; the parent runs once for all of them."""
        without: dict[int, HiddenStates] = {}
        for layer in sorted(layers):
            without[layer] = self.blocks.states()
            for states in self.stream.before(layer):
                without[layer].append(states)
        return {layer: self._from(layer + 1, hidden) for layer, hidden in without.items()}

    def _from(self, layer: int, hidden: HiddenStates) -> float:
        """Return the mean loss with these states before a layer, which the parent's layers take up."""
        for above in range(layer, self.depth):
            for i, states in enumerate(hidden):
                hidden[i] = self.blocks.call(i, above, states)
        return self._mean(hidden, self.blocks.finish)

    def of_cut(self, cut: Cut, repaired: Repaired | None = None) -> float:
        """Return the mean loss of a whole cut, one of its layers in memory at a time."""
        arrays, hidden = repaired.arrays if repaired else {}, self.blocks.states()
        for index in range(len(self.blocks.batches)):
            hidden.append(enter(cut, self.blocks.embed(index)))
        for kept in cut.layers:
            layer = carved_layer(self.blocks.model, cut, kept, repaired).module
            for i, states in enumerate(hidden):
                hidden[i] = self.blocks.call(i, kept.layer, states, layer)
        return self._mean(hidden, lambda i, states: finish(self.blocks, i, states, cut, arrays))

    def of_network(self, other: Blocks, module: Callable[[int], nn.Module]) -> float:
        """Return the mean loss of another network on the same batches, layer by layer.

        ``module`` returns the module in the place of each layer.
        """
        return self._mean(Stream(other, module).before(self.depth), other.finish)

    def _mean(self, hidden: HiddenStates, end: Finish) -> float:
        distances = self._divergences if self.blocks.predicts else self._distances
        losses = torch.cat([distances(i, states, end) for i, states in enumerate(hidden)])
        mean = float(losses.cpu().double().mean())
        return 0.0 if mean < 0 else mean  # by rounding, where outputs are equal

    def _distances(self, index: int, states: Tensor, end: Finish) -> Tensor:
        """Return the distances of the embeddings of a batch from the parent's, (b,)."""
        embeddings = self._embeddings(index, end(index, states))
        wanted = self._once(
            (index, 0), lambda: self._embeddings(index, self.parent.finish(index, self.last[index]))
        )
        return self.pooling.distances(embeddings, wanted)

    def _embeddings(self, index: int, output: Any) -> Tensor:
        return self.pooling(output.last_hidden_state, self.blocks.tokens(index))

    def _divergences(self, index: int, states: Tensor, end: Finish) -> Tensor:
        """Return KL(parent || changed) for each token of a batch, (n,), from a few logits at a time."""
        size, places = tokens_at_once(self.blocks, len(states)), slice(self.step // 2, None, self.step)
        both = (torch.split(each[:, places], size, 1) for each in (states, self.last[index]))
        parts = []
        for part, (changed, unchanged) in enumerate(zip(*both, strict=True)):
            wanted = self._once((index, part), partial(self._predicted, index, unchanged))
            parts.append(kl(wanted, end(index, changed).logits))  # (b, n)
        return torch.cat(parts, 1)[self.blocks.tokens(index)[:, places]]

    def _predicted(self, index: int, states: Tensor) -> Tensor:
        """Return the parent's logits (b, n, v) behind its last layer."""
        logits: Tensor = self.parent.finish(index, states).logits
        return logits if self.rows is None else logits[..., self.rows.to(logits.device)]

    def _once(self, part: tuple[int, int], make: Callable[[], T]) -> T:
        """Return the parent's output for a part of a batch; it is stored where memory holds all parts."""
        if part in self.wanted:
            return cast(T, self.wanted[part])
        output = make()
        if self.is_kept:
            self.wanted[part] = output
        return output
