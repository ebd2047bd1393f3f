"""How far a carved network is from its parent: perplexity and divergence, or fidelity of embeddings."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor
from torch.nn import functional
from transformers import PreTrainedModel

from zerolm.carving.tokens import Tokens


@dataclass(frozen=True)
class Judged:
    """``perplexity`` a token, and ``kl``: the mean of KL(parent || child) over positions, in nats a token."""

    perplexity: float
    kl: float


def perplexity_and_kl(
    model: PreTrainedModel, parent: PreTrainedModel, tokens: Tokens, *, batch: int = 8
) -> Judged:
    """Judge a language model on sequences; the first token of each is given, not predicted."""
    surprise, divergence, count = 0.0, 0.0, 0
    for inputs in tokens.batches(batch):
        following = inputs["input_ids"][:, 1:]  # (b, t - 1)
        wanted = inputs.get("attention_mask", torch.ones_like(inputs["input_ids"]))[:, 1:].bool()
        ours = log_probabilities(model, inputs)[:, :-1]  # (b, t - 1, v)
        theirs = log_probabilities(parent, inputs)[:, :-1]
        loss = -ours.gather(-1, following[..., None]).squeeze(-1)  # (b, t - 1)
        apart = (theirs.exp() * (theirs - ours)).sum(-1)  # (b, t - 1)
        surprise += float(loss[wanted].double().sum())
        divergence += float(apart[wanted].double().sum())
        count += int(wanted.sum())
    return Judged(math.exp(surprise / count), divergence / count)


def log_probabilities(model: PreTrainedModel, inputs: dict[str, Tensor]) -> Tensor:
    """log p of the next token, (b, t, v)."""
    with torch.no_grad():
        logits: Tensor = model.train(False)(**inputs, use_cache=False).logits
    return functional.log_softmax(logits.float(), dim=-1)


def fidelity(
    model: PreTrainedModel, parent: PreTrainedModel, tokens: Tokens, *, pooling: str = "mean", batch: int = 32
) -> float:
    """The mean cosine of an encoder's sentence embeddings to the parent's."""
    cosines = []
    for inputs in tokens.batches(batch):
        ours, theirs = embeddings(model, inputs, pooling), embeddings(parent, inputs, pooling)
        cosines.append(functional.cosine_similarity(ours, theirs, dim=-1))  # (b,)
    return float(torch.cat(cosines).double().mean())


def embeddings(model: PreTrainedModel, inputs: dict[str, Tensor], pooling: str = "mean") -> Tensor:
    """Sentence embeddings (b, d): the ``mean`` or ``max`` over unmasked tokens, or the first (``cls``)."""
    with torch.no_grad():
        hidden: Tensor = model.train(False).base_model(**inputs).last_hidden_state  # (b, t, d)
    mask = inputs.get("attention_mask", torch.ones_like(inputs["input_ids"]))[..., None].bool()  # (b, t, 1)
    if pooling == "cls":
        return hidden[:, 0]
    if pooling == "max":
        return hidden.masked_fill(~mask, -torch.inf).amax(1)
    return hidden.mul(mask).sum(1) / mask.sum(1)


def pooling_of(folder: Path) -> str:
    """How a folder pools tokens into an embedding, as ``1_Pooling`` says; ``mean`` where nothing does.

    ``ValueError`` where it says something else than ``mean``, ``max`` or ``cls``.
    """
    file = folder / "1_Pooling" / "config.json"
    if not file.is_file():
        return "mean"
    said = json.loads(file.read_text(encoding="utf-8"))
    modes = {name for name, on in said.items() if name.startswith("pooling_mode_") and on is True}
    known = {
        "pooling_mode_mean_tokens": "mean",
        "pooling_mode_max_tokens": "max",
        "pooling_mode_cls_token": "cls",
    }
    if len(modes) != 1 or not modes <= set(known):
        raise ValueError(f"{file}: pooling by {', '.join(sorted(modes)) or 'nothing'} is not known")
    return known[modes.pop()]
