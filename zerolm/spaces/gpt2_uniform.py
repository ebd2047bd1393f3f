"""The GPT-2 that transformers builds: one width for all layers, learned positions, tied embeddings."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from zerolm.architecture import Ends, Layer, Matrix
from zerolm.settings import with_defaults
from zerolm.spaces.base import space
from zerolm.spaces.uniform import UniformSpace


@space
class Gpt2Uniform(UniformSpace):
    """Every head has its own keys and values."""

    name = "gpt2-uniform"
    summary = "the GPT-2 that transformers builds: the same layer throughout, tied embeddings"

    network = "zerolm.networks.modules.gpt2:gpt2_uniform"
    declared = with_defaults(
        UniformSpace.declared,
        depth=range(2, 49),
        hidden=range(128, 2049, 64),
        ffn=range(320, 9217, 64),
        vocab=50257,
        positions=1024,
    )

    def layer(self, hidden: int, heads: int, kv_heads: int, head_size: int, ffn: int) -> Layer:
        return gpt2_layer(hidden, ffn)

    def ends(self, hidden: int) -> Ends:
        tokens = self.vocab * hidden
        return Ends(tokens + self.positions * hidden, tokens, vectors=2 * hidden, body_vectors=2 * hidden)

    def stock_config(self, choices: Mapping[str, Any]) -> dict[str, Any]:
        return {
            "architectures": ["GPT2LMHeadModel"],
            "model_type": "gpt2",
            "vocab_size": self.vocab,
            "n_positions": self.positions,
            "n_embd": choices["hidden"],
            "n_layer": choices["depth"],
            "n_head": choices["heads"],
            "n_inner": choices["ffn"],
            "activation_function": "gelu_new",
            "initializer_range": 0.02,
            "layer_norm_epsilon": 1e-5,
            "tie_word_embeddings": True,
            "bos_token_id": self.vocab - 1,
            "eos_token_id": self.vocab - 1,
        }


def gpt2_layer(d: int, f: int) -> Layer:
    """Return fused QKV, output projection, two FFN matrices; biases everywhere, two layer norms."""
    matrices = (
        Matrix("attention", 3 * d, d, parts=3, name="qkv"),
        Matrix("attention", d, d, scaled=True, name="o"),
        Matrix("ffn", f, d, name="up"),
        Matrix("ffn", d, f, scaled=True, name="down"),
    )
    vectors = 4 * d + f + d + 4 * d
    return Layer(matrices, d, d, d, vectors, vectors)
