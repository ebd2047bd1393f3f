"""How far a child is from its parent on text that neither was made with."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch.nn import functional
from transformers import PreTrainedModel

from zerolm.networks.pooling import TokenPooling
from zerolm.passes.divergence import kl, surprises
from zerolm.passes.outputs import embeddings, logits_of
from zerolm.text.tokens import Tokens


@dataclass(frozen=True)
class Quality:
    """``loss``: KL to the parent in nats a token, or 1 - mean cosine of embeddings; less is better.

    ``perplexity`` is None of encoders.
    """

    loss: float
    perplexity: float | None = None


def mean(found: Sequence[Quality]) -> Quality:
    """The means of several."""
    perplexities = [each.perplexity for each in found if each.perplexity is not None]
    perplexity = float(np.mean(perplexities)) if perplexities else None
    return Quality(float(np.mean([each.loss for each in found])), perplexity)


class Judge:
    """What the parent says of a text, kept, so that it runs once for all children.

    Of a decoder these are logits: 1 GB for 256 sequences of 256 tokens and 4,096 words.
    """

    def __init__(self, parent: PreTrainedModel, tokens: Tokens, pooling: TokenPooling | None) -> None:
        self.batches, self.pooling = tokens.batches(8 if pooling is None else 32), pooling
        self.wanted = [self._answer(parent, inputs) for inputs in self.batches]

    def of(self, child: PreTrainedModel) -> Quality:
        """How far the child is from its parent."""
        return self._predictions(child) if self.pooling is None else self._embeddings(child)

    def _answer(self, model: PreTrainedModel, inputs: dict[str, torch.Tensor]) -> torch.Tensor:
        """Logits of what follows (b, t - 1, v), or embeddings (b, d)."""
        if self.pooling is not None:
            return embeddings(model, inputs, self.pooling)
        return logits_of(model, inputs)[:, :-1].clone()

    def _predictions(self, child: PreTrainedModel) -> Quality:
        """Of sequences without padding; the first token of each is given."""
        surprise, apart, count = 0.0, 0.0, 0
        for inputs, theirs in zip(self.batches, self.wanted, strict=True):
            ours, following = self._answer(child, inputs), inputs["input_ids"][:, 1:]
            surprise += float(surprises(ours, following).double().sum())
            apart += float(kl(theirs, ours).double().sum())
            count += following.numel()
        return Quality(apart / count, math.exp(surprise / count))

    def _embeddings(self, child: PreTrainedModel) -> Quality:
        cosines = [
            functional.cosine_similarity(self._answer(child, inputs), theirs, dim=-1)  # (b,)
            for inputs, theirs in zip(self.batches, self.wanted, strict=True)
        ]
        return Quality(1.0 - float(torch.cat(cosines).double().mean()))
