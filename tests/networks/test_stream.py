"""Hidden states on their way up are those of the whole model, and nothing is run before it is asked for."""

from __future__ import annotations

import pytest
import torch
from tiny import model
from torch import Tensor, nn

from zerolm.networks.blocks import Blocks
from zerolm.networks.stream import Stream

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


def test_nothing_runs_before_it_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    calls, call = [], Blocks.call

    def counted(blocks: Blocks, index: int, layer: int, hidden: Tensor, module: nn.Module) -> Tensor:
        calls.append((layer, index))
        return call(blocks, index, layer, hidden, module)

    monkeypatch.setattr(Blocks, "call", counted)
    stream = Stream(Blocks(model("llama"), BATCHES))
    assert not calls
    stream.before(1)
    stream.before(1)
    assert calls == [(0, 0), (0, 1)]
    stream.before(2)
    assert calls[2:] == [(1, 0), (1, 1)]


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
