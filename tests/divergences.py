"""Perplexity, divergence and fidelity of one model, for tests."""

from __future__ import annotations

from transformers import PreTrainedModel

from zerolm.carving.evaluation.divergence import Divergence, fidelities, perplexities_and_kls
from zerolm.networks.pooling import MEAN, TokenPooling
from zerolm.text.tokens import Tokens


def perplexity_and_kl(
    model: PreTrainedModel, parent: PreTrainedModel, tokens: Tokens, *, batch: int = 8
) -> Divergence:
    return perplexities_and_kls([lambda: model], parent, tokens, batch=batch)[1]


def fidelity(
    model: PreTrainedModel,
    parent: PreTrainedModel,
    tokens: Tokens,
    *,
    pooling: TokenPooling = MEAN,
    batch: int = 32,
) -> float:
    return fidelities([lambda: model], parent, tokens, pooling=pooling, batch=batch)[1]
