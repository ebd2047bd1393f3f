"""GPT-2: an FFN width and heads of its own in every layer and adaptive embeddings, or the uniform one."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from torch import nn

from zerolm.architecture import Architecture
from zerolm.networks.modules.attention import FusedAttention
from zerolm.networks.modules.embeddings import AdaptiveHead, AdaptiveTokens, PositionedTokens, TiedHead
from zerolm.networks.modules.layer import FeedForward, PreNorm, ResidualLayer, Stack, ffn_widths
from zerolm.networks.modules.transformer_xl import transformer_xl


def gpt2(architecture: Architecture) -> Stack:
    """As trained on WikiText-103; on LM1B it kept Transformer-XL's attention, and is that network."""
    *tokens, last = architecture.ends.embedding_matrices
    if last.name != "positions":
        return transformer_xl(architecture)
    d, adaptive = last.cols, AdaptiveTokens(tokens)
    layers = gpt2_layers(architecture, architecture.choices["n_head"])
    embeddings = PositionedTokens(adaptive, last.rows, d)
    return Stack(embeddings, layers, nn.LayerNorm(d), AdaptiveHead(adaptive))


def gpt2_layers(architecture: Architecture, heads: Sequence[int]) -> list[ResidualLayer]:
    """Norm first, causal attention, an FFN with the tanh form of GELU."""
    gelu, layers = partial(nn.GELU, approximate="tanh"), []
    for layer, count in zip(architecture.layers, heads, strict=True):
        d = layer.width
        attention = FusedAttention(d, layer.query_width, count, causal=True)
        ffn = FeedForward(ffn_widths(layer), gelu)
        layers.append(ResidualLayer(PreNorm(attention, nn.LayerNorm(d)), PreNorm(ffn, nn.LayerNorm(d))))
    return layers


def gpt2_uniform(architecture: Architecture) -> Stack:
    """The same layers, between one embedding and the head tied to it."""
    d, ends = architecture.layers[0].width, architecture.ends
    tokens = nn.Embedding(ends.tied_head // d, d)
    embeddings = PositionedTokens(tokens, ends.embedding // d - tokens.num_embeddings, d)
    layers = gpt2_layers(architecture, [int(architecture.choices["heads"])] * architecture.depth)
    return Stack(embeddings, layers, nn.LayerNorm(d), TiedHead(tokens))
