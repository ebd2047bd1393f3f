"""Uniform BERT encoders, as transformers builds them for masked-word pre-training."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from zerolm.architecture import Ends, Layer, Matrix
from zerolm.settings import with_defaults
from zerolm.spaces.base import space
from zerolm.spaces.uniform import UniformSpace


@space
class Bert(UniformSpace):
    """Parameters are those of ``BertForMaskedLM``: the tied head with its transform, no pooler."""

    name = "bert"
    summary = "uniform BERT encoders with a masked-word head"

    task = "masked"
    network = "zerolm.networks.modules.bert:bert"
    declared = with_defaults(
        UniformSpace.declared,
        depth=range(2, 33),
        hidden=range(128, 1537, 64),
        ffn=range(320, 6913, 64),
        vocab=30522,
        positions=512,
    )

    def layer(self, hidden: int, heads: int, kv_heads: int, head_size: int, ffn: int) -> Layer:
        return bert_layer(hidden, ffn)

    def ends(self, hidden: int) -> Ends:
        return bert_ends(hidden, self.vocab, self.positions)

    def stock_config(self, choices: Mapping[str, Any]) -> dict[str, Any]:
        return {
            "architectures": ["BertForMaskedLM"],
            "model_type": "bert",
            "vocab_size": self.vocab,
            "max_position_embeddings": self.positions,
            "type_vocab_size": 2,
            "hidden_size": choices["hidden"],
            "num_hidden_layers": choices["depth"],
            "num_attention_heads": choices["heads"],
            "intermediate_size": choices["ffn"],
            "hidden_act": "gelu",
            "initializer_range": 0.02,
            "layer_norm_eps": 1e-12,
            "tie_word_embeddings": True,
            "pad_token_id": 0,
        }


def bert_layer(d: int, f: int) -> Layer:
    """Return q, k, v, o and two FFN matrices; biases everywhere, two layer norms."""
    matrices = (
        *(Matrix("attention", d, d, name=name) for name in ("q", "k", "v", "o")),
        Matrix("ffn", f, d, name="up"),
        Matrix("ffn", d, f, name="down"),
    )
    vectors = 4 * d + f + d + 4 * d
    return Layer(matrices, d, d, d, vectors, vectors)


def bert_ends(d: int, vocab: int, positions: int, types: int = 2, tied: bool = True) -> Ends:
    """Return three embeddings with a norm; the head: a dense transform, its norm, the words, a bias."""
    words = () if tied else (Matrix("head", vocab, d, name="head"),)
    return Ends(
        embedding=(vocab + positions + types) * d,
        tied_head=vocab * d if tied else 0,
        head_matrices=(Matrix("head", d, d, name="head"), *words),
        vectors=2 * d
        + (d + 2 * d + vocab)
        + (0 if tied else vocab),  # untied, the words' bias is stored twice
    )
