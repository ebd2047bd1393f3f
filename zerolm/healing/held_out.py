"""How far a network is from its parent on text that is held out of training."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Final

import numpy as np
import torch
from transformers import PreTrainedModel

from zerolm.carving.evaluation.divergence import (
    Divergence,
    embeddings,
    fidelities,
    log_probabilities,
    perplexities_and_kls,
    surprise_and_divergence,
)
from zerolm.networks.pooling import TokenPooling
from zerolm.progress import Progress
from zerolm.text.tokens import Tokens
from zerolm.training.watch import Judge

JUDGE_ROOM: Final = 512 << 20
"""Bytes of the parent's predictions that are kept in memory to judge a run as it goes."""
JUDGE_SEQUENCES: Final = 32
JUDGE_BATCH: Final = 8


@dataclass(frozen=True, eq=False)
class HeldOut:
    """Sequences that are never trained on; ``pooling`` is None for a decoder, else that of an encoder."""

    tokens: Tokens
    pooling: TokenPooling | None

    def measured(
        self, model: PreTrainedModel, parent: PreTrainedModel, progress: Progress
    ) -> tuple[dict[str, float], dict[str, float]]:
        """Return ``perplexity`` and ``kl``, or the ``cosine``, of the parent and of a network."""
        if self.pooling is None:
            rows = perplexities_and_kls([lambda: model], parent, self.tokens, progress=progress)
            theirs, ours = (asdict(row) for row in rows)
            return theirs, ours
        same, near = fidelities([lambda: model], parent, self.tokens, pooling=self.pooling, progress=progress)
        return {"cosine": same}, {"cosine": near}

    def judge(self, model: PreTrainedModel, parent: PreTrainedModel) -> Judge:
        """Return the measure of a network on some of the sequences; the parent is not needed any more."""
        length, vocabulary = self.tokens.ids.shape[1], int(parent.config.vocab_size)
        some = self.tokens.spread(min(JUDGE_SEQUENCES, max(1, JUDGE_ROOM // (4 * length * vocabulary))))
        batches = some.batches(JUDGE_BATCH)
        pooling = self.pooling
        if pooling is None:
            references = [log_probabilities(parent, inputs)[:, :-1] for inputs in batches]
        else:
            references = [embeddings(parent, inputs, pooling) for inputs in batches]

        def measured() -> dict[str, float]:
            if pooling is not None:
                near = [
                    torch.cosine_similarity(embeddings(model, inputs, pooling), theirs, dim=-1)
                    for inputs, theirs in zip(batches, references, strict=True)
                ]
                return {"cosine": float(torch.cat(near).mean())}
            sums = [
                surprise_and_divergence(log_probabilities(model, inputs)[:, :-1], theirs, inputs)
                for inputs, theirs in zip(batches, references, strict=True)
            ]
            count = sum(inputs["input_ids"][:, 1:].numel() for inputs in batches)
            return asdict(Divergence.of(np.sum(sums, axis=(0, 1)), count))

        return measured
