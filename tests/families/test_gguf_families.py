"""Families that a document says are written as GGUF: llama.cpp computes what the carved parent does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tiny import logits_of
from tiny_families import TINY, saved

from zerolm.carving.kept_units import Cut, dimensions
from zerolm.carving.pruning import apply_in_memory
from zerolm.checkpoints import Checkpoint
from zerolm.families.known import families
from zerolm.networks.opener import open_model

pytest.importorskip("gguf", reason="gguf is not installed")
pytest.importorskip("llama_cpp", reason="llama-cpp-python is not installed")

from zerolm.carving.export.child_tensors import Child
from zerolm.carving.export.gguf.check import check
from zerolm.carving.export.gguf.network import network_in
from zerolm.carving.export.gguf.write import write

WRITTEN = [name for name, family in families().items() if family.gguf is not None and name in TINY]
PLAIN: dict[str, Any] = {
    "attention_bias": False, "mlp_bias": False, "use_bias": False, "bias": False, "qkv_bias": False,
    "sliding_window": 64, "layer_types": None, "max_position_embeddings": 32,
}  # fmt: skip
"""What these architectures of llama.cpp do not have."""


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("name", WRITTEN)
def test_llama_cpp_computes_what_the_child_does(name: str, dtype: str, tmp_path: Path) -> None:
    changes = {field: value for field, value in PLAIN.items() if field in TINY[name]}
    described = families()[name].gguf
    if described is not None and described.square:
        changes["head_dim"] = TINY[name]["hidden_size"] // TINY[name]["num_attention_heads"]
    checkpoint = Checkpoint.open(saved(tmp_path / "parent", name, dtype, **changes))
    whole = dimensions(checkpoint)
    cut = Cut.of(whole, (0, 2), lambda layer: (whole.kv_heads, 24))
    file = tmp_path / "child.gguf"
    write(Child(checkpoint, cut), file)
    carved = apply_in_memory(open_model(checkpoint), cut)
    rounding = 2e-3 if dtype == "float32" else 2e-2
    assert check(file, logits_of(carved), None).relative < rounding
    assert check(file, logits_of(network_in(file, checkpoint)), None).relative < rounding


def test_the_families_of_many_are_written() -> None:
    assert {"llama", "mistral", "qwen2", "qwen3", "phi3", "gemma", "olmo2"} <= {
        name for name, family in families().items() if family.gguf
    }
