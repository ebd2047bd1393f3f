"""Llama (arXiv 2302.13971): RMS norms, rotary positions, shared keys and values, a gated FFN."""

from __future__ import annotations

from typing import Final

import torch
from torch import Tensor, nn

from zerolm.architecture import Architecture
from zerolm.networks.modules.attention import Probabilities, dot, merge, split
from zerolm.networks.modules.embeddings import LinearHead, TiedHead
from zerolm.networks.modules.layer import PreNorm, ResidualLayer, Stack

EPS: Final = 1e-5


def llama(architecture: Architecture) -> Stack:
    """KV heads and an FFN width of its own in every layer; the head is tied unless it is listed.

    What a layer has beside its matrices and two norms are the biases of q, k and v (Qwen2), or the norms of
    queries and keys (Qwen3).
    """
    d, ends, size = architecture.layers[0].width, architecture.ends, int(architecture.choices["head_size"])
    tokens = nn.Embedding(ends.embedding // d, d)
    layers = []
    for layer in architecture.layers:
        more = layer.vectors - 2 * d
        bias, norms = more == layer.query_width + 2 * layer.kv_width, more == 2 * size
        attention = GroupedAttention(d, layer.query_width, layer.kv_width, size, bias, norms)
        (width,) = (matrix.rows for matrix in layer.matrices if matrix.name == "gate")
        ffn = GatedFeedForward(d, width)
        layers.append(
            ResidualLayer(*(PreNorm(inner, nn.RMSNorm(d, EPS), dropout=0.0) for inner in (attention, ffn)))
        )
    head = LinearHead(d, ends.head_matrices[0].rows, bias=False) if ends.head_matrices else TiedHead(tokens)
    return Stack(tokens, layers, nn.RMSNorm(d, EPS), head)


class GroupedAttention(nn.Module):
    """Causal attention whose queries share keys and values in groups, on rotated queries and keys.

    With ``norms`` each head of queries and keys is normed before it is rotated (Qwen3, arXiv 2505.09388).
    """

    def __init__(
        self, d: int, query_width: int, kv_width: int, head_size: int, bias: bool = False, norms: bool = False
    ) -> None:
        super().__init__()
        self.heads, self.kv_heads = query_width // head_size, kv_width // head_size
        self.q = nn.Linear(d, query_width, bias=bias)
        self.k, self.v = (nn.Linear(d, kv_width, bias=bias) for _ in range(2))
        self.q_norm, self.k_norm = (nn.RMSNorm(head_size, EPS) if norms else nn.Identity() for _ in range(2))
        self.o = nn.Linear(query_width, d, bias=False)
        self.probabilities = Probabilities(causal=True, dropout=0.0)

    def forward(self, x: Tensor) -> Tensor:
        q = rotated(self.q_norm(split(self.q(x), self.heads)))  # (b, heads, t, s)
        k, v = rotated(self.k_norm(split(self.k(x), self.kv_heads))), split(self.v(x), self.kv_heads)
        k, v = (part.repeat_interleave(self.heads // self.kv_heads, dim=1) for part in (k, v))
        out: Tensor = self.o(merge(self.probabilities(dot(q, k)) @ v))
        return out


def rotated(x: Tensor) -> Tensor:
    """x (b, heads, t, s), number i and number i + s / 2 turned by t 10000^(-2 i / s): arXiv 2104.09864."""
    t, s = x.shape[-2:]
    frequencies = 10000.0 ** (-torch.arange(0, s, 2, device=x.device) / s)
    angles = torch.outer(torch.arange(t, device=x.device), frequencies)  # (t, s / 2)
    cos, sin = angles.cos().to(x), angles.sin().to(x)
    a, b = x.chunk(2, dim=-1)
    return torch.cat([a * cos - b * sin, b * cos + a * sin], dim=-1)


class GatedFeedForward(nn.Module):
    """down(silu(gate(x)) up(x)): SwiGLU, arXiv 2002.05202."""

    def __init__(self, d: int, width: int) -> None:
        super().__init__()
        self.gate, self.up = (nn.Linear(d, width, bias=False) for _ in range(2))
        self.activation, self.down = nn.SiLU(), nn.Linear(width, d, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.down(self.activation(self.gate(x)) * self.up(x))
        return out
