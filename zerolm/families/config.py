"""Architectures from Hugging Face configurations (plain JSON, no library needed)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from zerolm.architecture import Architecture, Ends, Layer
from zerolm.spaces.bert import bert_ends, bert_layer
from zerolm.spaces.choices import MAX_DEPTH, MAX_VOCAB, integer
from zerolm.spaces.gpt2_uniform import gpt2_ends, gpt2_layer
from zerolm.spaces.llama import decoder_ends, gated_layer

GATED: Final = {
    "llama": {"qkv_bias": False, "qk_norm": False},
    "mistral": {"qkv_bias": False, "qk_norm": False},
    "qwen2": {"qkv_bias": True, "qk_norm": False},
    "qwen3": {"qkv_bias": False, "qk_norm": True},
}
MODEL_TYPES: Final = (*GATED, "gpt2", "bert")


def from_config(config: Mapping[str, Any]) -> Architecture:
    """The architecture of a ``config.json``; ``choices`` hold the sizes that were read.

    Decoders are counted with their language-model head, bert as ``BertForMaskedLM``. Raises
    ``ValueError`` for another model type, a missing size, or sizes that do not divide.
    """
    kind = config.get("model_type")
    if kind not in MODEL_TYPES:
        raise ValueError(f"model_type {kind!r} is not known; there are {', '.join(MODEL_TYPES)}")
    if kind == "gpt2":
        return _gpt2(config)
    if kind == "bert":
        return _bert(config)
    return _gated(str(kind), config)


def _size(config: Mapping[str, Any], name: str, high: int, default: int | None = None) -> int:
    value = config.get(name)
    if value is None:
        value = default
    if value is None:
        raise ValueError(f"the configuration lacks {name}")
    return integer(name, value, 1, high)


def _gated(kind: str, config: Mapping[str, Any]) -> Architecture:
    hidden, depth = _size(config, "hidden_size", 1 << 20), _size(config, "num_hidden_layers", MAX_DEPTH)
    heads = _size(config, "num_attention_heads", 1 << 16)
    kv_heads = _size(config, "num_key_value_heads", 1 << 16, heads)
    _divides("num_attention_heads", heads, "num_key_value_heads", kv_heads)
    if config.get("head_dim") is None:
        _divides("hidden_size", hidden, "num_attention_heads", heads)
    head_size = _size(config, "head_dim", 1 << 16, hidden // heads)
    ffn = _size(config, "intermediate_size", 1 << 20)
    for unusual in ("attention_bias", "mlp_bias"):
        if config.get(unusual):
            raise ValueError(f"{unusual} is set; only configurations without it are read")
    layer = gated_layer(hidden, heads, kv_heads, head_size, ffn, **GATED[kind])
    tied = bool(config.get("tie_word_embeddings", False))
    ends = decoder_ends(hidden, _size(config, "vocab_size", MAX_VOCAB), tied)
    choices = {
        "depth": depth,
        "hidden": hidden,
        "head_size": head_size,
        "heads": heads,
        "kv_heads": kv_heads,
        "ffn": ffn,
    }
    return _uniform(kind, choices, layer, ends)


def _gpt2(config: Mapping[str, Any]) -> Architecture:
    hidden, depth = _size(config, "n_embd", 1 << 20), _size(config, "n_layer", MAX_DEPTH)
    heads = _size(config, "n_head", 1 << 16)
    _divides("n_embd", hidden, "n_head", heads)
    ffn = _size(config, "n_inner", 1 << 20, 4 * hidden)
    vocab, positions = _size(config, "vocab_size", MAX_VOCAB), _size(config, "n_positions", MAX_VOCAB, 1024)
    tied = bool(config.get("tie_word_embeddings", True))
    choices = {"depth": depth, "hidden": hidden, "heads": heads, "ffn": ffn}
    return _uniform("gpt2", choices, gpt2_layer(hidden, ffn), gpt2_ends(hidden, vocab, positions, tied))


def _bert(config: Mapping[str, Any]) -> Architecture:
    hidden, depth = _size(config, "hidden_size", 1 << 20), _size(config, "num_hidden_layers", MAX_DEPTH)
    heads = _size(config, "num_attention_heads", 1 << 16)
    _divides("hidden_size", hidden, "num_attention_heads", heads)
    ffn = _size(config, "intermediate_size", 1 << 20)
    ends = bert_ends(
        hidden,
        _size(config, "vocab_size", MAX_VOCAB),
        _size(config, "max_position_embeddings", MAX_VOCAB, 512),
        _size(config, "type_vocab_size", MAX_VOCAB, 2),
        tied=bool(config.get("tie_word_embeddings", True)),
    )
    choices = {"depth": depth, "hidden": hidden, "heads": heads, "ffn": ffn}
    return _uniform("bert", choices, bert_layer(hidden, ffn), ends)


def _uniform(kind: str, choices: dict[str, Any], layer: Layer, ends: Ends) -> Architecture:
    return Architecture(f"huggingface:{kind}", choices, (layer,) * choices["depth"], ends)


def _divides(name: str, value: int, by: str, divisor: int) -> None:
    if value % divisor:
        raise ValueError(f"{name} {value} is not divisible by {by} {divisor}")
