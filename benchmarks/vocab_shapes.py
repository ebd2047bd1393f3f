"""Seconds and memory of taking what English documentation never uses, at the sizes of known models.

Weights are random; each tokenizer is trained here, as large as the texts allow. Rows beyond it have no token.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any, Final

import torch
import transformers
from parts import Parts
from safetensors.torch import save_file
from transformers import PreTrainedTokenizerFast

from zerolm.networks.mapped import shapes_only

SHAPES: Final[dict[str, tuple[str, str, dict[str, Any]]]] = {
    "gemma-3-270m": (
        "Gemma3ForCausalLM",
        "BPE with bytes",
        {"vocab_size": 262_144, "hidden_size": 640, "num_hidden_layers": 18, "num_attention_heads": 4}
        | {"num_key_value_heads": 1, "head_dim": 256, "intermediate_size": 2048}
        | {"query_pre_attn_scalar": 256, "max_position_embeddings": 32_768, "sliding_window": 512},
    ),
    "xlm-roberta-base": (
        "XLMRobertaModel",
        "Unigram",
        {"vocab_size": 250_002, "hidden_size": 768, "num_hidden_layers": 12, "num_attention_heads": 12}
        | {"intermediate_size": 3072, "max_position_embeddings": 514, "type_vocab_size": 1},
    ),
    "Qwen3-0.6B": (
        "Qwen3ForCausalLM",
        "byte-level BPE",
        {"vocab_size": 151_936, "hidden_size": 1024, "num_hidden_layers": 28, "num_attention_heads": 16}
        | {"num_key_value_heads": 8, "head_dim": 128, "intermediate_size": 3072, "tie_word_embeddings": True},
    ),
}


def written(folder: Path, name: str, tokenizers: Path) -> Path:
    """Return a folder with random weights of a shape, in BF16, and a tokenizer of its kind."""
    if (folder / "model.safetensors").exists():
        return folder
    kind, tokenizer, sizes = SHAPES[name]
    made = getattr(transformers, kind)
    config = made.config_class(**sizes | {"bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 3})
    config.architectures = [kind]
    with shapes_only():
        model = made(config)
    generator = torch.Generator().manual_seed(0)
    tied = {"lm_head.weight"} if getattr(config, "tie_word_embeddings", False) else set()
    weights = {
        name: (torch.randn(weight.shape, generator=generator, dtype=torch.float32) * 0.02).bfloat16()
        for name, weight in model.named_parameters()
        if name not in tied
    }
    folder.mkdir(parents=True, exist_ok=True)
    config.dtype = "bfloat16"
    config.save_pretrained(folder)
    stock = PreTrainedTokenizerFast(
        tokenizer_file=str(tokenizers / f"{tokenizer}.json"),
        bos_token="<s>",
        eos_token="</s>",
        unk_token="<unk>",
        pad_token="<pad>",
    )
    stock.save_pretrained(folder)
    save_file(weights, folder / "model.safetensors", {"format": "pt"})
    return folder


def carved(folder: Path, text: Path, work: Path) -> dict[str, Any]:
    """Return what a child with the used tokens saves, and what it took: seconds and bytes of memory."""
    out = work / f"{folder.name}-used"
    command = [sys.executable, "-m", "zerolm", "carve", str(folder), "--keep-vocab", "used"]
    command += ["--text", str(text), "--out", str(out), "--force", "--json"]
    environment = os.environ | {"ZEROLM_CACHE": str(work / "cache")}
    start = time.monotonic()
    with TemporaryFile() as printed:
        process = subprocess.Popen(command, env=environment, stdout=printed)
        _, status, usage = os.wait4(process.pid, 0)  # of this process alone
        seconds = time.monotonic() - start
        if status:
            raise RuntimeError(f"{' '.join(command)} failed")
        printed.seek(0)
        result = json.load(printed)
    tokens = len(json.loads((folder / "tokenizer.json").read_text("utf-8"))["model"]["vocab"])
    return {
        "vocabulary": result["vocabulary"],
        "tokens": tokens,
        "costs": result["costs"],
        "seconds": seconds,
        "processor": usage.ru_utime + usage.ru_stime,
        "memory": usage.ru_maxrss * 1024,
        "text": text.stat().st_size,
    }


def measure(parts: Parts, text: Path, tokenizers: Path, work: Path) -> None:
    """Measure all shapes, one process each."""
    for name in SHAPES:
        folder = work / name
        parts.measured(
            f"shape {name}", lambda f=folder, n=name: carved(written(f, n, tokenizers), text, work)
        )
