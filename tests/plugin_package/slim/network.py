"""The network of a ring."""

from __future__ import annotations

from torch import Tensor, nn

from zerolm.architecture import Architecture
from zerolm.networks.modules.attention import Probabilities, dot, merge, split
from zerolm.networks.modules.embeddings import TiedHead
from zerolm.networks.modules.layer import PreNorm, ResidualLayer, Stack


def rings(architecture: Architecture) -> Stack:
    """Return causal attention and an FFN in each layer."""
    d = architecture.layers[0].width
    tokens = nn.Embedding(architecture.ends.embedding // d, d)
    layers = []
    for shapes in architecture.layers:
        (width,) = (matrix.rows for matrix in shapes.matrices if matrix.name == "up")
        layers.append(
            ResidualLayer(*(PreNorm(inner, nn.LayerNorm(d), 0.0) for inner in (Attention(d), Ffn(d, width))))
        )
    return Stack(tokens, layers, nn.LayerNorm(d), TiedHead(tokens))


class Attention(nn.Module):
    """Two causal heads."""

    def __init__(self, d: int) -> None:
        super().__init__()
        self.q, self.k, self.v, self.o = (nn.Linear(d, d, bias=False) for _ in range(4))
        self.probabilities = Probabilities(causal=True, dropout=0.0)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (split(part(x), 2) for part in (self.q, self.k, self.v))
        out: Tensor = self.o(merge(self.probabilities(dot(q, k)) @ v))
        return out


class Ffn(nn.Module):
    """Up, GELU, down."""

    def __init__(self, d: int, width: int) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(d, width, bias=False), nn.Linear(width, d, bias=False)
        self.gelu = nn.GELU()

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.down(self.gelu(self.up(x)))
        return out
