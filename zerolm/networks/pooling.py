"""From the states of an encoder's tokens to one embedding, as sentence-transformers has it (torch)."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

import torch
from torch import Tensor
from torch.nn import functional

from zerolm.checkpoints import Checkpoint
from zerolm.checkpoints.sentence_settings import COSINE
from zerolm.checkpoints.sentences import SentenceModule
from zerolm.networks.mapped import mapped_tensor
from zerolm.networks.opener import is_decoder, stock_tokenizer

ACTIVATED: Final[dict[str, Callable[[Tensor], Tensor]]] = {
    "Tanh": torch.tanh,
    "Identity": lambda x: x,
    "ReLU": functional.relu,
    "GELU": functional.gelu,
    "Sigmoid": torch.sigmoid,
}
"""The activations of ``zerolm.checkpoints.sentences``."""
SHORTEST: Final = 1e-12
"""The length of an embedding that is divided by, at least."""


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

    A step of None makes the embedding one of length 1. At the end it is cut to its first ``dimensions``. The
    first ``prompt_tokens`` are not pooled. Embeddings are compared by their ``similarity``.
    """

    modes: tuple[str, ...] = ("mean",)
    steps: tuple[Projection | None, ...] = ()
    dimensions: int | None = None
    prompt_tokens: int = 0
    similarity: str = COSINE

    @classmethod
    def of(cls, checkpoint: Checkpoint) -> TokenPooling:
        """Return that of a checkpoint; the mean where no modules say otherwise."""
        if checkpoint.sentences is None:
            return MEAN
        pool, *others = checkpoint.sentences.behind
        settings = checkpoint.sentences.settings
        return cls(
            pool.modes,
            tuple(_step(module) for module in others if module.kind != "Dropout"),
            settings.dimensions,
            0 if pool.pools_prompt else prompt_tokens(checkpoint),
            settings.similarity,
        )

    def __call__(self, hidden: Tensor, mask: Tensor) -> Tensor:
        """Return embeddings (b, d) of states (b, t, d); ``mask`` (b, t) separates tokens from padding."""
        parts = [pooled(hidden, mask, mode, behind=self.prompt_tokens) for mode in self.modes]
        embedding = torch.cat(parts, dim=-1)
        for step in self.steps:
            embedding = functional.normalize(embedding, dim=-1) if step is None else step(embedding)
        return embedding[..., : self.dimensions]

    def direction(self, embedding: Tensor) -> Tensor:
        """Return embeddings (b, d) over their lengths, whose squared change is twice the ``distances``.

        Where lengths are compared, they are constants: a longer embedding is a changed one.
        """
        length = embedding.norm(dim=-1, keepdim=True).clamp_min(SHORTEST)
        return embedding.div(length if self.similarity == COSINE else length.detach())

    def distances(self, embeddings: Tensor, reference: Tensor) -> Tensor:
        """Return how far embeddings (b, d) are from the parent's, (b,).

        That is 1 - cosine where lengths are not compared. Else it is half the squared distance, in units of
        the parent's squared length, which is the same of embeddings of length 1.
        """
        if self.similarity == COSINE:
            return cosine_distances(embeddings, reference)
        lengths = reference.square().sum(-1).clamp_min(SHORTEST**2)
        return (embeddings - reference).square().sum(-1) / (2.0 * lengths)

    @property
    def uncut(self) -> TokenPooling:
        """The same without ``dimensions`` and ``prompt_tokens``, which are settings of one package alone."""
        return replace(self, dimensions=None, prompt_tokens=0)

    def __repr__(self) -> str:
        """Return all that distinguishes it from others, in the key of a cache too."""
        steps = ("Normalize" if step is None else repr(step) for step in self.steps)
        dimensions = [] if self.dimensions is None else [f"{self.dimensions} dimensions"]
        behind = [f"behind {self.prompt_tokens} tokens"] if self.prompt_tokens else []
        similarity = [] if self.similarity == COSINE else [self.similarity]
        return ", ".join(["+".join(self.modes), *steps, *dimensions, *behind, *similarity])


def cosine_distances(embeddings: Tensor, reference: Tensor) -> Tensor:
    """Return 1 - cosine of embeddings (n, d), (n,), as half the squared distance of their directions.

    It is exactly 0 of equal ones, and small ones keep their digits.
    """
    a, b = (x / x.norm(dim=-1, keepdim=True).clamp_min(SHORTEST) for x in (embeddings, reference))
    squared: Tensor = (a - b).square().sum(-1)
    return squared / 2.0


MEAN: Final = TokenPooling()
"""Of an encoder whose folder says nothing."""


def settings_notes(checkpoint: Checkpoint, *, in_file: bool = False) -> tuple[str, ...]:
    """Return the settings of a folder that are not the usual ones, where embeddings are compared by them.

    Of a GGUF child (``in_file``) users follow them on their own.
    """
    if checkpoint.sentences is None or is_decoder(checkpoint):
        return ()
    notes = checkpoint.sentences.settings.notes
    return (*notes, "llama.cpp does none of this: do it yourself") if notes and in_file else notes


def prompt_tokens(checkpoint: Checkpoint) -> int:
    """Return the number of tokens of a text that are its prompt, with those that the tokenizer adds
    before."""
    assert checkpoint.sentences is not None
    prompt = checkpoint.sentences.settings.prompt
    if not prompt:
        return 0
    tokenizer = stock_tokenizer(checkpoint.folder)
    ids = tokenizer(prompt, verbose=False)["input_ids"]
    return len(ids) - (ids[-1] in tokenizer.all_special_ids)


def pooled(hidden: Tensor, mask: Tensor, mode: str, *, behind: int = 0) -> Tensor:
    """Return states (b, t, d) pooled into (b, d) in one way; ``mask`` (b, t) separates tokens from padding.

    The first tokens of each sequence, ``behind`` which it is pooled, have no weight.
    """
    every = mask.bool()[..., None]  # (b, t, 1)
    tokens = every & (every.cumsum(1) > behind) if behind else every
    if mode == "max":
        return hidden.masked_fill(~tokens, -torch.inf).amax(1)
    places = torch.arange(1, hidden.shape[1] + 1, device=hidden.device)[:, None] * tokens  # (b, t, 1), from 1
    if mode in ("cls", "lasttoken"):
        chosen = tokens.int().argmax(1) if mode == "cls" else places.argmax(1)  # (b, 1)
        return hidden.take_along_dim(chosen[..., None], 1).squeeze(1)
    if mode == "weightedmean":
        weights = (places - every.int().argmax(1)[..., None]) * tokens  # from 1 at the first token
        return hidden.mul(weights).sum(1) / weights.sum(1).clamp_min(1)
    count = tokens.sum(1).clamp_min(1)
    return hidden.mul(tokens).sum(1) / (count if mode == "mean" else count.sqrt())


def _step(module: SentenceModule) -> Projection | None:
    if module.kind == "Normalize":
        return None
    weights = {name: mapped_tensor(tensor).float().clone() for name, tensor in module.tensors.items()}
    return Projection(weights["linear.weight"], weights.get("linear.bias"), module.activation)
