"""Tiny models with a tokenizer whose tokens their configurations name."""

from pathlib import Path
from typing import Any

import torch
from tiny import DECODER
from tokenizers import Tokenizer
from torch import nn
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

ROWS = 960
NAMED = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>", "pad_token": "</s>"}
TEMPLATE = "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"


def decoder(folder: Path, tokenizer: str, **changes: Any) -> Path:
    """A tiny llama with a tokenizer; its configuration names tokens by their ids."""
    config = LlamaConfig(
        **DECODER | {"vocab_size": ROWS, "bos_token_id": 1, "eos_token_id": [2, 4], "head_dim": 8} | changes
    )
    torch.manual_seed(0)
    model = LlamaForCausalLM(config)
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.2)
    model.generation_config.bos_token_id, model.generation_config.eos_token_id = 1, [2, 4]
    model.save_pretrained(folder)
    stock = PreTrainedTokenizerFast(tokenizer_object=Tokenizer.from_str(tokenizer), **NAMED)
    stock.chat_template = TEMPLATE
    stock.save_pretrained(folder)
    return folder
