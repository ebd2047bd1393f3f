"""FlexiBERT (arXiv 2205.11656): encoders of attention, linear transforms and dynamic convolution."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import conv1d, pad

from zerolm import architecture as shapes
from zerolm.networks.modules.attention import Probabilities, SelfAttention, dot, merge, split
from zerolm.networks.modules.embeddings import NormedTokens, TiedHead
from zerolm.networks.modules.layer import FeedForward, PostNorm, ResidualLayer, Stack, ffn_widths


def flexibert(architecture: shapes.Architecture) -> Stack:
    """The encoder with the layers of any view; heads, and DFT or DCT, are as chosen."""
    (words, width), (positions, _), (segments, _), *projected = (
        (matrix.rows, matrix.cols) for matrix in architecture.ends.embedding_matrices
    )
    tokens = NormedTokens(words, positions, segments, width)
    project = nn.Linear(width, projected[0][0]) if projected else None
    layers = [
        flexibert_layer(layer, choice)
        for layer, choice in zip(architecture.layers, architecture.choices["encoder_layers"], strict=True)
    ]
    embeddings = tokens if project is None else nn.Sequential(tokens, project)
    return Stack(embeddings, layers, nn.Identity(), TiedHead(tokens.tokens, project))


def flexibert_layer(layer: shapes.Layer, choice: Mapping[str, Any]) -> ResidualLayer:
    h, heads = layer.width, int(choice["num_operation_heads"])
    cols = {matrix.name: matrix.cols for matrix in layer.matrices}
    attention: nn.Module
    if "mix" in cols:
        attention = LinearTransform(h, str(choice["operation_parameter"]))
    elif "depthwise" in cols:
        attention = PostNorm(DynamicConvolution(h, heads, cols["depthwise"]), nn.LayerNorm(h, eps=1e-12))
    else:
        attention = PostNorm(SelfAttention(h, heads, "weight" in cols), nn.LayerNorm(h, eps=1e-12))
    return ResidualLayer(attention, PostNorm(FeedForward(ffn_widths(layer)), nn.LayerNorm(h, eps=1e-12)))


class LinearTransform(nn.Module):
    """One matrix, then the real part of a Fourier transform or a cosine transform over tokens and hidden.

    Neither a residual nor a norm: the FFN reads the transform itself. FNet, arXiv 2105.03824, equation 3.
    """

    def __init__(self, h: int, kind: str) -> None:
        super().__init__()
        self.mix, self.transform = nn.Linear(h, h), {"DFT": fourier, "DCT": cosine}[kind]

    def forward(self, hidden: Tensor) -> Tensor:
        return self.transform(self.mix(hidden))


def fourier(x: Tensor) -> Tensor:
    """The real part of the two-dimensional DFT of x (b, t, h), not normalised."""
    real: Tensor = torch.fft.fft2(x).real
    return real


def cosine(x: Tensor) -> Tensor:
    """The two-dimensional DCT-II of x (b, t, h), not normalised."""
    tokens, hidden = (cosines(n).to(x) for n in x.shape[-2:])
    return tokens @ x @ hidden.T


def cosines(n: int) -> Tensor:
    """The matrix of the DCT-II, (n, n) float64: 2 cos(pi k (2 j + 1) / (2 n))."""
    index = torch.arange(n, dtype=torch.float64)
    return 2 * torch.cos(torch.outer(index, 2 * index + 1) * (math.pi / (2 * n)))


class Depthwise(nn.Module):
    """Every channel convolved over the tokens with a kernel of its own, (b, t, h) to (b, t, h)."""

    def __init__(self, h: int, kernel: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(h, kernel))

    def forward(self, x: Tensor) -> Tensor:
        h, kernel = self.weight.shape
        return conv1d(padded(x, kernel).mT, self.weight[:, None], groups=h).mT


def padded(x: Tensor, kernel: int) -> Tensor:
    """(b, t, h) with zeros around the tokens, so that there are t windows of ``kernel`` tokens."""
    return pad(x, (0, 0, (kernel - 1) // 2, kernel // 2))


class DynamicConvolution(nn.Module):
    """Half of the heads attend; the others convolve with kernels that the tokens around make.

    Span-based dynamic convolution: ConvBERT, arXiv 2008.02496, section 3.
    """

    def __init__(self, h: int, heads: int, kernel: int) -> None:
        super().__init__()
        if heads % 2:
            raise ValueError(
                f"dynamic convolution needs an even number of heads, not {heads}; say {heads + 1}"
            )
        self.heads, a = heads // 2, h // 2
        self.q, self.k, self.v = (nn.Linear(h, a) for _ in range(3))
        self.depthwise, self.pointwise = Depthwise(h, kernel), nn.Linear(h, a)
        self.kernel, self.kernel_softmax = nn.Linear(a, self.heads * kernel), nn.Softmax(dim=-1)
        self.conv, self.o = nn.Linear(h, a), nn.Linear(h, h)
        self.probabilities = Probabilities()

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.q(x), self.k(x), self.v(x)  # (b, t, a)
        scores = dot(split(q, self.heads), split(k, self.heads))
        attended = merge(self.probabilities(scores) @ split(v, self.heads))  # (b, t, a)
        span = self.pointwise(self.depthwise(x)) * q
        kernels = self.kernel_softmax(split(self.kernel(span), self.heads))  # (b, heads, t, kernel)
        size = kernels.shape[-1]
        windows = split(padded(self.conv(x), size), self.heads).unfold(2, size, 1)  # (b, heads, t, s, kernel)
        convolved = merge((windows @ kernels[..., None])[..., 0])  # (b, t, a)
        out: Tensor = self.o(torch.cat([attended, convolved], dim=-1))
        return out
