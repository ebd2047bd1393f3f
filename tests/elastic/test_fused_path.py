"""Heads that repeat each other, fused or cut out of a path."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from zerolm.elastic.fused_path import FUSIONS, Fusion, attentions, fused, similarities
from zerolm.networks.build import build
from zerolm.networks.modules.layer import Stack
from zerolm.spaces import SearchSpace, make_space

SIZES: dict[str, Any] = {
    "depth": 3, "hidden": 32, "heads": 4, "embedding": 8, "vocab": 40, "positions": 16, "step": 8,
}  # fmt: skip


def path(name: str) -> tuple[SearchSpace, Any, Stack]:
    space = make_space(name, **SIZES)
    third = "llama" if name == "elastic-causal" else "bert"
    layers = [("bert", "kv", 8), ("mobile", "qv", 16), (third, "qk", 24)]
    architecture = space.read({"layers": [{"block": b, "share": s, "ffn": f} for b, s, f in layers]})
    module = build(architecture, seed=1).module
    assert isinstance(module, Stack)
    return space, architecture, module


def repeat_heads(stack: Stack, of: int, by: int) -> None:
    """Make one head of every layer say what another says."""
    with torch.no_grad():
        for part in attentions(stack):
            size = part.o.in_features // part.heads
            for name in dict.fromkeys(part.uses):
                for parameter in part.get_submodule(name).parameters():
                    parameter[by * size : (by + 1) * size] = parameter[of * size : (of + 1) * size]


@pytest.mark.parametrize("name", ["elastic", "elastic-causal"])
@pytest.mark.parametrize("unbiased", [False, True])
def test_heads_that_repeat_another_are_known(name: str, unbiased: bool) -> None:
    _, _, stack = path(name)
    repeat_heads(stack, 0, 2)
    for alike in similarities(stack, torch.randint(0, 40, (12, 8)), unbiased):
        assert alike[0, 2] == pytest.approx(1.0, abs=1e-6)
        assert alike.shape == (4, 4)


@pytest.mark.parametrize("name", ["elastic", "elastic-causal"])
@pytest.mark.parametrize("mode", FUSIONS)
def test_no_fusion_where_no_head_repeats_another(name: str, mode: Fusion) -> None:
    space, architecture, stack = path(name)
    ids = torch.randint(0, 40, (2, 8))
    made, same = fused(space, architecture, stack, [torch.eye(4)] * 3, mode)
    assert [layer["heads"] for layer in made.choices["layers"]] == [4, 4, 4]
    assert torch.equal(same.train(False)(ids), stack(ids))


@pytest.mark.parametrize("name", ["elastic", "elastic-causal"])
def test_fusing_keeps_every_weight_and_the_width(name: str) -> None:
    space, architecture, stack = path(name)
    alike = torch.eye(4)
    alike[0, 2] = alike[2, 0] = alike[1, 3] = alike[3, 1] = 0.95
    made, smaller = fused(space, architecture, stack, [alike] * 3, "fuse")
    assert [layer["heads"] for layer in made.choices["layers"]] == [2, 2, 2]
    assert [layer.query_width for layer in made.layers] == [
        layer.query_width for layer in architecture.layers
    ]
    ours, theirs = smaller.state_dict(), stack.state_dict()
    assert set(ours) == set(theirs)
    assert all(torch.equal(ours[key], theirs[key]) for key in theirs)


@pytest.mark.parametrize("name", ["elastic", "elastic-causal"])
def test_removing_a_head_that_says_nothing_changes_nothing(name: str) -> None:
    space, architecture, stack = path(name)
    with torch.no_grad():
        for part in attentions(stack):
            size = part.o.in_features // part.heads
            part.o.weight[:, 2 * size : 3 * size] = 0
    alike = torch.eye(4)
    alike[0, 2] = alike[2, 0] = 1.0
    made, smaller = fused(space, architecture, stack, [alike] * 3, "remove")
    assert [layer["heads"] for layer in made.choices["layers"]] == [3, 3, 3]
    ids = torch.randint(0, 40, (2, 8))
    assert torch.allclose(smaller.train(False)(ids), stack(ids), atol=1e-6)
    params = sum(parameter.numel() for parameter in smaller.parameters())
    assert params < sum(parameter.numel() for parameter in stack.parameters())


def test_rotated_heads_keep_an_even_size() -> None:
    """Two heads of 15 channels cannot be rotated, one of 30 can."""
    space = make_space("elastic-causal", **SIZES | {"hidden": 30, "heads": 5, "blocks": ["llama"]})
    architecture = space.read({"layers": [{"block": "llama", "share": "none", "ffn": 8}]})
    stack = build(architecture).module
    assert isinstance(stack, Stack)
    alike = torch.eye(5)
    alike[0, 2:] = 1.0
    made, _ = fused(space, architecture, stack, [alike], "fuse")
    assert made.choices["layers"][0]["heads"] == 1
