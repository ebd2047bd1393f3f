"""Attention written out, so that its probabilities can be looked at and differentiated twice."""

from __future__ import annotations

import torch
from torch import Tensor, nn


def split(x: Tensor, heads: int) -> Tensor:
    """(b, t, heads x s) to (b, heads, t, s)."""
    return x.reshape(*x.shape[:2], heads, -1).transpose(1, 2)


def merge(x: Tensor) -> Tensor:
    """(b, heads, t, s) to (b, t, heads x s)."""
    return x.transpose(1, 2).flatten(2)


def dot(queries: Tensor, keys: Tensor) -> Tensor:
    """Scaled scores (b, heads, t, t) of queries and keys (b, heads, t, s)."""
    scores: Tensor = queries @ keys.transpose(-1, -2) / queries.shape[-1] ** 0.5
    return scores


class Probabilities(nn.Module):
    """Scores to probabilities over the last axis, (b, heads, t, t); ``causal`` hides later tokens."""

    def __init__(self, causal: bool = False, dropout: float = 0.1) -> None:
        super().__init__()
        self.causal, self.softmax, self.dropout = causal, nn.Softmax(dim=-1), nn.Dropout(dropout)

    def forward(self, scores: Tensor) -> Tensor:
        if self.causal:
            later = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).triu(1)
            scores = scores.masked_fill(later, -torch.inf)
        weights: Tensor = self.dropout(self.softmax(scores))
        return weights


class SelfAttention(nn.Module):
    """q, k, v and o with biases, d to d; ``weighted`` multiplies the queries by one more matrix.

    ``width`` is that of all heads together, d unless it is named.
    """

    def __init__(self, d: int, heads: int, weighted: bool = False, width: int | None = None) -> None:
        super().__init__()
        self.heads = heads
        self.q, self.k, self.v = (nn.Linear(d, width or d) for _ in range(3))
        self.o = nn.Linear(width or d, d)
        self.weight = nn.Linear(d, d) if weighted else None
        self.probabilities = Probabilities()

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.q(x), self.k(x), self.v(x)  # (b, t, d)
        q = q if self.weight is None else self.weight(q)
        scores = dot(split(q, self.heads), split(k, self.heads))
        out: Tensor = self.o(merge(self.probabilities(scores) @ split(v, self.heads)))
        return out


class FusedAttention(nn.Module):
    """One matrix for q, k and v, ``width`` each, and o back to d; biases on both."""

    def __init__(self, d: int, width: int, heads: int, causal: bool = False, dropout: float = 0.1) -> None:
        super().__init__()
        self.heads = heads
        self.qkv, self.o = nn.Linear(d, 3 * width), nn.Linear(width, d)
        self.probabilities = Probabilities(causal, dropout)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (split(part, self.heads) for part in self.qkv(x).chunk(3, dim=-1))
        out: Tensor = self.o(merge(self.probabilities(dot(q, k)) @ v))
        return out
