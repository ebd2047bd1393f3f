"""The role map finds the same parts in every family, and linear modules can be read and cut alike."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from tiny import MODELS, model
from torch import nn
from transformers import BloomConfig, BloomModel
from transformers.pytorch_utils import Conv1D

from zerolm.networks.roles import bias, keep_along, layers_of, matrix, set_matrix


def heads_width(config: Any) -> int:
    heads = int(config.num_attention_heads)
    return heads * (getattr(config, "head_dim", None) or config.hidden_size // heads)


@pytest.mark.parametrize("name", MODELS)
def test_every_layer_reads_and_writes_the_residual_stream(name: str) -> None:
    network = model(name)
    hidden = network.config.hidden_size
    layers = layers_of(network)
    assert len(layers) == 3
    for layer in layers:
        ins = [matrix(module) for module in layer.attention_in + layer.ffn_in]
        assert {x.shape[1] for x in ins} == {hidden}
        assert matrix(layer.writers["o"]).shape[0] == matrix(layer.ffn_out).shape[0] == hidden
        assert matrix(layer.writers["o"]).shape[1] == heads_width(network.config)
        assert {matrix(module).shape[0] for module in layer.ffn_in} == {matrix(layer.ffn_out).shape[1]}


def test_an_unknown_family_says_which_are_known() -> None:
    network = BloomModel(BloomConfig(hidden_size=8, n_head=2, n_layer=1, vocab_size=10))
    with pytest.raises(ValueError, match=r"'bloom' is refused: its ALiBi slopes"):
        layers_of(network)


@pytest.mark.parametrize("module", [nn.Linear(5, 4), nn.Linear(5, 4, bias=False), Conv1D(4, 5)])
def test_a_cut_module_computes_the_kept_part(module: nn.Module) -> None:
    x = torch.randn(3, 5)
    set_matrix(module, torch.randn(4, 5), None if bias(module) is None else torch.randn(4))
    before, columns = module(x), matrix(module)
    outputs = 1 if isinstance(module, Conv1D) else 0
    keep_along(module, "weight", outputs, [0, 2])
    if bias(module) is not None:
        keep_along(module, "bias", 0, [0, 2])
    assert torch.allclose(module(x), before[:, [0, 2]], atol=1e-6)
    keep_along(module, "weight", 1 - outputs, [1, 3, 4])
    offset = bias(module)
    wanted = x[:, [1, 3, 4]] @ columns[[0, 2]][:, [1, 3, 4]].T + (0 if offset is None else offset)
    assert torch.allclose(module(x[:, [1, 3, 4]]), wanted, atol=1e-6)
    assert "3" in repr(module)
