"""Outputs of whole networks for batches of tokens: predictions of next tokens, and embeddings (torch)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from transformers import PreTrainedModel

from zerolm.architecture import Floats, Ints
from zerolm.networks.compute import as_noted
from zerolm.networks.pooling import MEAN, TokenPooling
from zerolm.networks.roles import body_of
from zerolm.passes.divergence import kl, surprises

SPANS: Final = {"first": (0, 1), "1-15": (1, 16), "rest": (16, None)}
"""Position ranges of a window, counted from 0, whose predictions are summed separately: the first token is a
sink (arXiv 2309.17453), and the next ones have little text before them."""
BATCH: Final = 8
"""Sequences of a passage, at most."""
LOGITS: Final = 1 << 27
"""Logits of a passage at most, of which two networks' are in memory: half a gigabyte each."""


def sequences_at_once(vocab: int, length: int) -> int:
    """Return the number of sequences of a length in a passage, limited by the logits of each network."""
    return max(1, min(BATCH, LOGITS // (vocab * length)))


@dataclass(frozen=True, eq=False)
class NextTokens:
    """Predictions of next tokens: ``logits`` (b, n, v) for the tokens ``following``, (b, n).

    Those that are ``counted`` (b, n) are followed by a token, not by padding. ``places`` are the positions of
    the n in their window.
    """

    logits: Tensor
    following: Tensor
    counted: Tensor
    places: range

    @classmethod
    def of(cls, logits: Tensor, inputs: Mapping[str, Tensor], places: range | None = None) -> NextTokens:
        """Return the predictions from the logits (b, n or more, v) for a batch of t tokens.

        They are of n ``places`` in the batch, by default of all t - 1 that a token follows.
        """
        places = range(inputs["input_ids"].shape[1] - 1) if places is None else places
        after = [place + 1 for place in places]
        following, counted = (
            x[:, after].to(logits.device) for x in (inputs["input_ids"], token_mask(inputs))
        )
        return cls(logits[:, : len(places)], following, counted, places)

    def nats(self, parent: NextTokens) -> tuple[Floats, Ints]:
        """Return sums of surprise and of KL(parent || this) in nats, and their counts, both (spans, 2)."""
        divergence = kl(parent.logits.to(self.logits.device), self.logits)
        nats = torch.stack([surprises(self.logits, self.following), divergence], -1)
        sums = nats.masked_fill(~self.counted[..., None], 0.0).cpu().double().sum(0).numpy()  # (n, 2)
        counts = self.counted.sum(0).cpu().numpy()[:, None].repeat(2, 1)
        return by_span(sums, self.places), by_span(counts, self.places)

    def cpu(self) -> NextTokens:
        """Return these predictions on the CPU."""
        return replace(
            self, logits=self.logits.cpu(), following=self.following.cpu(), counted=self.counted.cpu()
        )


def by_span(values: NDArray[Any], places: range) -> NDArray[Any]:
    """Return values (n, ...) at n ``places`` of a window, summed over each span, (spans, ...)."""
    spans = [range(low, places.stop if high is None else high) for low, high in SPANS.values()]
    return np.stack([values[[place in span for place in places]].sum(0) for span in spans])


def logits_of(model: PreTrainedModel, inputs: Mapping[str, Tensor], places: range | None = None) -> Tensor:
    """Return the logits of a network, on its device, at some ``places``, (b, n, v), or at all, (b, t, v)."""
    some = {} if places is None else {"logits_to_keep": torch.tensor(places, device=model.device)}
    with torch.no_grad(), as_noted(model):
        logits: Tensor = model.train(False)(**_moved(inputs, model), **some, use_cache=False).logits
    return logits


def embeddings(model: PreTrainedModel, inputs: Mapping[str, Tensor], pooling: TokenPooling = MEAN) -> Tensor:
    """Return sentence embeddings (b, d) of a batch, on the CPU."""
    with torch.no_grad(), as_noted(model):
        hidden: Tensor = body_of(model.train(False))(**_moved(inputs, model)).last_hidden_state  # (b, t, d)
    return pooling(hidden.float().cpu(), token_mask(inputs))


def token_mask(inputs: Mapping[str, Tensor]) -> Tensor:
    """Return the mask of a batch, (b, t) bool: True for tokens, False for padding."""
    return inputs.get("attention_mask", torch.ones_like(inputs["input_ids"])).bool()


def _moved(inputs: Mapping[str, Tensor], model: PreTrainedModel) -> dict[str, Tensor]:
    return {name: tensor.to(model.device) for name, tensor in inputs.items()}
