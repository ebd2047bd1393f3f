"""Criteria with tokens against literal twins: loops over heads and neurons, on one pass of the model."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tiny import model

from zerolm.io.cache import ArrayCache
from zerolm.networks.hooks import watching
from zerolm.networks.roles import bias, layers_of, matrix, set_matrix
from zerolm.text.tokens import Tokens, random_tokens
from zerolm.units.importance import activations
from zerolm.units.importance.token_pass import importances
from zerolm.units.pruning import dimensions_of

FAMILIES = ("llama", "llama_biased", "qwen3", "gemma2", "gpt2", "bert")
TOKENS = random_tokens(64, 5, 11, seed=2)


def padded() -> Tokens:
    mask = torch.ones_like(TOKENS.ids)
    mask[1, 4:], mask[4, 7:] = 0, 0
    return Tokens(TOKENS.ids, mask)


def forward_inputs(network: Any, layer: int, tokens: Tokens) -> tuple[np.ndarray, np.ndarray]:
    """The inputs of the output matrices in one forward pass of the whole model, (n, k) each, float64."""
    found = layers_of(network)[layer]
    (batch,) = tokens.batches(len(tokens))
    with torch.no_grad(), watching({"o": found.writers["o"], "down": found.ffn_out}) as seen:
        network.base_model(**batch)
    rows = torch.ones_like(tokens.ids).bool() if tokens.mask is None else tokens.mask.bool()
    return tuple(seen.inputs[name][rows].double().numpy() for name in ("o", "down"))  # type: ignore[return-value]


def twin_amp(o: np.ndarray, down: np.ndarray, columns: Any, *_: Any) -> tuple[list[float], list[float]]:
    heads = [np.abs(o[:, part] @ columns[0][:, part].T).sum(1).mean() for part in columns[2]]
    return heads, [np.abs(down[:, m]).mean() for m in range(down.shape[1])]


def twin_energy(
    o: np.ndarray, down: np.ndarray, columns: Any, offset: bool
) -> tuple[list[float], list[float]]:
    if offset:
        o, down = o - o.mean(0), down - down.mean(0)
    heads = [np.square(o[:, part] @ columns[0][:, part].T).sum(1).mean() for part in columns[2]]
    sent = [np.square(np.outer(down[:, m], columns[1][:, m])).sum(1).mean() for m in range(down.shape[1])]
    return heads, sent


TWINS: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "amp": (twin_amp, np.mean),
    "output_energy": (twin_energy, np.sum),
}


@pytest.mark.parametrize("criterion", TWINS)
@pytest.mark.parametrize("name", FAMILIES)
@pytest.mark.parametrize("tokens", [TOKENS, padded()], ids=["full", "padded"])
def test_importance_equals_its_literal_twin(name: str, criterion: str, tokens: Tokens) -> None:
    network = model(name)
    sizes, (twin, of_group) = dimensions_of(network), TWINS[criterion]
    found = importances(network, tokens, criterion, batch=2)
    for number, layer in enumerate(layers_of(network)):
        o, down = forward_inputs(network, number, tokens)
        parts = [slice(h * sizes.head_size, (h + 1) * sizes.head_size) for h in range(sizes.heads)]
        columns = [matrix(m).double().numpy() for m in (layer.writers["o"], layer.ffn_out)]
        heads, neurons = twin(o, down, [*columns, parts], bias(layer.ffn_out) is not None)
        per = sizes.heads_per_group
        groups = [of_group(heads[g * per : (g + 1) * per]) for g in range(sizes.kv_heads)]
        np.testing.assert_allclose(found["groups"][number], groups, rtol=1e-4)
        np.testing.assert_allclose(found["ffn"][number], neurons, rtol=1e-4, atol=1e-9)


@pytest.mark.parametrize("criterion", TWINS)
def test_a_head_that_sends_nothing_is_worth_nothing(criterion: str) -> None:
    network = model("llama")
    layer, sizes = layers_of(network)[1], dimensions_of(network)
    columns = matrix(layer.writers["o"]).clone()
    columns[:, : sizes.heads_per_group * sizes.head_size] = 0.0
    set_matrix(layer.writers["o"], columns, None)
    groups = importances(network, TOKENS, criterion)["groups"][1]
    assert groups[0] == 0.0
    assert groups[1] > 0.0


@pytest.mark.parametrize("criterion", TWINS)
def test_what_was_measured_before_a_stop_is_not_measured_again(
    criterion: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    network, kept, added = model("gpt2"), ArrayCache(tmp_path), []
    wanted = importances(network, TOKENS, criterion)

    name = "Amp" if criterion == "amp" else "OutputEnergy"

    class Counted(getattr(activations, name)):  # type: ignore[misc]
        def add(self, inputs: dict[str, torch.Tensor], weights: dict[str, torch.Tensor]) -> None:
            added.append(len(inputs["o"]))
            super().add(inputs, weights)

    def stop(text: str, done: int, of: int) -> None:
        if done == 1:
            raise KeyboardInterrupt

    monkeypatch.setattr(activations, name, Counted)
    with pytest.raises(KeyboardInterrupt):
        importances(network, TOKENS, criterion, cache=kept, progress=stop)
    assert added == [55]
    for batches in (3, 3):  # the two layers that were left, then none
        found = importances(network, TOKENS, criterion, cache=kept)
        assert len(added) == batches
        for kind, layers in wanted.items():
            assert all(np.array_equal(x, y) for x, y in zip(found[kind], layers, strict=True))
