"""Small decoders whose rows fall into blocks of weights of GGUF types, and texts for them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from tiny import word_tokenizer
from transformers import LlamaConfig, LlamaForCausalLM

SIZES: dict[str, Any] = {
    "vocab_size": 64,
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "intermediate_size": 96,
    "max_position_embeddings": 64,
    "bos_token_id": None,
    "eos_token_id": None,
    "pad_token_id": None,
}


def typed_parent(folder: Path, dtype: torch.dtype = torch.bfloat16, seed: int = 0, **sizes: Any) -> Path:
    """A llama in the folder, with a tokenizer of 64 words; rows fall into blocks of 32."""
    torch.manual_seed(seed)
    model = LlamaForCausalLM(LlamaConfig(**SIZES | sizes))
    for parameter in model.parameters():
        parameter.data.mul_(4.0 if parameter.dim() == 2 else 1.0)  # predictions that are not all alike
    model.to(dtype).save_pretrained(folder)
    word_tokenizer(folder)
    return folder


def some_words(file: Path, count: int = 4000, seed: int = 0) -> Path:
    """A text of these words, some of them rare."""
    generator = torch.Generator().manual_seed(seed)
    ids = (64 * torch.rand(count, generator=generator) ** 2).long().clamp(max=63)
    file.write_text(" ".join(f"w{i}" for i in ids.tolist()))
    return file
