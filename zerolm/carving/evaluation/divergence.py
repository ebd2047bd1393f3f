"""How far a carved network is from its parent: perplexity and divergence, or fidelity of embeddings."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional
from transformers import PreTrainedModel

from zerolm.architecture import Floats, Ints
from zerolm.networks.compute import as_noted
from zerolm.networks.pooling import MEAN, TokenPooling
from zerolm.networks.roles import body_of
from zerolm.progress import Progress, silent
from zerolm.text.tokens import Tokens

RUNNING: Final = "running the text through all networks"
MOST_NATS: Final = 700.0
"""A network that broke is surprised by more than an exponential can hold."""
SPANS: Final = {"first": (0, 1), "1-15": (1, 16), "rest": (16, None)}
"""Positions of a window, counted from 0, whose predictions are summed apart: the first token is a sink
(arXiv 2309.17453), and the next ones have little text before them."""

Made = Callable[[], PreTrainedModel]
"""Makes a model when its turn comes, so that of several one is in memory at a time."""


@dataclass(frozen=True)
class Divergence:
    """``perplexity`` a token, and ``kl``: the mean of KL(parent || child) over positions, in nats a token."""

    perplexity: float
    kl: float

    @classmethod
    def of(cls, sums: Floats, count: int) -> Divergence:
        """Return the means of summed nats of surprise and of divergence, (2,), over so many positions."""
        surprise, divergence = (sums / count).tolist()
        return cls(math.exp(min(surprise, MOST_NATS)), divergence)


def perplexities_and_kls(
    models: Sequence[Made],
    parent: PreTrainedModel,
    tokens: Tokens,
    *,
    batch: int = 8,
    progress: Progress = silent,
) -> list[Divergence]:
    """Return the divergence of the parent (none), then of each model, on sequences.

    The first token of each is given, not predicted. The parent runs once, each model is made once a batch.
    """
    sums, counts = surprises_and_divergences(models, parent, tokens, batch=batch, progress=progress)
    return [Divergence.of(row.sum(0), int(counts.sum())) for row in sums]


def surprises_and_divergences(
    models: Sequence[Made],
    parent: PreTrainedModel,
    tokens: Tokens,
    *,
    batch: int = 8,
    progress: Progress = silent,
) -> tuple[Floats, Ints]:
    """Return nats of surprise and of divergence, (1 + models, spans, 2), and predicted tokens, (spans,).

    They are summed over the positions of each of ``SPANS``. The first row is the parent's.
    """
    sums, counts = np.zeros((1 + len(models), len(SPANS), 2)), np.zeros(len(SPANS), np.int64)
    batches = tokens.batches(batch)
    for number, inputs in enumerate(batches):
        progress(RUNNING, number, len(batches))
        theirs = _log_probabilities(parent, inputs)[:, :-1]  # (b, t - 1, v)
        sums[0] += surprise_and_divergence(theirs, theirs, inputs)
        for place, make in enumerate(models, 1):
            ours = _log_probabilities(make(), inputs)[:, :-1]
            sums[place] += surprise_and_divergence(ours, theirs, inputs)
        counts += predicted(inputs)
    return sums, counts


def surprise_and_divergence(
    ours: Tensor, theirs: Tensor, inputs: dict[str, Tensor], *, first: int = 0
) -> Floats:
    """Return surprise and divergence of a batch, each summed over the predictions of each span, (spans, 2).

    The batch begins at the position ``first`` of its windows.
    """
    following, wanted = (x[:, 1:].to(theirs.device) for x in (inputs["input_ids"], _mask(inputs)))
    loss = -ours.gather(-1, following[..., None]).squeeze(-1)  # (b, t - 1)
    apart = (theirs.exp() * (theirs - ours)).sum(-1)  # (b, t - 1)
    nats = torch.stack([loss, apart], -1).masked_fill(~wanted[..., None], 0.0)  # (b, t - 1, 2)
    return _by_span(nats.cpu().double().sum(0).numpy(), first)


def predicted(inputs: dict[str, Tensor], *, first: int = 0) -> Ints:
    """Return how many predictions a batch has in each span, (spans,)."""
    return _by_span(_mask(inputs)[:, 1:].sum(0).numpy(), first)


def _by_span(values: NDArray[Any], first: int) -> NDArray[Any]:
    """Return values (t, ...) at the positions from ``first`` on, summed over each span, (spans, ...)."""
    places = [slice(max(0, low - first), None if high is None else max(0, high - first))
              for low, high in SPANS.values()]  # fmt: skip
    return np.stack([values[place].sum(0) for place in places])


def log_probabilities(model: PreTrainedModel, inputs: dict[str, Tensor]) -> Tensor:
    """Return log p of the next token, (b, t, v), on the CPU."""
    return _log_probabilities(model, inputs).cpu()


def _log_probabilities(model: PreTrainedModel, inputs: dict[str, Tensor]) -> Tensor:
    """Return log p of the next token, (b, t, v), in float32 where the model is."""
    with torch.no_grad(), as_noted(model):
        logits: Tensor = model.train(False)(**_moved(inputs, model), use_cache=False).logits
    return functional.log_softmax(logits.float(), dim=-1)


def _moved(inputs: dict[str, Tensor], model: PreTrainedModel) -> dict[str, Tensor]:
    """Return a batch where the model is."""
    return {name: tensor.to(model.device) for name, tensor in inputs.items()}


def fidelities(
    models: Sequence[Made],
    parent: PreTrainedModel,
    tokens: Tokens,
    *,
    pooling: TokenPooling = MEAN,
    batch: int = 32,
    progress: Progress = silent,
) -> list[float]:
    """Return the mean cosine of embeddings to the parent's: of the parent (1), then of each model."""
    sums = np.zeros(1 + len(models))
    batches = tokens.rows(tokens.shortest_first()).batches(batch)
    for number, inputs in enumerate(batches):
        progress(RUNNING, number, len(batches))
        theirs = embeddings(parent, inputs, pooling)  # (b, d)
        sums[0] += _cosines(theirs, theirs)
        for place, make in enumerate(models, 1):
            sums[place] += _cosines(embeddings(make(), inputs, pooling), theirs)
    return [float(total / len(tokens)) for total in sums]


def _cosines(ours: Tensor, theirs: Tensor) -> float:
    """Return the sum of the cosines of embeddings (b, d)."""
    return float(functional.cosine_similarity(ours, theirs, dim=-1).double().sum())


def embeddings(model: PreTrainedModel, inputs: dict[str, Tensor], pooling: TokenPooling = MEAN) -> Tensor:
    """Return sentence embeddings (b, d) of a batch."""
    with torch.no_grad(), as_noted(model):
        hidden: Tensor = body_of(model.train(False))(**_moved(inputs, model)).last_hidden_state  # (b, t, d)
    return pooling(hidden.float().cpu(), _mask(inputs))


def _mask(inputs: dict[str, Tensor]) -> Tensor:
    """Where a batch has tokens and no padding, (b, t) bool."""
    return inputs.get("attention_mask", torch.ones_like(inputs["input_ids"])).bool()
