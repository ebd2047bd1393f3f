"""Readers: networks that take passages of a text, however they are stored and run."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from torch import Tensor
from transformers import PreTrainedModel

from zerolm.architecture import Floats, Ints
from zerolm.networks.pooling import MEAN, TokenPooling
from zerolm.passes.outputs import NextTokens, embeddings, logits_of
from zerolm.passes.walk import predicted_places

Made = Callable[[], PreTrainedModel]
"""Makes a model when its turn comes, so that of several one is in memory at a time."""


class Predicted(Protocol):
    """Predictions of one network on a passage."""

    def nats(self, parent: Any) -> tuple[Floats, Ints]:
        """Return nats of surprise and of KL(parent || this), and their numbers, (spans, 2) both."""


class Reader:
    """A network that reads passages; those of one evaluation all take the same kind of passage."""

    def predictions(self, passage: Any) -> Predicted:
        """Return the predictions of a decoder on a passage."""
        raise NotImplementedError

    def embeddings(self, passage: Any) -> Tensor:
        """Return the embeddings (b, d) of an encoder for the sentences of a passage."""
        raise NotImplementedError

    @property
    def network(self) -> Made:
        """Makes the network in memory, to answer prompts."""
        raise NotImplementedError


@dataclass(frozen=True, eq=False)
class InMemory(Reader):
    """A reader of batches of tokens by a whole network in memory: of a folder, of a file, or a carving.

    It predicts at one position in ``every``.
    """

    make: Made
    pooling: TokenPooling = MEAN
    every: int = 1

    def predictions(self, passage: dict[str, Tensor]) -> NextTokens:
        last = passage["input_ids"].shape[1] - 1  # nothing follows it
        some = None if self.every == 1 else predicted_places(last, self.every)
        return NextTokens.of(logits_of(self.make(), passage, some), passage, some)

    def embeddings(self, passage: dict[str, Tensor]) -> Tensor:
        return embeddings(self.make(), passage, self.pooling)

    @property
    def network(self) -> Made:
        return self.make


@dataclass(frozen=True, eq=False)
class Recorded(Reader):
    """A reader whose outputs are held by the identity of passages: its network is not needed any more."""

    outputs: Mapping[int, Any]

    def predictions(self, passage: Any) -> Any:
        return self.outputs[id(passage)]

    embeddings = predictions
