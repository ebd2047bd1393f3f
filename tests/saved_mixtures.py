"""Tiny mixtures on the disk, biases of their routers among what is random."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from tiny_families import random_model
from transformers import AutoModelForCausalLM

from zerolm.checkpoints import Checkpoint
from zerolm.networks.opener import open_model


def mixture(folder: Path, kind: str, dtype: str = "float32", **changes: Any) -> Path:
    """Return the folder with a tiny mixture; what routers add to choose by alone is random as well."""
    network, generator = random_model(kind, dtype, **changes), torch.Generator().manual_seed(1)
    for name, buffer in network.named_buffers():
        if name.endswith("bias"):
            buffer.copy_(torch.randn(buffer.shape, generator=generator) * 0.3)
    network.save_pretrained(folder)
    return folder


@torch.no_grad()
def louder(folder: Path) -> Path:
    """Return the folder of a mixture with experts that matter: they send 30 times as much."""
    network = open_model(Checkpoint.open(folder))
    for name, weight in network.named_parameters():
        if name.endswith("down_proj"):
            weight.mul_(30.0)
    network.save_pretrained(folder)
    return folder


@torch.no_grad()
def experts_called(folder: Path, ids: torch.Tensor) -> dict[int, tuple[Any, ...]]:
    """Return by layer the stock class's module of experts, and what it is called with for these tokens."""
    model: Any = AutoModelForCausalLM.from_pretrained(folder).eval()
    seen: dict[int, tuple[Any, ...]] = {}
    for name, module in model.named_modules():
        if name.endswith(".experts") and hasattr(module, "down_proj"):
            layer = int(name.split("layers.")[1].split(".")[0])
            module.register_forward_pre_hook(lambda m, a, layer=layer: seen.update({layer: (m, *a)}))
    model(input_ids=ids, use_cache=False)
    return seen
