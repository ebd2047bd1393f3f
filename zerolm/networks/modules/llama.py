"""Llama (arXiv 2302.13971): RMS norms, rotary positions, shared keys and values, a gated FFN."""

from __future__ import annotations

from typing import Final

import torch
from torch import Tensor, nn

from zerolm.architecture import Architecture, Layer
from zerolm.networks.modules.attention import Probabilities, dot, merge, split
from zerolm.networks.modules.embeddings import LinearHead, TiedHead
from zerolm.networks.modules.layer import PreNorm, ResidualLayer, Stack

EPS: Final = 1e-5


def llama(architecture: Architecture) -> Stack:
    """KV heads and an FFN width of its own in every layer; the head is tied unless it is listed.

    In addition to its matrices and two norms, a layer may have the biases of q, k and v (Qwen2), or the norms
    of queries and keys (Qwen3).
    """
    return gated(architecture, int(architecture.choices["head_size"]))


def gated(architecture: Architecture, size: int) -> Stack:
    """As llama, of heads of this size; queries and keys may be of other widths in every layer."""
    layers = []
    for layer in architecture.layers:
        d, more = layer.width, layer.vectors - 2 * layer.width
        bias, norms = more == layer.query_width + 2 * layer.kv_width, more == 2 * size
        attention = GroupedAttention(d, layer.query_width, layer.kv_width, size, bias, norms)
        (ffn,) = ffns(layer)
        layers.append(ResidualLayer(pre_norm(d, attention), ffn))
    return stack(architecture, layers)


def ffns(layer: Layer) -> list[PreNorm]:
    """Return the FFNs of a layer, each with its norm."""
    widths = [matrix.rows for matrix in layer.matrices if matrix.name == "gate"]
    return [pre_norm(layer.width, GatedFeedForward(layer.width, width)) for width in widths]


def pre_norm(d: int, inner: nn.Module) -> PreNorm:
    """Return a module of width ``d`` behind an RMS norm."""
    return PreNorm(inner, nn.RMSNorm(d, EPS), dropout=0.0)


def stack(architecture: Architecture, layers: list[ResidualLayer]) -> Stack:
    """Return layers with the embedding, the last norm and the head of an architecture."""
    d, ends = architecture.layers[0].width, architecture.ends
    tokens = nn.Embedding(ends.embedding // d, d)
    head = LinearHead(d, ends.head_matrices[0].rows, bias=False) if ends.head_matrices else TiedHead(tokens)
    return Stack(tokens, layers, nn.RMSNorm(d, EPS), head)


class GroupedAttention(nn.Module):
    """Causal attention whose queries share keys and values in groups, on rotated queries and keys.

    With ``norms`` each head of queries and keys is normed before it is rotated (Qwen3, arXiv 2505.09388).
    ``uses`` names the projections that give queries, keys and values; one that is named twice is shared.
    """

    def __init__(
        self,
        d: int,
        query_width: int,
        kv_width: int,
        head_size: int,
        bias: bool = False,
        norms: bool = False,
        uses: str = "qkv",
    ) -> None:
        super().__init__()
        self.heads, self.kv_heads, self.uses = query_width // head_size, kv_width // head_size, uses
        for name in dict.fromkeys(uses):
            self.add_module(name, nn.Linear(d, query_width if name == "q" else kv_width, bias=bias))
        self.q_norm, self.k_norm = (nn.RMSNorm(head_size, EPS) if norms else nn.Identity() for _ in range(2))
        self.o = nn.Linear(query_width, d, bias=False)
        self.probabilities = Probabilities(causal=True, dropout=0.0)

    def forward(self, x: Tensor) -> Tensor:
        projected = {name: self.get_submodule(name)(x) for name in dict.fromkeys(self.uses)}
        q, k, v = (projected[name] for name in self.uses)
        q, v = rotated(self.q_norm(split(q, self.heads))), split(v, self.kv_heads)  # (b, heads, t, s)
        k = rotated(self.k_norm(split(k, self.kv_heads)))
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
