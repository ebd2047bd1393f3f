"""Tiny configurations of mixtures of experts: layers 0 and 1 have a plain FFN where some have one."""

from typing import Any

SIZES: dict[str, Any] = {
    "vocab_size": 64, "hidden_size": 48, "num_hidden_layers": 4, "num_attention_heads": 6,
    "num_key_value_heads": 2, "head_dim": 16, "intermediate_size": 40, "max_position_embeddings": 32,
    "bos_token_id": None, "eos_token_id": None, "pad_token_id": None, "num_experts_per_tok": 2,
}  # fmt: skip
DERIVED = {name: value for name, value in SIZES.items() if name != "head_dim"}
EXPERTS: dict[str, Any] = {"num_experts": 8}
LOCAL: dict[str, Any] = {"num_local_experts": 8}
ROUTED: dict[str, Any] = {"n_routed_experts": 8, "n_group": 2, "topk_group": 1, "moe_intermediate_size": 24}
DENSE: dict[str, Any] = {"first_k_dense_replace": 2, "n_shared_experts": 2}
LATENT: dict[str, Any] = {
    "q_lora_rank": 20, "kv_lora_rank": 24, "qk_rope_head_dim": 8, "qk_nope_head_dim": 12, "v_head_dim": 16,
    "num_key_value_heads": 6,
}  # fmt: skip
BIASED = {"attention_bias": True}
MIXED = {"sliding_window": 8, "layer_types": ["sliding_attention", "full_attention"] * 2}
KINDS = {"mlp_layer_types": ["dense", "dense", "sparse", "sparse"], "num_shared_experts": 2}
FACTORS = {"embedding_multiplier": 3.0, "residual_multiplier": 0.4, "logits_scaling": 2.0}
INDEXED: dict[str, Any] = {"index_n_heads": 2, "index_head_dim": 16, "index_topk": 8}
MAMBA: dict[str, Any] = {
    "mamba_n_heads": 6, "mamba_d_head": 16, "mamba_d_state": 8, "mamba_n_groups": 2,
    "layer_types": ["mamba", "attention", "mamba", "attention"],
}  # fmt: skip
GATED_DELTA: dict[str, Any] = {
    "linear_num_key_heads": 2, "linear_num_value_heads": 4, "linear_key_head_dim": 8,
    "linear_value_head_dim": 4, "num_hidden_layers": 4, "attention_bias": True,
    "layer_types": ["linear_attention", "full_attention", "linear_attention", "full_attention"],
}  # fmt: skip
MIXTURES: dict[str, dict[str, Any]] = {
    "afmoe": SIZES | BIASED | EXPERTS | MIXED | {"num_dense_layers": 2, "moe_intermediate_size": 24},
    "deepseek_v2": DERIVED | LATENT | BIASED | ROUTED | DENSE
    | {"topk_method": "group_limited_greedy", "q_lora_rank": None},
    "deepseek_v3": DERIVED | LATENT | BIASED | ROUTED | DENSE,
    "dots1": SIZES | BIASED | ROUTED | DENSE | MIXED,
    "deepseek_v32": DERIVED | LATENT | BIASED | ROUTED | DENSE | INDEXED,
    "ernie4_5_moe": DERIVED
    | {"moe_num_experts": 8, "moe_k": 2, "moe_intermediate_size": 24, "use_bias": True}
    | {"moe_layer_start_index": 2},
    "exaone_moe": SIZES | EXPERTS | MIXED | KINDS | {"moe_intermediate_size": 24},
    "flex_olmo": DERIVED | BIASED | EXPERTS,
    "glm4_moe": SIZES | BIASED | ROUTED | DENSE | {"use_qk_norm": True},
    "glm4_moe_lite": DERIVED | LATENT | BIASED | ROUTED
    | {"mlp_layer_types": KINDS["mlp_layer_types"], "n_shared_experts": 2},
    "glm_moe_dsa": DERIVED | LATENT | BIASED | ROUTED | DENSE | INDEXED,
    "gpt_oss": SIZES | LOCAL | MIXED,
    "granitemoe": DERIVED | BIASED | LOCAL | FACTORS | {"attention_multiplier": 0.3},
    "granitemoehybrid": DERIVED | BIASED | LOCAL | FACTORS | MAMBA | {"shared_intermediate_size": 32},
    "granitemoeshared": DERIVED | BIASED | LOCAL | FACTORS | {"shared_intermediate_size": 32},
    "hunyuan_v1_moe": SIZES | BIASED | {"num_experts": 8, "moe_topk": 2},
    "hy_v3": SIZES | BIASED | EXPERTS | KINDS | {"moe_intermediate_size": 24},
    "jamba": DERIVED | EXPERTS
    | {"mamba_d_state": 8, "mamba_dt_rank": 4, "attn_layer_period": 2, "attn_layer_offset": 1},
    "lfm2_moe": SIZES | EXPERTS
    | {"moe_intermediate_size": 24, "layer_types": ["conv", "full_attention"] * 2},
    "llama4_text": SIZES | BIASED | LOCAL | {"intermediate_size_mlp": 44, "moe_layers": [1, 3]}
    | {"layer_types": ["chunked_attention", "full_attention"] * 2, "attention_chunk_size": 8}
    | {"no_rope_layers": [1, 0, 1, 0]},
    "mimo_v2_flash": SIZES | BIASED | ROUTED | {"v_head_dim": 12, "n_group": 1, "num_attention_heads": 8}
    | {"sliding_window": 8, "layer_types": MIXED["layer_types"], "mlp_layer_types": KINDS["mlp_layer_types"]},
    "minimax_m2": SIZES | LOCAL,
    "mixtral": SIZES | LOCAL | {"sliding_window": 8},
    "nemotron_h": {name: value for name, value in SIZES.items() if name != "num_hidden_layers"}
    | {"mlp_bias": True, "n_routed_experts": 8, "n_group": 2, "topk_group": 1}
    | {"mamba_num_heads": 6, "mamba_head_dim": 16, "ssm_state_size": 8, "n_groups": 2, "use_bias": True}
    | {"moe_intermediate_size": 24, "moe_shared_expert_intermediate_size": 32}
    | {"layers_block_type": ["mamba", "attention", "moe", "mlp", "attention", "mlp"]},
    "olmoe": DERIVED | BIASED | EXPERTS,
    "phimoe": SIZES | BIASED | LOCAL | {"lm_head_bias": True},
    "qwen2_moe": SIZES | EXPERTS | {"mlp_only_layers": [1], "moe_intermediate_size": 24,
                                    "shared_expert_intermediate_size": 40},
    "qwen3_5_moe_text": SIZES | EXPERTS | GATED_DELTA
    | {"moe_intermediate_size": 24, "shared_expert_intermediate_size": 40},
    "qwen3_moe": SIZES | BIASED | EXPERTS | {"mlp_only_layers": [1], "moe_intermediate_size": 24},
    "qwen3_next": SIZES | EXPERTS | GATED_DELTA
    | {"moe_intermediate_size": 24, "shared_expert_intermediate_size": 40, "mlp_only_layers": [1]},
    "solar_open": SIZES | BIASED | ROUTED,
}  # fmt: skip
