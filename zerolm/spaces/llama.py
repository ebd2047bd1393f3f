"""Llama-shaped decoders: RMS norms, rotary positions, grouped queries, gated FFN."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from zerolm.architecture import MAX_WIDTH, Architecture, Ends, Layer, Matrix
from zerolm.settings import Setting, with_defaults
from zerolm.spaces.base import space
from zerolm.spaces.uniform import UniformSpace


@space
class Llama(UniformSpace):
    """From about 10 M to 8 B parameters; vocabulary and tying are settings, for no score judges them.

    With ``qkv_bias`` they are Qwen2's. The defaults hold the shapes of SmolLM2, MobileLLM, TinyLlama,
    Llama 3.2 and Qwen2.5. An FFN 1.5 times as wide as the stream has 1.1 to 2 times the weights of attention,
    by the heads that share a KV head: among the best of ``llama_small`` at one depth.
    """

    name = "llama"
    summary = "Llama-shaped decoders with grouped queries and a gated FFN"
    network = "zerolm.networks.modules.llama:llama"
    declared = (
        *with_defaults(
            UniformSpace.declared,
            depth=range(4, 65),
            hidden=range(256, 4097, 64),
            head_size=(64, 128),
            ffn=range(128, 32769, 128),
            ffn_per_hidden=(1.5, 6.0),
            vocab=32000,
            positions=2048,
        ),
        Setting(
            "heads_per_kv",
            "integers",
            (1, 2, 3, 4, 5, 6, 7, 8),
            "heads that share keys and values",
            low=1,
            high=4096,
        ),
        Setting("query_per_hidden", "interval", (1.0, 1.0), "width of all queries over hidden size", low=0),
        Setting("query_width", "interval", (1.0, MAX_WIDTH), "width of all queries together", low=0),
        Setting("kv_width", "interval", (1.0, MAX_WIDTH), "width of all keys together", low=0),
        Setting("tied", "flag", True, "share the matrix of embedding and head", off="untied"),
        Setting("per_layer", "flag", False, "choose FFN width and KV heads anew in each layer"),
        Setting("qkv_bias", "flag", False, "queries, keys and values have biases"),
    )
    qkv_bias: bool = False

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
        return gated_layer(hidden, heads, kv_heads, head_size, ffn, qkv_bias=self.qkv_bias)

    def ends(self, hidden: int) -> Ends:
        return decoder_ends(hidden, self.vocab, self.tied)

    def blind_spots(self) -> str:
        return "the head size, and whether heads share keys and values beyond the shapes of k and v"

    def stock_config(self, choices: Mapping[str, Any]) -> dict[str, Any]:
        return {
            **self._family(choices),
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
            "tie_word_embeddings": self.tied,
            "bos_token_id": None,
            "eos_token_id": None,
        }

    def _family(self, choices: Mapping[str, Any]) -> dict[str, Any]:
        """Return the stock class; that of llama refuses heads that do not divide the hidden size."""
        if self.qkv_bias:
            return {**_stock("Qwen2"), "use_sliding_window": False}
        if choices["hidden"] % choices["heads"]:
            return {**_stock("Mistral"), "sliding_window": None}
        return {**_stock("Llama"), "attention_bias": False, "mlp_bias": False}


@space
class Qwen3(Llama):
    """As llama, with a norm over each query's and each key's head; queries may be wider than the stream."""

    name = "qwen3"
    summary = "Qwen3-shaped decoders: as llama, with norms of queries and keys, and wider queries"
    declared = with_defaults(
        tuple(setting for setting in Llama.declared if setting.name != "qkv_bias"),
        head_size=(128,),
        query_per_hidden=(1.0, 2.0),
        vocab=151936,
        positions=32768,
    )

    def layer(self, hidden: int, heads: int, kv_heads: int, head_size: int, ffn: int) -> Layer:
        return gated_layer(hidden, heads, kv_heads, head_size, ffn, qk_norm=True)

    def _family(self, choices: Mapping[str, Any]) -> dict[str, Any]:
        return {**_stock("Qwen3"), "attention_bias": False, "use_sliding_window": False}


def _stock(family: str) -> dict[str, Any]:
    return {"architectures": [f"{family}ForCausalLM"], "model_type": family.lower()}


def gated_layer(
    d: int,
    heads: int,
    kv_heads: int,
    s: int,
    f: int,
    qkv_bias: bool = False,
    qk_norm: bool = False,
    norms: int = 2,
) -> Layer:
    """Return q, k, v, o and gate, up, down, with RMS norms that have gains."""
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
    vectors = norms * d + (q + 2 * kv if qkv_bias else 0) + (2 * s if qk_norm else 0)
    return Layer(matrices, d, q, kv, vectors, vectors)


def decoder_ends(d: int, vocab: int, tied: bool) -> Ends:
    """Return embedding, final norm, and the head where it is stored by itself."""
    head = () if tied else (Matrix("head", vocab, d, name="head"),)
    return Ends(vocab * d, tied_head=vocab * d if tied else 0, head_matrices=head, vectors=d, body_vectors=d)
