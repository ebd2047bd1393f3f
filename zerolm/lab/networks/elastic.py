"""The candidate blocks of ELM (arXiv 2510.27037): BERT's, MobileBERT's, llama's, with shared projections."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import torch
from torch import Tensor, nn
from torch.nn.functional import pad

from zerolm import architecture as shapes
from zerolm.lab.spaces.elastic import SHARED
from zerolm.networks.modules.attention import Probabilities, dot, merge, split
from zerolm.networks.modules.bert import EPS, MaskedWordHead
from zerolm.networks.modules.embeddings import places
from zerolm.networks.modules.layer import FeedForward, Head, PostNorm, PreNorm, ResidualLayer, Stack
from zerolm.networks.modules.llama import EPS as RMS_EPS
from zerolm.networks.modules.llama import GatedFeedForward, rotated

DROPOUT: Final = 0.1


def elastic(architecture: shapes.Architecture) -> Stack:
    """Return an encoder, which predicts masked words."""
    tokens = TrigramTokens(architecture.ends, causal=False)
    d = architecture.layers[0].width
    return Stack(tokens, _layers(architecture, False), nn.Identity(), MaskedWordHead(tokens.tokens, d))


def elastic_causal(architecture: shapes.Architecture) -> Stack:
    """Return a decoder: no token sees a later one."""
    tokens = TrigramTokens(architecture.ends, causal=True)
    d = architecture.layers[0].width
    return Stack(
        tokens, _layers(architecture, True), nn.RMSNorm(d, RMS_EPS), NarrowTiedHead(tokens.tokens, d)
    )


def _layers(architecture: shapes.Architecture, causal: bool) -> list[ResidualLayer]:
    choices = architecture.choices["layers"]
    return [elastic_layer(*pair, causal) for pair in zip(architecture.layers, choices, strict=True)]


def elastic_layer(layer: shapes.Layer, choice: Mapping[str, Any], causal: bool) -> ElasticLayer:
    """Return the block of a choice, as wide as the layer is."""
    d, attending, f = layer.width, layer.query_width, int(choice["ffn"])
    heads, share = int(choice["heads"]), str(choice["share"])
    block = choice["block"]
    if block == "mobile":
        (narrow,) = (matrix.rows for matrix in layer.matrices if matrix.name == "bottleneck")
        attention = BottleneckAttention(d, attending, narrow, heads, share, causal)
        return ElasticLayer(attention, BottleneckFeedForward(d, narrow, f))
    if block == "llama":
        inner = SharedAttention((d, attending, d), heads, share, causal, rotary=True)
        ffn = GatedFeedForward(d, f)
        return ElasticLayer(PreNorm(inner, nn.RMSNorm(d, RMS_EPS)), PreNorm(ffn, nn.RMSNorm(d, RMS_EPS)))
    inner = SharedAttention((d, attending, d), heads, share, causal)
    return ElasticLayer(
        PostNorm(inner, nn.LayerNorm(d, EPS)), PostNorm(FeedForward([d, f, d]), nn.LayerNorm(d, EPS))
    )


class ElasticLayer(ResidualLayer):
    """A block that may leave out padding: ``padding`` (b, t) is 0 there, None without."""

    def forward(self, hidden: Tensor, padding: Tensor | None = None) -> Tensor:
        after: Tensor = self.ffn(self.attention(hidden, padding))
        return after


class SharedAttention(nn.Module):
    """Attention of (inputs, width, outputs), of whose projections two may be one and the same.

    A ``rotary`` one has rotated queries and keys, and no biases, as a llama's.
    """

    def __init__(
        self, sizes: tuple[int, int, int], heads: int, share: str, causal: bool, *, rotary: bool = False
    ) -> None:
        super().__init__()
        (inputs, width, outputs), self.heads = sizes, heads
        self.uses, self.rotary = SHARED[share], rotary
        for name in dict.fromkeys(self.uses):
            self.add_module(name, nn.Linear(inputs, width, bias=not rotary))
        self.o = nn.Linear(width, outputs, bias=not rotary)
        self.probabilities = Probabilities(causal)
        self.context = nn.Identity()

    def forward(self, x: Tensor, padding: Tensor | None = None) -> Tensor:
        states = {name: split(self.get_submodule(name)(x), self.heads) for name in dict.fromkeys(self.uses)}
        q, k, v = (states[name] for name in self.uses)  # (b, heads, t, s)
        q, k = (rotated(q), rotated(k)) if self.rotary else (q, k)
        scores = dot(q, k)
        if padding is not None:
            scores = scores.masked_fill(padding[:, None, None] == 0, torch.finfo(scores.dtype).min)
        out: Tensor = self.o(merge(self.context(self.probabilities(scores) @ v)))
        return out


class NoNorm(nn.Module):
    """A gain and an offset of each channel, in the place of a norm: MobileBERT, arXiv 2004.02984."""

    def __init__(self, d: int) -> None:
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.ones(d)), nn.Parameter(torch.zeros(d))

    def forward(self, x: Tensor) -> Tensor:
        return x * self.weight + self.bias


class BottleneckAttention(SharedAttention):
    """The residual stream and, behind it, what goes on in the bottleneck: (b, t, d) to (b, t, d + narrow).

    Queries, keys and values read the whole stream; what they attend to is added to the narrow one.
    """

    def __init__(self, d: int, width: int, narrow: int, heads: int, share: str, causal: bool) -> None:
        super().__init__((d, width, narrow), heads, share, causal)
        self.bottleneck, self.norm = nn.Linear(d, narrow), NoNorm(narrow)
        self.dropout = nn.Dropout(DROPOUT)

    def forward(self, x: Tensor, padding: Tensor | None = None) -> Tensor:
        attended = self.dropout(super().forward(x, padding))
        return torch.cat([x, self.norm(self.bottleneck(x) + attended)], dim=-1)


class BottleneckFeedForward(FeedForward):
    """One FFN within the bottleneck, then back to the residual stream: (b, t, d + narrow) to (b, t, d)."""

    def __init__(self, d: int, narrow: int, f: int) -> None:
        super().__init__([narrow, f, narrow], nn.ReLU)
        self.output, self.narrow_norm, self.norm = nn.Linear(narrow, d), NoNorm(narrow), NoNorm(d)
        self.narrow_dropout, self.dropout = nn.Dropout(DROPOUT), nn.Dropout(DROPOUT)

    def forward(self, both: Tensor) -> Tensor:
        d = self.output.out_features
        x, narrow = both[..., :d], both[..., d:]
        narrow = self.narrow_norm(narrow + self.narrow_dropout(super().forward(narrow)))
        after: Tensor = self.norm(x + self.dropout(self.output(narrow)))
        return after


class TrigramTokens(nn.Module):
    """Tokens concatenated with their neighbours, projected to d, with positions and segments, normalised.

    The neighbours are the next and the previous one; ``causal`` takes the two before instead, and has no
    segments.
    """

    def __init__(self, ends: shapes.Ends, causal: bool) -> None:
        super().__init__()
        (words, e), (d, _), (positions, _), *segments = (
            (matrix.rows, matrix.cols) for matrix in ends.embedding_matrices
        )
        self.causal = causal
        self.tokens, self.project = nn.Embedding(words, e), nn.Linear(3 * e, d)
        self.positions = nn.Embedding(positions, d)
        self.segments = nn.Embedding(*segments[0]) if segments else None
        self.norm, self.dropout = nn.LayerNorm(d, EPS), nn.Dropout(DROPOUT)

    def forward(self, ids: Tensor, padding: Tensor | None = None, segments: Tensor | None = None) -> Tensor:
        """Return (b, t, d) of token ids (b, t); ``padding`` is 0 where there is no token."""
        tokens = self.tokens(ids)  # (b, t, e)
        if padding is not None:
            tokens = tokens * padding[..., None].to(tokens)
        trigram = [later(tokens, by) for by in ((0, 1, 2) if self.causal else (-1, 0, 1))]
        vectors = self.project(torch.cat(trigram, dim=-1)) + places(ids, self.positions)
        if self.segments is not None:
            vectors = vectors + self.segments(torch.zeros_like(ids) if segments is None else segments)
        out: Tensor = self.dropout(self.norm(vectors))
        return out


def later(tokens: Tensor, by: int) -> Tensor:
    """Return vectors (b, t, e) moved ``by`` places on, with zeros in the places that this empties."""
    before, behind = max(by, 0), max(-by, 0)
    t = tokens.shape[1]
    return pad(tokens[:, min(behind, t) : t - min(before, t)], (0, 0, min(before, t), min(behind, t)))


class NarrowTiedHead(Head):
    """A matrix to the width of the embedding, then the tied words."""

    def __init__(self, tokens: nn.Embedding, d: int) -> None:
        super().__init__()
        self.classes, e = tokens.weight.shape
        self.dense, self.tokens = nn.Linear(d, e, bias=False), tokens

    def forward(self, hidden: Tensor, classes: int | None = None) -> Tensor:
        logits: Tensor = self.dense(hidden) @ self.tokens.weight[:classes].T
        return logits
