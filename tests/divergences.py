"""Perplexity, divergence and fidelity of networks, for tests."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from transformers import PreTrainedModel

from zerolm.evaluation.readers import InMemory
from zerolm.evaluation.text_judge import JudgedPassages, JudgedSentences, Sentences
from zerolm.networks.pooling import MEAN, TokenPooling
from zerolm.text.tokens import Tokens


@dataclass(frozen=True)
class Divergence:
    perplexity: float
    kl: float


def perplexities_and_kls(
    models: Sequence[Callable[[], PreTrainedModel]],
    parent: PreTrainedModel,
    tokens: Tokens,
    *,
    batch: int = 8,
) -> list[Divergence]:
    """Of the parent, then of each model."""
    readers = [InMemory(lambda: parent), *map(InMemory, models)]
    rows = JudgedPassages({"": tokens.batches(batch)}).measures(readers)
    return [Divergence(**row.values) for row in rows]


def perplexity_and_kl(
    model: PreTrainedModel, parent: PreTrainedModel, tokens: Tokens, *, batch: int = 8
) -> Divergence:
    return perplexities_and_kls([lambda: model], parent, tokens, batch=batch)[1]


def fidelity(
    model: PreTrainedModel, parent: PreTrainedModel, tokens: Tokens, *, pooling: TokenPooling = MEAN
) -> float:
    readers = [InMemory(lambda: parent, pooling), InMemory(lambda: model, pooling)]
    return JudgedSentences(Sentences.of_tokens(tokens)).measures(readers)[1].values["cosine"]
