"""Tiny mixtures on the disk, biases of their routers among what is random."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from tiny_families import random_model


def mixture(folder: Path, kind: str, dtype: str = "float32", **changes: Any) -> Path:
    """Return the folder with a tiny mixture; what routers add to choose by alone is random as well."""
    network, generator = random_model(kind, dtype, **changes), torch.Generator().manual_seed(1)
    for name, buffer in network.named_buffers():
        if name.endswith("bias"):
            buffer.copy_(torch.randn(buffer.shape, generator=generator) * 0.3)
    network.save_pretrained(folder)
    return folder
