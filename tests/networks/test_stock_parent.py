"""The stock model of a folder, loaded layer by layer, is the one that ``from_pretrained`` loads."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from tiny_families import random_model, saved

from zerolm.checkpoints import Checkpoint
from zerolm.children.verify import outputs
from zerolm.networks.opener import load_model
from zerolm.networks.stock_parent import StockParent, layer_number

KINDS = ("llama", "gemma2", "gemma4_text", "gpt2", "bert", "deepseek_v3", "qwen3_moe", "falcon_h1", "gpt_oss")


@pytest.mark.parametrize("kind", KINDS)
def test_layer_by_layer_as_from_pretrained(kind: str, tmp_path: Path) -> None:
    random_model(kind, "bfloat16").save_pretrained(tmp_path, max_shard_size="20KB")
    checkpoint = Checkpoint.open(tmp_path)
    ids = torch.randint(2, checkpoint.layout.vocab, (2, 20), generator=torch.Generator().manual_seed(0))
    *states, out = StockParent(checkpoint, {"input_ids": ids}).states()
    assert len(states) == checkpoint.layout.depth + 1
    with torch.no_grad():
        wanted = load_model(tmp_path, checkpoint.family.task == "next")(input_ids=ids)
    torch.testing.assert_close(outputs(out), outputs(wanted), rtol=0, atol=0)


def test_a_weight_that_transformers_does_not_find_is_named(tmp_path: Path) -> None:
    checkpoint = Checkpoint.open(saved(tmp_path, "llama"))
    parent = StockParent(checkpoint, {"input_ids": torch.zeros(1, 4, dtype=torch.long)})
    load = parent._load

    def lossy(tensors: dict[str, object]) -> set[str]:
        return load({name: x for name, x in tensors.items() if "layers.1.mlp.down_proj" not in name})

    parent._load = lossy  # type: ignore[method-assign, assignment]
    with pytest.raises(ValueError, match=r"transformers finds no 'layers\.1\.mlp\.down_proj\.weight'"):
        list(parent.states())


@pytest.mark.parametrize(
    ("name", "number"),
    [
        ("model.layers.12.mlp.experts.3.up_proj.weight", 12),
        ("transformer.h.0.ln_1.bias", 0),
        ("lm_head.weight", None),
    ],
)
def test_the_number_of_a_layer(name: str, number: int | None) -> None:
    assert layer_number(name) == number
