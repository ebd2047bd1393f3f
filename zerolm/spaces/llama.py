"""Llama-shaped decoders: RMS norms, rotary positions, grouped queries, gated FFN."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from zerolm.architecture import Architecture, Ends, Layer, Matrix
from zerolm.settings import Setting, with_defaults
from zerolm.spaces.base import space
from zerolm.spaces.uniform import UniformSpace


@space
class Llama(UniformSpace):
    """From about 10 M to 3 B parameters; vocabulary and tying are settings, for no score judges them."""

    name = "llama"
    summary = "Llama-shaped decoders with grouped queries and a gated FFN"
    network = "zerolm.networks.modules.llama:llama"
    free_queries = True
    declared = (
        *with_defaults(
            UniformSpace.declared,
            depth=range(4, 33),
            hidden=range(256, 2561, 64),
            head_size=(64, 128),
            ffn=range(640, 11521, 64),
            vocab=32000,
            positions=2048,
        ),
        Setting("heads_per_kv", "integers", (3, 4, 8), "heads that share keys and values", low=1, high=4096),
        Setting("tied", "flag", True, "share the matrix of embedding and head", off="untied"),
        Setting("per_layer", "flag", False, "choose FFN width and KV heads anew in each layer"),
    )

    def check(self) -> None:
        for size in self.head_size:
            self.even(size)
        super().check()

    def read(self, choices: Mapping[str, Any]) -> Architecture:
        architecture = super().read(choices)
        self.even(architecture.choices["head_size"])
        return architecture

    @staticmethod
    def even(head_size: int) -> None:
        """Refuse odd heads: rotary positions turn pairs of numbers."""
        if head_size % 2:
            raise ValueError(f"head_size {head_size} is odd; rotary positions need {head_size + 1}, say")

    def layer(self, hidden: int, heads: int, kv_heads: int, head_size: int, ffn: int) -> Layer:
        return gated_layer(hidden, heads, kv_heads, head_size, ffn)

    def ends(self, hidden: int) -> Ends:
        return decoder_ends(hidden, self.vocab, self.tied)

    def blind_spots(self) -> str:
        return "the head size, and whether heads share keys and values beyond the shapes of k and v"

    def stock_config(self, choices: Mapping[str, Any]) -> dict[str, Any]:
        # The stock llama refuses heads that do not divide the hidden size; mistral is the same network.
        whole = choices["hidden"] % choices["heads"] == 0
        return {
            "architectures": ["LlamaForCausalLM" if whole else "MistralForCausalLM"],
            "model_type": "llama" if whole else "mistral",
            **({} if whole else {"sliding_window": None}),
            "vocab_size": self.vocab,
            "hidden_size": choices["hidden"],
            "intermediate_size": choices["ffn"],
            "num_hidden_layers": choices["depth"],
            "num_attention_heads": choices["heads"],
            "num_key_value_heads": choices["kv_heads"],
            "head_dim": choices["head_size"],
            "hidden_act": "silu",
            "max_position_embeddings": self.positions,
            "initializer_range": 0.02,
            "rms_norm_eps": 1e-5,
            "rope_theta": 10000.0,
            "attention_bias": False,
            "mlp_bias": False,
            "tie_word_embeddings": self.tied,
            "bos_token_id": None,
            "eos_token_id": None,
        }


def gated_layer(
    d: int, heads: int, kv_heads: int, s: int, f: int, qkv_bias: bool = False, qk_norm: bool = False
) -> Layer:
    """Return q, k, v, o and gate, up, down, with two RMS norms."""
    q, kv = heads * s, kv_heads * s
    matrices = (
        Matrix("attention", q, d, name="q"),
        Matrix("attention", kv, d, name="k"),
        Matrix("attention", kv, d, name="v"),
        Matrix("attention", d, q, name="o"),
        Matrix("ffn", f, d, name="gate"),
        Matrix("ffn", f, d, name="up"),
        Matrix("ffn", d, f, name="down"),
    )
    vectors = 2 * d + (q + 2 * kv if qkv_bias else 0) + (2 * s if qk_norm else 0)
    return Layer(matrices, d, q, kv, vectors, vectors)


def decoder_ends(d: int, vocab: int, tied: bool) -> Ends:
    """Return embedding, final norm, and the head where it is stored by itself."""
    head = () if tied else (Matrix("head", vocab, d, name="head"),)
    return Ends(vocab * d, tied_head=vocab * d if tied else 0, head_matrices=head, vectors=d, body_vectors=d)
