"""Tiny random models that see, by their type: the stock class, and the parts of its configuration."""

from pathlib import Path
from typing import Any

import torch
import transformers
from safetensors.torch import load_file, save_file
from tiny_families import DECODER, DERIVED, GATED_DELTA, MIXED, TINY

VISION = {
    "hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16,
    "image_size": 28, "patch_size": 14,
}  # fmt: skip
GEMMA = DECODER | {"model_type": "gemma3_text", "query_pre_attn_scalar": 16, "sliding_window": 8}
SEEING: dict[str, tuple[str, dict[str, Any]]] = {
    "gemma3": (
        "Gemma3ForConditionalGeneration",
        {"text_config": GEMMA | {"layer_types": MIXED}, "vision_config": VISION},
    ),
    "mistral3": (
        "Mistral3ForConditionalGeneration",
        {
            "text_config": DECODER | {"model_type": "mistral"},
            "vision_config": VISION | {"model_type": "pixtral", "head_dim": 8},
            "tie_word_embeddings": False,
        },
    ),
}
OF_QWEN = {
    "depth": 1, "hidden_size": 16, "num_heads": 2, "intermediate_size": 16, "out_hidden_size": 48,
    "patch_size": 4, "num_position_embeddings": 16,
}  # fmt: skip
SEEING["qwen3_5"] = (
    "Qwen3_5ForConditionalGeneration",
    {"text_config": DECODER | GATED_DELTA, "vision_config": OF_QWEN},
)
SEEING["qwen3_5_moe"] = (
    "Qwen3_5MoeForConditionalGeneration",
    {"text_config": TINY["qwen3_5_moe_text"], "vision_config": OF_QWEN},
)
SEEING["gemma4"] = (
    "Gemma4ForConditionalGeneration",
    {
        "text_config": TINY["gemma4_text"] | {"pad_token_id": 0},
        "vision_config": VISION | {"num_key_value_heads": 2, "head_dim": 8, "patch_size": 14},
        "audio_config": None,
    },
)
DEEP: dict[str, Any] = {
    "text_config": DECODER | {"num_hidden_layers": 5, "attention_bias": True},
    "vision_config": OF_QWEN | {"depth": 3, "deepstack_visual_indexes": [0, 1, 2]},
}  # fmt: skip
SEEING["qwen3_vl"] = ("Qwen3VLForConditionalGeneration", DEEP)
SEEING["qwen3_vl_moe"] = (
    "Qwen3VLMoeForConditionalGeneration",
    DEEP | {"text_config": TINY["qwen3_moe"] | {"num_hidden_layers": 5}, "tie_word_embeddings": False},
)
ROTATED = {"rope_parameters": {"rope_type": "default", "rope_theta": 1e5, "mrope_section": [1, 1, 2]}}
SEEING["qwen2_5_vl"] = (
    "Qwen2_5_VLForConditionalGeneration",
    {"text_config": DERIVED | ROTATED, "vision_config": OF_QWEN | {"fullatt_block_indexes": [0]}},
)
SEEING["qwen2_vl"] = (
    "Qwen2VLForConditionalGeneration",
    {
        "text_config": DERIVED | ROTATED,
        "vision_config": {
            "depth": 1, "embed_dim": 16, "num_heads": 2, "mlp_ratio": 1, "hidden_size": 48, "patch_size": 4,
        },
    },
)  # fmt: skip
SEEING["kimi_k25"] = (
    "Kimi_K25ForConditionalGeneration",
    {
        "text_config": TINY["deepseek_v3"] | {"model_type": "deepseek_v3"},
        "vision_config": VISION | {"patch_size": 4, "pos_emb_height": 4, "pos_emb_width": 4},
        "projection_hidden_size": 16,
        "tie_word_embeddings": False,
    },
)
SEEING["llama4"] = (
    "Llama4ForConditionalGeneration",
    {
        "text_config": TINY["llama4_text"],
        "vision_config": VISION
        | {"vision_output_dim": 16, "projector_input_dim": 16, "projector_output_dim": 16},
        "tie_word_embeddings": False,
    },
)


def saved_seeing(folder: Path, name: str, **text: Any) -> Path:
    """Save a random model with these fields of its text part, as it is published."""
    kind, parts = SEEING[name]
    config = transformers.AutoConfig.for_model(name, **parts | {"text_config": parts["text_config"] | text})
    network, generator = getattr(transformers, kind)(config), torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator) * 0.2)
    network.save_pretrained(folder)
    if name == "kimi_k25":  # transformers reads its layers by this name, and writes another
        file, before = folder / "model.safetensors", "language_model.model."
        tensors = load_file(file)
        renamed = {name.replace(f"{before}blocks.", f"{before}layers."): x for name, x in tensors.items()}
        save_file(renamed, file, {"format": "pt"})
    return folder
