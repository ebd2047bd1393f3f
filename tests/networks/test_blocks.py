"""A model called layer by layer computes what it computes in one go; its parts have their roles."""

from typing import Any

import pytest
import torch
from covering import chosen
from tiny import MODELS, model
from tiny_families import AS_E2B, PLAIN_GEMMA4, SHARING, TINY, random_model
from torch import Tensor, nn
from transformers import BloomConfig, BloomModel
from transformers.pytorch_utils import Conv1D

from zerolm.networks.blocks import Blocks
from zerolm.networks.hooks import watching
from zerolm.networks.roles import bias, keep_along, layer_list, layers_of, matrix, set_matrix
from zerolm.networks.stream import Stream


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


BATCHES = [{"input_ids": torch.arange(24).reshape(2, 12) + start} for start in (0, 30)]


@pytest.mark.parametrize("name", ["mistral", "gpt2", "bert"])
def test_states_before_a_layer_are_those_of_the_model(name: str) -> None:
    network = model(name)
    stream = Stream(Blocks(network, BATCHES))
    with torch.no_grad():
        wanted = [network(**batch, output_hidden_states=True).hidden_states for batch in BATCHES]
    for layer in (0, 2):
        for found, states in zip(stream.before(layer), wanted, strict=True):
            assert torch.allclose(found, states[layer], atol=1e-5)
    passed = list(stream.through(2, lambda layer: {"down": layer.ffn_out}))
    assert [index for index, _, _ in passed] == [0, 1]
    for (_, hidden, seen), states in zip(passed, wanted, strict=True):
        assert torch.allclose(hidden, states[2], atol=1e-5)
        assert seen.outputs["down"].shape == hidden.shape
    assert stream.before(3) is stream.hidden


def test_other_modules_may_stand_in_the_place_of_layers() -> None:
    class Doubled(nn.Module):
        def forward(self, hidden: Tensor, *_: object, **__: object) -> Tensor:
            return 2 * hidden

    blocks = Blocks(model("qwen2"), BATCHES)
    first = [hidden.clone() for hidden in Stream(blocks).before(0)]
    for found, embedded in zip(Stream(blocks, lambda layer: Doubled()).before(3), first, strict=True):
        assert torch.equal(found, 8 * embedded)


def test_an_earlier_layer_begins_again() -> None:
    stream = Stream(Blocks(model("llama"), BATCHES))
    first = [states.clone() for states in stream.before(1)]
    stream.before(3)
    assert all(torch.equal(ours, theirs) for ours, theirs in zip(stream.before(1), first, strict=True))


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
