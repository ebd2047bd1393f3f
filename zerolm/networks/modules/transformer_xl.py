"""Transformer-XL (arXiv 1901.02860) without its memory of earlier segments."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from zerolm.architecture import Architecture
from zerolm.networks.modules.attention import Probabilities, merge, split
from zerolm.networks.modules.embeddings import AdaptiveHead, AdaptiveTokens
from zerolm.networks.modules.layer import FeedForward, PostNorm, ResidualLayer, Stack, ffn_widths


def transformer_xl(architecture: Architecture) -> Stack:
    """Norms after the sums, relative positions, a width and heads of its own in every layer."""
    d = architecture.layers[0].width
    adaptive = AdaptiveTokens(architecture.ends.embedding_matrices, scale=d**0.5)
    layers = [
        ResidualLayer(
            PostNorm(RelativeAttention(d, heads), nn.LayerNorm(d)),
            PostNorm(FeedForward(ffn_widths(layer), nn.ReLU), nn.LayerNorm(d)),
        )
        for layer, heads in zip(architecture.layers, architecture.choices["n_head"], strict=True)
    ]
    embeddings = nn.Sequential(adaptive, nn.Dropout(0.1))
    return Stack(embeddings, layers, nn.Identity(), AdaptiveHead(adaptive))


class RelativeAttention(nn.Module):
    """Causal attention that sees how far back a token lies, with biases u and v a head (section 3.3)."""

    def __init__(self, d: int, heads: int) -> None:
        super().__init__()
        self.qkv, self.o, self.relative = (nn.Linear(d, outputs, bias=False) for outputs in (3 * d, d, d))
        self.u, self.v = (nn.Parameter(torch.empty(heads, 1, d // heads)) for _ in range(2))
        self.probabilities = Probabilities(causal=True)

    def forward(self, x: Tensor) -> Tensor:
        heads, (_, t, d) = len(self.u), x.shape
        q, k, v = (split(part, heads) for part in self.qkv(x).chunk(3, dim=-1))  # (b, heads, t, s)
        distances = sinusoids(t, d).to(x).expand(len(x), -1, -1)  # of every sample: hooks see (b, t, d)
        positions = split(self.relative(distances), heads)  # (b, heads, distances, s)
        by_distance = (q + self.v) @ positions.mT  # (b, heads, t, distances)
        now = torch.arange(t, device=x.device)
        distance = (now[:, None] - now).clamp(min=0)  # later tokens have none; they are hidden
        scores = (q + self.u) @ k.mT + by_distance.gather(-1, distance.expand_as(by_distance))
        out: Tensor = self.o(merge(self.probabilities(scores / q.shape[-1] ** 0.5) @ v))
        return out


def sinusoids(t: int, d: int) -> Tensor:
    """Sines, then cosines, of the numbers from 0 to t - 1 at geometric frequencies, (t, d)."""
    frequencies = 10000.0 ** (-torch.arange(0, d, 2) / d)
    angles = torch.outer(torch.arange(t), frequencies)
    return torch.cat([angles.sin(), angles.cos()], dim=1)[:, :d]
