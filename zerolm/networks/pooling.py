"""From the states of an encoder's tokens to one embedding, as sentence-transformers has it (torch)."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import torch
from torch import Tensor
from torch.nn import functional

from zerolm.checkpoints import Checkpoint
from zerolm.checkpoints.sentences import SentenceModule
from zerolm.networks.mapped import mapped_tensor

ACTIVATED: Final[dict[str, Callable[[Tensor], Tensor]]] = {
    "Tanh": torch.tanh,
    "Identity": lambda x: x,
    "ReLU": functional.relu,
    "GELU": functional.gelu,
    "Sigmoid": torch.sigmoid,
}
"""The activations of ``zerolm.checkpoints.sentences``."""


@dataclass(frozen=True, eq=False, repr=False)
class Projection:
    """A ``Dense``: a matrix (out, in), a bias (out,) or None, and the name of its activation."""

    weight: Tensor
    bias: Tensor | None
    activation: str

    def __call__(self, x: Tensor) -> Tensor:
        bias = None if self.bias is None else self.bias.to(x)
        return ACTIVATED[self.activation](functional.linear(x, self.weight.to(x), bias))

    def __repr__(self) -> str:
        parts = [self.weight] if self.bias is None else [self.weight, self.bias]
        content = b"".join(part.numpy().tobytes() for part in parts)
        return f"{self.activation} {tuple(self.weight.shape)} {hashlib.sha256(content).hexdigest()}"


@dataclass(frozen=True)
class TokenPooling:
    """From the states of tokens to an embedding: pooled in each of the ``modes``, joined, and then projected.

    A step of None makes the embedding one of length 1.
    """

    modes: tuple[str, ...] = ("mean",)
    steps: tuple[Projection | None, ...] = ()

    @classmethod
    def of(cls, checkpoint: Checkpoint) -> TokenPooling:
        """Return that of a checkpoint; the mean where no modules say otherwise."""
        if checkpoint.sentences is None:
            return MEAN
        pool, *others = checkpoint.sentences.behind
        return cls(pool.modes, tuple(_step(module) for module in others if module.kind != "Dropout"))

    def __call__(self, hidden: Tensor, mask: Tensor) -> Tensor:
        """Return embeddings (b, d) of states (b, t, d); ``mask`` (b, t) tells tokens from padding."""
        embedding = torch.cat([pooled(hidden, mask, mode) for mode in self.modes], dim=-1)
        for step in self.steps:
            embedding = functional.normalize(embedding, dim=-1) if step is None else step(embedding)
        return embedding

    def __repr__(self) -> str:
        """Return all that tells it from others, in the key of a cache too."""
        steps = ("Normalize" if step is None else repr(step) for step in self.steps)
        return ", ".join(["+".join(self.modes), *steps])


MEAN: Final = TokenPooling()
"""Of an encoder whose folder says nothing."""


def pooled(hidden: Tensor, mask: Tensor, mode: str) -> Tensor:
    """Return states (b, t, d) pooled into (b, d) in one way; ``mask`` (b, t) tells tokens from padding."""
    tokens = mask.bool()[..., None]  # (b, t, 1)
    if mode == "max":
        return hidden.masked_fill(~tokens, -torch.inf).amax(1)
    places = torch.arange(1, hidden.shape[1] + 1, device=hidden.device)[:, None] * tokens  # (b, t, 1), from 1
    if mode in ("cls", "lasttoken"):
        chosen = tokens.int().argmax(1) if mode == "cls" else places.argmax(1)  # (b, 1)
        return hidden.take_along_dim(chosen[..., None], 1).squeeze(1)
    if mode == "weightedmean":
        weights = (places - tokens.int().argmax(1)[..., None]) * tokens  # from 1 at the first token
        return hidden.mul(weights).sum(1) / weights.sum(1)
    count = tokens.sum(1)
    return hidden.mul(tokens).sum(1) / (count if mode == "mean" else count.sqrt())


def _step(module: SentenceModule) -> Projection | None:
    if module.kind == "Normalize":
        return None
    weights = {name: mapped_tensor(tensor).float().clone() for name, tensor in module.tensors.items()}
    return Projection(weights["linear.weight"], weights.get("linear.bias"), module.activation)
