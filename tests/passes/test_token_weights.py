"""Weights of tokens: relative to the stream, and to outputs behind norms; of first tokens by gradients."""

from __future__ import annotations

import pytest
import torch
from tiny import model

from tests.units.test_activations import TOKENS
from zerolm.networks.blocks import Blocks
from zerolm.networks.hooks import watching
from zerolm.networks.roles import layers_of
from zerolm.passes.loss_moments import loss_moments
from zerolm.passes.token_weights import token_weights


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


def test_a_first_token_weighs_as_its_gradients_do() -> None:
    mask = torch.ones(3, 7, dtype=torch.long)
    mask[1, 5:] = 0
    mask[2, 0] = 0
    blocks, stream = blocks_of("llama", mask), states(first=1e3)
    weights = token_weights(blocks, 0, layers_of(blocks.model)[0], stream, None, first=40.0)
    plain = mask / stream.square().mean(-1)
    torch.testing.assert_close(weights[:, 1:], plain[:, 1:])
    assert weights[0, 0] == pytest.approx(40 * float(plain[0, 1:].mean()))
    assert weights[1, 0] == pytest.approx(40 * float(plain[1, 1:5].mean()))
    assert weights[2, 0] == 0.0  # padding


def test_the_ratio_is_that_of_autograd() -> None:
    """Squared gradients of first tokens and of the others, with the draws of the pass."""
    network = model("llama")
    felt = loss_moments(network, TOKENS).fisher
    layers = layers_of(network)
    squares = torch.zeros(len(layers), 2, 2, dtype=torch.float64)  # (layers, roles, first and others)
    for index, batch in enumerate(TOKENS.batches(2)):
        modules = {f"{n} {r}": m for n, each in enumerate(layers)
                   for r, m in enumerate((each.writers["o"], each.ffn_out))}  # fmt: skip
        with watching(modules) as seen:
            vectors = network.get_input_embeddings()(batch["input_ids"]).detach().requires_grad_()
            logits = network(inputs_embeds=vectors).logits
        log = torch.log_softmax(logits, -1).flatten(0, 1)
        generator = torch.Generator().manual_seed(index)
        choice = torch.multinomial(log.detach().exp(), 1, generator=generator)
        gradients = torch.autograd.grad(-log.gather(1, choice).sum(), list(seen.outputs.values()))
        for name, gradient in zip(seen.outputs, gradients, strict=True):
            layer, role = map(int, name.split())
            each = gradient.double().square().sum(-1)
            squares[layer, role] += torch.stack([each[:, 0].sum(), each[:, 1:].sum()])
    length = TOKENS.ids.shape[1]
    wanted = squares[..., 0] / (squares[..., 1] / (length - 1))
    assert felt.first is not None
    torch.testing.assert_close(torch.from_numpy(felt.first), wanted, rtol=1e-3, atol=1e-6)
    assert felt.first_token(1, "down") == pytest.approx(float(wanted[1, 1]), rel=1e-3)
    assert loss_moments(model("bert"), TOKENS).fisher.first is None
