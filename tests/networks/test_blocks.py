"""A model called layer by layer computes what it computes in one go, and nothing is left behind."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from covering import chosen
from tiny import MODELS, model
from tiny_families import AS_E2B, PLAIN_GEMMA4, SHARING, TINY, random_model
from torch import Tensor

from zerolm.networks.blocks import Blocks
from zerolm.networks.hooks import watching
from zerolm.networks.roles import layer_list, layers_of


def batches(name: str) -> list[dict[str, Tensor]]:
    """Two full batches and a smaller one; encoders' last is padded."""
    generator = torch.Generator().manual_seed(1)
    found = [{"input_ids": torch.randint(64, (b, 12), generator=generator)} for b in (2, 2, 1)]
    if name.startswith("bert"):
        mask = torch.ones(1, 12, dtype=torch.int64)
        mask[0, 9:] = 0
        found[2]["attention_mask"] = mask
    return found


def left_behind(network: Any) -> list[str]:
    return [
        name
        for name, module in network.named_modules()
        if module._forward_hooks or module._forward_pre_hooks or "forward" in module.__dict__
    ]


@pytest.mark.parametrize("name", MODELS)
def test_layer_by_layer_equals_the_model(name: str) -> None:
    network, inputs = model(name), batches(name)
    blocks = Blocks(network, inputs)
    for index, batch in enumerate(inputs):
        hidden = blocks.embed(index)
        for layer in range(3):
            hidden = blocks.call(index, layer, hidden)
        with torch.no_grad():
            wanted = network(**batch, use_cache=False)
        assert torch.allclose(blocks.finish(index, hidden)[0], wanted[0], atol=1e-5)
    assert not left_behind(network)


OF_GEMMA4: dict[str, dict[str, Any]] = {
    "gemma4_text with inputs of layers": PLAIN_GEMMA4 | {"hidden_size_per_layer_input": 8},
    SHARING: AS_E2B,
}


@pytest.mark.parametrize("kind", [*chosen(TINY), *OF_GEMMA4])
def test_each_batch_gets_what_its_tokens_say(kind: str) -> None:
    """Of all families: what a model hands to its layers may depend on the tokens of a batch."""
    more: dict[str, Any] = {}
    if kind not in TINY:
        kind, more = "gemma4_text", OF_GEMMA4[kind]
    network = random_model(kind, **more)
    inputs = batches(kind)[:2]
    blocks = Blocks(network, inputs)
    states = [blocks.embed(index) for index in range(len(inputs))]
    for layer in range(len(layer_list(network))):
        states = [blocks.call(index, layer, hidden) for index, hidden in enumerate(states)]
    for index, batch in enumerate(inputs):
        with torch.no_grad():
            wanted = network(**batch, use_cache=False)[0]
        sent = blocks.finish(index, states[index])[0]
        assert (sent - wanted).abs().max() <= 1e-4 * wanted.abs().max()


def test_calls_do_not_depend_on_the_order_of_batches() -> None:
    network, inputs = model("mistral"), batches("mistral")
    hidden = Blocks(network, inputs).embed(2)
    assert torch.equal(
        Blocks(network, inputs).call(2, 1, hidden), Blocks(network, inputs[2:]).call(0, 1, hidden)
    )


def test_watching_sees_inputs_and_outputs_and_may_end_early() -> None:
    network, inputs = model("gpt2"), batches("gpt2")
    layer, blocks = layers_of(network)[0], Blocks(network, inputs)
    hidden = blocks.embed(0)
    with watching({"o": layer.writers["o"], "down": layer.ffn_out}) as seen:
        after = blocks.call(0, 0, hidden)
    assert torch.allclose(hidden + seen.outputs["o"] + seen.outputs["down"], after, atol=1e-5)
    with watching({"o": layer.writers["o"], "down": layer.ffn_out}, until="o") as short:
        blocks.call(0, 0, hidden)
        pytest.fail("the layer ran to its end")
    assert torch.equal(short.inputs["o"], seen.inputs["o"])
    assert set(short.outputs) == set()
    assert not left_behind(network)


def test_a_failing_pass_leaves_no_hook() -> None:
    network, inputs = model("llama"), batches("llama")
    layer, blocks = layers_of(network)[1], Blocks(network, inputs)
    with pytest.raises(RuntimeError), watching({"o": layer.writers["o"]}):
        blocks.call(0, 1, torch.zeros(2, 12, 7))
    assert not left_behind(network)
    network.base_model.rotary_emb.forward = None
    with pytest.raises(TypeError):
        blocks.embed(0)
    del network.base_model.rotary_emb.forward
    assert not left_behind(network)
