"""A mapped parent tells the same as one in memory, and is never in memory as a whole."""

from pathlib import Path

import numpy as np
import pytest
import torch
from tiny import saved

from zerolm.carving.loss import Loss
from zerolm.checkpoints import Checkpoint
from zerolm.networks.blocks import Blocks
from zerolm.networks.opener import mapped_model, open_model
from zerolm.repairing.walk import repair
from zerolm.text.tokens import Tokens, random_tokens
from zerolm.units.importance.token_pass import importances
from zerolm.units.kept_units import Cut, LayerCut
from zerolm.units.pruning import dimensions_of


def tokens_for(name: str) -> Tokens:
    """Twelve sequences; an encoder's are padded."""
    ids = random_tokens(64, 12, 12, seed=3).ids
    mask = torch.ones_like(ids)
    mask[1, 5:] = mask[4, 9:] = 0
    return Tokens(ids, mask if name.startswith("bert") else None)


def same(found: list[np.ndarray], wanted: list[np.ndarray]) -> None:
    for ours, theirs in zip(found, wanted, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-7 * np.abs(theirs).max())


@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
@pytest.mark.parametrize("name", ["llama_tied", "qwen3", "gemma2", "gpt2", "bert_untied"])
def test_mapped_or_in_memory_all_is_the_same(name: str, dtype: str, tmp_path: Path) -> None:
    checkpoint = Checkpoint.open(saved(tmp_path, name, dtype=dtype, shard="20KB"))
    both, tokens = (mapped_model(checkpoint), open_model(checkpoint)), tokens_for(name)
    ours, theirs = (importances(model, tokens, batch=4) for model in both)
    for kind in ours:
        same(ours[kind], theirs[kind])
    sizes = dimensions_of(both[0])
    assert sizes == dimensions_of(both[1])
    groups, ffn = np.arange(0, sizes.kv_heads, 2), np.arange(0, sizes.ffn, 3)
    cut = Cut(sizes, (LayerCut.of(0, groups, ffn), LayerCut.of(2, groups, ffn)))
    losses = (Loss(Blocks(model, tokens.batches(4))) for model in both)
    same(*([np.array([each.of_cut(cut), *each.without(range(3)).values()])] for each in losses))
    first, second = (repair(model, cut, tokens) for model in both)
    assert not first.note
    assert first.ridges == second.ridges
    same(list(first.arrays.values()), list(second.arrays.values()))


@pytest.mark.parametrize("name", ["llama", "bert"])
def test_weights_stay_in_their_file(name: str, tmp_path: Path) -> None:
    """The mapped model shows what the file holds later on; the parts that are computed with do not."""
    file = saved(tmp_path, name, dtype="bfloat16") / "model.safetensors"
    checkpoint = Checkpoint.open(tmp_path)
    model = mapped_model(checkpoint)
    assert all(parameter.dtype == torch.bfloat16 for parameter in model.parameters())
    blocks = Blocks(model, tokens_for(name).batches(6))
    part = blocks.layer(0)
    assert blocks.layer(0).module is part.module
    before = [parameter.clone() for parameter in part.module.parameters()]
    with file.open("r+b") as opened:
        start = min(tensor.start for tensor in checkpoint.tensors.values())
        opened.seek(start)
        opened.write(bytes(file.stat().st_size - start))
    assert not any(parameter.any() for parameter in model.parameters())
    assert all(map(torch.equal, part.module.parameters(), before))
    assert all(parameter.dtype == torch.float32 for parameter in part.module.parameters())
    assert blocks.layer(1).module is not part.module
    assert blocks.layer(0).module is not part.module
