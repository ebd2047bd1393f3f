"""Tiny parents of the families that are written as GGUF, with what architectures of llama.cpp have."""

from pathlib import Path
from typing import Any, Final

from tiny_families import TINY, saved
from transformers import AutoModelForMaskedLM

from zerolm.children.gguf.keys import SAME
from zerolm.families.known import families

WRITTEN: Final = [name for name, family in families().items() if family.gguf is not None and name in TINY]
PLAIN: dict[str, Any] = {
    "attention_bias": False, "mlp_bias": False, "use_bias": False, "bias": False, "qkv_bias": False,
    "sliding_window": 64, "layer_types": None, "max_position_embeddings": 32,
}  # fmt: skip
"""What these architectures of llama.cpp do not have."""
OF_QWEN3_5: Final = ("qwen3_5_text", "qwen3_5_moe_text", "qwen3_5", "qwen3_5_moe")
DELTA: dict[str, Any] = {"linear_value_head_dim": 8}
SECTIONED: dict[str, Any] = {
    "rope_parameters": {
        "rope_type": "default", "rope_theta": 100.0, "partial_rotary_factor": 0.5, "mrope_section": [2, 1, 1],
    }
}  # fmt: skip
MULTIPLIED: dict[str, Any] = {
    "embedding_multiplier": 3.0, "lm_head_multiplier": 0.4, "key_multiplier": 0.7,
    "attention_in_multiplier": 0.9, "attention_out_multiplier": 1.2, "mlp_multipliers": [0.8, 1.3],
    "ssm_in_multiplier": 1.3, "ssm_out_multiplier": 0.6, "ssm_multipliers": [0.5, 0.9, 1.2, 0.8, 1.1],
}  # fmt: skip
HALF: dict[str, Any] = {"rope_type": "default", "rope_theta": 100.0, "partial_rotary_factor": 0.5}
CHANGES: dict[str, dict[str, Any]] = {
    "deepseek_v2": {"q_lora_rank": 20},
    "dots1": {"num_key_value_heads": 6},
    "exaone4": {"layer_types": ["full_attention"] * 3},
    "modernbert": {"layer_types": ["full_attention", "sliding_attention", "sliding_attention"]},
    "olmoe": {"num_key_value_heads": 6},
    **dict.fromkeys(OF_QWEN3_5, DELTA | SECTIONED),
    "falcon_h1": MULTIPLIED | {"mamba_rms_norm": True, "mamba_norm_before_gate": False},
    "mimo_v2_flash": {"rope_parameters": {"full_attention": HALF, "sliding_attention": HALF}},
    "nemotron_h": {"layers_block_type": ["mamba", "attention", "moe", "moe", "attention", "moe"]},
    "qwen3_next": DELTA | {"mlp_only_layers": []},
}
"""What else of a tiny model they have otherwise."""
LAYERS: dict[str, tuple[int, ...]] = {
    **dict.fromkeys((*OF_QWEN3_5, "qwen3_next", "lfm2_moe", "granitemoehybrid"), (0, 1, 3)),
    **dict.fromkeys(("gemma4_text", "mimo_v2_flash"), (0, 1, 3)),
    "lfm2": (0, 1),
    "jamba": (0, 1, 2, 3),
    "nemotron_h": (0, 1, 2),
}
"""The layers of a child, so that some of each kind are among them; (0, 2) of others."""
GROUPED: Final = ("n_group", "topk_group")


def tiny_changes(name: str, dtype: str) -> dict[str, Any]:
    """Return what a tiny model of a family has otherwise, to be written.

    In 16 bits all experts are chosen: what is rounded otherwise would have routers choose others.
    """
    described, sizes = families()[name].gguf, families()[name].config.sizes
    changes = {field: value for field, value in PLAIN.items() if field in TINY[name]}
    if families()[name].config.memory:
        changes.pop("layer_types", None)
    if described.windows:
        changes = {f: value for f, value in changes.items() if f not in ("sliding_window", "layer_types")}
    if described.square and "head_dim" in TINY[name]:
        changes["head_dim"] = TINY[name]["hidden_size"] // TINY[name]["num_attention_heads"]
    plain = {
        field: value
        for field, value in described.needs.items()
        if not isinstance(value, list) and not str(value).startswith(SAME) and "." not in field
    }
    if dtype == "bfloat16" and "active" in sizes:
        changes |= {str(sizes["active"].field): 8} | {field: 1 for field in GROUPED if field in TINY[name]}
    return changes | plain | CHANGES.get(name, {})


def parent_of(folder: Path, name: str, dtype: str, **changes: Any) -> Path:
    """Save a tiny model of a family; norms of an encoder do not make all tokens alike."""
    parent = saved(folder, name, dtype, **tiny_changes(name, dtype) | changes)
    if families()[name].task == "masked":
        model = AutoModelForMaskedLM.from_pretrained(parent, dtype="auto")
        for parameter_name, parameter in model.named_parameters():
            if "norm" in parameter_name.lower() and parameter_name.endswith("weight"):
                parameter.data.add_(1.0)
        model.save_pretrained(parent)
    return parent


IN_BLOCKS: dict[str, Any] = {
    "hidden_size": 96, "n_embd": 96, "dim": 96, "intermediate_size": 64, "n_inner": 64, "hidden_dim": 64,
}  # fmt: skip
"""Sizes that fall into blocks of 32 weights."""


def in_blocks(name: str) -> dict[str, Any]:
    """Return what a tiny model of a family has whose rows fall into blocks of 32 weights, most of them.

    All experts are chosen: what is rounded otherwise would have routers choose others. Layers of all kinds
    are such that a file may have the whole model.
    """
    changes, sizes = tiny_changes(name, "float32"), families()[name].config.sizes
    changes |= {field: size for field, size in IN_BLOCKS.items() if field in TINY[name]}
    changes |= {field: 32 for field in ("moe_intermediate_size",) if field in TINY[name]}
    if "head_dim" in changes:
        changes["head_dim"] = 16
    if "active" in sizes:
        changes |= {str(sizes["active"].field): 8} | {field: 1 for field in GROUPED if field in TINY[name]}
    return changes | WHOLE.get(name, {})


WHOLE: dict[str, dict[str, Any]] = {
    "granitemoehybrid": {"mamba_d_head": 32},
    "qwen2_moe": {"mlp_only_layers": []},
    "qwen3_moe": {"mlp_only_layers": []},
}
"""Sizes that go with those in blocks, and layers that are all mixtures."""
