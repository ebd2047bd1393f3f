"""Uniform BERT encoders, as transformers builds them for masked-word pre-training."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from zerolm.architecture import Ends, Layer, Matrix
from zerolm.settings import with_defaults
from zerolm.spaces.base import space
from zerolm.spaces.uniform import UniformSpace

SEGMENTS: Final = 2


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
        matrices = (
            *(Matrix("attention", hidden, hidden, name=name) for name in ("q", "k", "v", "o")),
            Matrix("ffn", ffn, hidden, name="up"),
            Matrix("ffn", hidden, ffn, name="down"),
        )
        biases, norms = 4 * hidden + ffn + hidden, 4 * hidden
        return Layer(matrices, hidden, hidden, hidden, biases + norms, biases + norms)

    def ends(self, hidden: int) -> Ends:
        """Return three embeddings with a norm; the head: a dense transform, its norm, a bias of the words."""
        return Ends(
            embedding=(self.vocab + self.positions + SEGMENTS) * hidden,
            tied_head=self.vocab * hidden,
            head_matrices=(Matrix("head", hidden, hidden, name="head"),),
            vectors=2 * hidden + (hidden + 2 * hidden + self.vocab),
        )

    def stock_config(self, choices: Mapping[str, Any]) -> dict[str, Any]:
        return {
            "architectures": ["BertForMaskedLM"],
            "model_type": "bert",
            "vocab_size": self.vocab,
            "max_position_embeddings": self.positions,
            "type_vocab_size": SEGMENTS,
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
