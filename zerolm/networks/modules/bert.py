"""BERT (arXiv 1810.04805) with its head for masked words."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import torch
from torch import Tensor, nn

from zerolm.architecture import Architecture
from zerolm.networks.modules.attention import SelfAttention
from zerolm.networks.modules.embeddings import NormedTokens
from zerolm.networks.modules.layer import FeedForward, Head, PostNorm, ResidualLayer, Stack, ffn_widths
from zerolm.spaces.bert import SEGMENTS

EPS: Final = 1e-12


def bert(architecture: Architecture) -> Stack:
    """The same sizes as ``BertForMaskedLM``; the FFN width may differ from layer to layer."""
    return encoder(architecture, [int(architecture.choices["heads"])] * architecture.depth)


def encoder(architecture: Architecture, heads: Sequence[int]) -> Stack:
    """As bert, with these numbers of ``heads`` by layer, whose total width is that of the queries."""
    d, ends = architecture.layers[0].width, architecture.ends
    words = ends.tied_head // d
    embeddings = NormedTokens(words, ends.embedding // d - words - SEGMENTS, SEGMENTS, d)
    layers = [
        ResidualLayer(
            PostNorm(SelfAttention(d, count, width=layer.query_width), nn.LayerNorm(d, EPS)),
            PostNorm(FeedForward(ffn_widths(layer)), nn.LayerNorm(d, EPS)),
        )
        for layer, count in zip(architecture.layers, heads, strict=True)
    ]
    return Stack(embeddings, layers, nn.Identity(), MaskedWordHead(embeddings.tokens, d))


class MaskedWordHead(Head):
    """A dense layer to the words' width, GELU and a norm, then the tied words and a bias for each."""

    def __init__(self, tokens: nn.Embedding, d: int) -> None:
        super().__init__()
        self.classes, e = tokens.weight.shape
        self.dense, self.activation, self.norm = nn.Linear(d, e), nn.GELU(), nn.LayerNorm(e, EPS)
        self.tokens, self.bias = tokens, nn.Parameter(torch.empty(self.classes))

    def forward(self, hidden: Tensor, classes: int | None = None) -> Tensor:
        hidden = self.norm(self.activation(self.dense(hidden)))
        return hidden @ self.tokens.weight[:classes].T + self.bias[:classes]
