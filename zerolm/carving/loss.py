"""The loss of a changed network: the distance of its outputs from the parent's, layer by layer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any, Final

import torch
from torch import Tensor

from zerolm.networks.blocks import Blocks, tokens_at_once
from zerolm.networks.pooling import MEAN, TokenPooling
from zerolm.networks.roles import layer_list
from zerolm.networks.states import HiddenStates
from zerolm.networks.stream import Stream
from zerolm.passes.divergence import kl
from zerolm.passes.walk import LARGE, predicted_places
from zerolm.units.kept_units import Cut
from zerolm.units.pruning import CarvedNetwork, Repaired

LOSS_BATCH: Final = 4
FINAL_TOKENS: Final = 1 << 12
"""Tokens that measure each of the best plans, and about the same number to repair it, or more where a repair
needs them."""
PREDICTED: Final = 1 << 12

Finish = Callable[[int, Tensor], Any]
"""A function of a batch and the states behind the last layer that returns a model's output."""


class Loss:
    """The distance of a changed network's outputs: KL of predictions in nats per token, or 1 - cosine.

    Models without a language-model head are compared by embeddings, made by ``pooling``. With a large
    vocabulary about ``PREDICTED`` predictions are compared, evenly from all positions. ``parent`` is the
    reference network, on the same texts; by default that of ``blocks``. If it has more tokens, ``rows``
    selects those of its predictions that are compared.
    """

    def __init__(
        self,
        blocks: Blocks,
        pooling: TokenPooling = MEAN,
        *,
        parent: Blocks | None = None,
        rows: Tensor | None = None,
    ) -> None:
        self.blocks, self.depth, self.pooling = blocks, len(layer_list(blocks.model)), pooling
        self.parent, self.rows = parent or blocks, rows
        self.stream = Stream(blocks)  # of the parent, while single layers are removed
        tokens = sum(batch["input_ids"].numel() for batch in blocks.batches)
        shortest = min((batch["input_ids"].shape[1] for batch in blocks.batches), default=1)
        wanted = -(-tokens // PREDICTED) if blocks.predicts and blocks.vocab >= LARGE else 1
        self.step = max(1, min(wanted, shortest))

    @cached_property
    def last(self) -> HiddenStates:
        """Return the states behind the parent's last layer, (b, t, d) each."""
        return (self.stream if self.parent is self.blocks else Stream(self.parent)).before(self.depth)

    def without(self, layers: Sequence[int]) -> dict[int, float]:
        """Return the mean loss without each of these layers; the parent runs once for all of them."""
        without: dict[int, HiddenStates] = {}
        for layer in sorted(layers):
            without[layer] = self.blocks.states()
            for states in self.stream.before(layer):
                without[layer].append(states)
        for layer, hidden in without.items():
            for above in range(layer + 1, self.depth):
                for i, states in enumerate(hidden):
                    hidden[i] = self.blocks.call(i, above, states)
        return {layer: self._mean(hidden, self.blocks.finish) for layer, hidden in without.items()}

    def of_cut(self, cut: Cut, repaired: Repaired | None = None) -> float:
        """Return the mean loss of a whole cut, one of its layers in memory at a time."""
        return self.of_network(CarvedNetwork(self.blocks, cut, repaired))

    def of_network(self, network: CarvedNetwork) -> float:
        return self._mean(network.states(), network.finish)

    def _mean(self, hidden: HiddenStates, end: Finish) -> float:
        distances = self._divergences if self.blocks.predicts else self._distances
        losses = torch.cat([distances(i, states, end) for i, states in enumerate(hidden)])
        mean = float(losses.cpu().double().mean())
        return 0.0 if mean < 0 else mean  # by rounding, where outputs are equal

    def _distances(self, index: int, states: Tensor, end: Finish) -> Tensor:
        """Return the distances of the embeddings of a batch from the parent's, (b,)."""
        wanted = self._embeddings(index, self.parent.finish(index, self.last[index]))
        return self.pooling.distances(self._embeddings(index, end(index, states)), wanted)

    def _embeddings(self, index: int, output: Any) -> Tensor:
        return self.pooling(output.last_hidden_state, self.blocks.tokens(index))

    def _divergences(self, index: int, states: Tensor, end: Finish) -> Tensor:
        """Return KL(parent || changed) for each token of a batch, (n,), from a few logits at a time."""
        size, some = tokens_at_once(self.blocks, len(states)), predicted_places(states.shape[1], self.step)
        places = slice(some.start, None, self.step)
        both = (torch.split(each[:, places], size, 1) for each in (states, self.last[index]))
        parts = [
            kl(self._predicted(index, unchanged), end(index, changed).logits)  # (b, n)
            for changed, unchanged in zip(*both, strict=True)
        ]
        return torch.cat(parts, 1)[self.blocks.tokens(index)[:, places]]

    def _predicted(self, index: int, states: Tensor) -> Tensor:
        """Return the parent's logits (b, n, v) behind its last layer."""
        logits: Tensor = self.parent.finish(index, states).logits
        return logits if self.rows is None else logits[..., self.rows.to(logits.device)]
