"""A tiny configuration of every family with tensors, with whatever it can have: biases, windows, factors."""

from pathlib import Path
from typing import Any

import torch
from tiny_mixtures import GATED_DELTA, MAMBA, MIXTURES
from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForMaskedLM
from transformers.initialization import no_init_weights

from zerolm.families.known import families
from zerolm.networks.roles import layers_of

NO_TOKENS = {"bos_token_id": None, "eos_token_id": None, "pad_token_id": None}
SIZES: dict[str, Any] = {
    "vocab_size": 64, "hidden_size": 48, "num_hidden_layers": 3, "num_attention_heads": 6,
    "intermediate_size": 40, "max_position_embeddings": 32,
}  # fmt: skip
DECODER: dict[str, Any] = SIZES | NO_TOKENS | {"num_key_value_heads": 2, "head_dim": 16}
DERIVED = {name: value for name, value in DECODER.items() if name != "head_dim"}
ENCODER: dict[str, Any] = SIZES | {"pad_token_id": 1, "max_position_embeddings": 66}
MIXED = ["sliding_attention", "full_attention", "sliding_attention"]
SPACES = {name: value for name, value in MAMBA.items() if name != "layer_types"}
BIASED = {"attention_bias": True, "mlp_bias": True}
FACTORS = {"embedding_multiplier": 3.0, "residual_multiplier": 0.4, "logits_scaling": 2.0}
GEMMA4: dict[str, Any] = {
    "num_hidden_layers": 4, "global_head_dim": 32, "sliding_window": 8, "attention_bias": True,
    "layer_types": ["sliding_attention", "full_attention"] * 2, "vocab_size_per_layer_input": 64,
}  # fmt: skip
GPT2: dict[str, Any] = NO_TOKENS | {
    "vocab_size": 64, "n_embd": 48, "n_layer": 3, "n_head": 6, "n_inner": 40, "n_positions": 32
}  # fmt: skip
TINY: dict[str, dict[str, Any]] = {
    "apertus": DERIVED | {"attention_bias": True},
    "arcee": DECODER | BIASED,
    "bamba": DERIVED | BIASED | SPACES | {"attn_layer_indices": [1]},
    "bert": ENCODER,
    "camembert": ENCODER,
    "cohere": DECODER | {"attention_bias": True, "use_qk_norm": True},
    "cohere2": DECODER | {"attention_bias": True, "sliding_window": 8, "layer_types": MIXED},
    "cwm": DECODER | {"bos_token_id": 0, "mlp_bias": True, "sliding_window": 8, "layer_types": MIXED},
    "deberta-v2": ENCODER
    | {"relative_attention": True, "position_buckets": 4, "share_att_key": True, "norm_rel_ebd": "layer_norm",
       "pos_att_type": ["p2c", "c2p"], "type_vocab_size": 2, "pooler_hidden_size": 48},
    "distilbert": {
        "vocab_size": 64, "dim": 48, "n_layers": 3, "n_heads": 6, "hidden_dim": 40,
        "max_position_embeddings": 32,
    },
    "electra": ENCODER | {"embedding_size": 24},
    "ernie": ENCODER,
    "ernie4_5": DECODER | {"use_bias": True},
    "eurobert": DECODER | {"attention_bias": True, "pad_token_id": 1},
    "exaone4": DECODER | {"sliding_window": 8, "layer_types": MIXED},
    "falcon": {
        "vocab_size": 64, "hidden_size": 48, "num_hidden_layers": 3, "num_attention_heads": 6,
        "ffn_hidden_size": 40, "max_position_embeddings": 32, "num_kv_heads": 2, "bias": True,
        "new_decoder_architecture": True,
    }
    | NO_TOKENS,
    "falcon_h1": DECODER | BIASED | SPACES | {"mamba_d_ssm": 96},
    "gemma": DECODER | {"attention_bias": True},
    "gemma2": DECODER | {"attention_bias": True, "query_pre_attn_scalar": 16, "sliding_window": 8},
    "gemma3_text": DECODER | {"attention_bias": True, "query_pre_attn_scalar": 16, "sliding_window": 8,
                              "layer_types": MIXED},
    "gemma4_text": DECODER | GEMMA4 | {
        "attention_k_eq_v": True, "num_global_key_value_heads": 2, "num_attention_heads": 8,
        "num_key_value_heads": 4, "hidden_size_per_layer_input": 0, "enable_moe_block": True,
        "num_experts": 8, "top_k_experts": 2, "moe_intermediate_size": 24,
    },
    "glm": DECODER,
    "glm4": DECODER,
    "gpt2": GPT2,
    "gpt_bigcode": GPT2,
    "gpt_neox": DERIVED,
    "gptj": GPT2 | {"rotary_dim": 4},
    "granite": DECODER | BIASED | FACTORS | {"attention_multiplier": 0.3},
    "helium": DECODER | BIASED | {"head_dim": 8},
    "gte": ENCODER,
    "hunyuan_v1_dense": DECODER | {"attention_bias": True},
    "internlm3": DECODER | BIASED,
    "iquestcoder": DECODER | BIASED,
    "jais2": DECODER | BIASED,
    "lfm2": DERIVED
    | {"conv_bias": True, "block_multiple_of": 16, "layer_types": ["conv", "full_attention", "conv"]},
    "llama": DERIVED | BIASED,
    "ministral": DECODER | {"sliding_window": 8, "layer_types": MIXED},
    "ministral3": DECODER,
    "mistral": DECODER | {"sliding_window": 8},
    "modernbert": ENCODER | BIASED
    | {"norm_bias": True, "classifier_bias": True, "local_attention": 8, "layer_types": MIXED},
    "mpnet": ENCODER,
    "nemotron": DECODER | BIASED,
    "nomic_bert": ENCODER,
    "olmo": DECODER | {"attention_bias": True},
    "olmo2": DERIVED | {"attention_bias": True},
    "olmo3": DERIVED | {"attention_bias": True, "sliding_window": 8, "layer_types": MIXED},
    "opt": {
        "vocab_size": 64, "hidden_size": 48, "num_hidden_layers": 3, "num_attention_heads": 6, "ffn_dim": 40,
        "max_position_embeddings": 32, "word_embed_proj_dim": 48,
    }
    | NO_TOKENS,
    "phi": DECODER,
    "phi3": DERIVED,
    "qwen2": DECODER,
    "qwen3": DECODER | {"attention_bias": True},
    "qwen3_5_text": DECODER | GATED_DELTA,
    "roberta": ENCODER,
    "seed_oss": DECODER | BIASED | {"attention_out_bias": True},
    "smollm3": DECODER | BIASED | {"no_rope_layer_interval": 2},
    "stablelm": DERIVED | {"use_qkv_bias": True},
    "starcoder2": DECODER | {"sliding_window": 8},
    "vaultgemma": DECODER | {"attention_bias": True, "query_pre_attn_scalar": 16, "sliding_window": 8},
    "xlm-roberta": ENCODER,
}  # fmt: skip
TINY |= MIXTURES


def stock_config(kind: str, **changes: Any) -> Any:
    """Return the stock configuration of a tiny model."""
    return AutoConfig.for_model(kind, **TINY[kind] | changes)


def stock_model(config: Any) -> Any:
    """Return the stock model of a configuration, with the head of its task."""
    is_encoder = families()[config.model_type].task == "masked"
    return (AutoModelForMaskedLM if is_encoder else AutoModelForCausalLM).from_config(config)


def random_model(kind: str, dtype: str = "float32", **changes: Any) -> Any:
    """Return a tiny model whose weights, biases and gains are all random."""
    generator = torch.Generator().manual_seed(0)
    with no_init_weights():
        network = stock_model(stock_config(kind, **changes)).eval()
    network.tie_weights()
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator) * 0.2)
    return network.to(getattr(torch, dtype))


def saved(folder: Path, kind: str, dtype: str = "float32", **changes: Any) -> Path:
    random_model(kind, dtype, **changes).save_pretrained(folder)
    return folder


SHARING = "gemma4_text as E2B"
"""Of its layers the last three read keys and values of earlier ones, and are twice as wide."""
PLAIN_GEMMA4: dict[str, Any] = {
    "attention_k_eq_v": False,
    "num_global_key_value_heads": None,
    "enable_moe_block": False,
}
AS_E2B: dict[str, Any] = PLAIN_GEMMA4 | {
    "num_kv_shared_layers": 3, "use_double_wide_mlp": True, "hidden_size_per_layer_input": 8,
    "num_hidden_layers": 6, "num_key_value_heads": 1,
    "layer_types": ["sliding_attention", "sliding_attention", "full_attention"] * 2,
}  # fmt: skip


def louder(kind: str) -> Any:
    """Return a tiny model, of ``SHARING`` too, whose sub-blocks matter: they send eight times as much."""
    network = random_model("gemma4_text", **AS_E2B) if kind == SHARING else random_model(kind)
    with torch.no_grad():
        for layer in layers_of(network):
            for module in layer.writers.values():
                module.get_parameter("weight").mul_(8.0)
    return network
