"""Weights of tokens: relative to the stream, and to outputs behind norms; massive first tokens count more."""

from __future__ import annotations

import pytest
import torch
from tiny import model

from zerolm.carving.token_weights import MASSIVE, token_weights
from zerolm.networks.blocks import Blocks
from zerolm.networks.roles import layers_of


def states(rows: int = 3, length: int = 7, first: float = 1.0) -> torch.Tensor:
    """A stream (b, t, d) whose first tokens are larger by a factor."""
    stream = torch.randn(rows, length, 32, generator=torch.Generator().manual_seed(0))
    stream[:, 0] *= first
    return stream


def blocks_of(name: str, mask: torch.Tensor | None = None) -> Blocks:
    batch = {"input_ids": torch.ones(3, 7, dtype=torch.long)}
    return Blocks(model(name), [batch if mask is None else batch | {"attention_mask": mask}])


@pytest.mark.parametrize("name", ["llama", "gemma2", "bert"])
def test_errors_count_relative_to_what_norms_divide_by(name: str) -> None:
    blocks, stream, output = blocks_of(name), states(first=3.0), states() + 1
    layer = layers_of(blocks.model)[0]
    scale = stream.square().mean(-1)
    if name == "gemma2":
        scale = scale * output.square().mean(-1)
    torch.testing.assert_close(token_weights(blocks, 0, layer, stream, output), 1 / scale)


@pytest.mark.parametrize("name", ["llama", "gemma2"])
def test_a_massive_first_token_counts_as_all_others_of_its_window(name: str) -> None:
    blocks, stream = blocks_of(name), states()
    stream[1, 0] *= 3 * MASSIVE**0.5  # one window has one, the others do not
    weights = token_weights(blocks, 0, layers_of(blocks.model)[0], stream, None)
    assert weights[1, 0] == pytest.approx(float(weights[1, 1:].sum()))
    torch.testing.assert_close(weights[[0, 2], 0], 1 / stream[[0, 2], 0].square().mean(-1))


def test_encoders_and_padding_have_no_such_token() -> None:
    stream = states(first=1e3)
    encoder = blocks_of("bert")
    weights = token_weights(encoder, 0, layers_of(encoder.model)[0], stream, None)
    torch.testing.assert_close(weights, 1 / stream.square().mean(-1))
    mask = torch.ones(3, 7, dtype=torch.long)
    mask[:, 0] = 0
    decoder = blocks_of("llama", mask)
    weights = token_weights(decoder, 0, layers_of(decoder.model)[0], stream, None)
    assert not weights[:, 0].any()
