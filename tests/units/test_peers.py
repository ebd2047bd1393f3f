"""Criteria of published methods against literal twins: loops over tokens, on one pass of a tiny model."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tiny import model, saved

from zerolm.checkpoints import Checkpoint, ledger_of
from zerolm.networks.hooks import watching
from zerolm.networks.roles import layers_of, matrix
from zerolm.text.tokens import Tokens, random_tokens
from zerolm.units.importance.criteria import criterion_of
from zerolm.units.importance.peers import CommonActivations
from zerolm.units.importance.token_pass import importances
from zerolm.units.kept_units import dimensions
from zerolm.units.pruning import dimensions_of

FULL = random_tokens(64, 5, 11, seed=2)
Sequences = Sequence[np.ndarray]
"""Of each sequence the inputs of an output matrix, (t, k)."""


def padded() -> Tokens:
    mask = torch.ones_like(FULL.ids)
    mask[1, 4:], mask[4, 7:] = 0, 0
    return Tokens(FULL.ids, mask)


def inputs_of(network: Any, layer: int, tokens: Tokens) -> tuple[Sequences, Sequences]:
    """The inputs of both output matrices, sequence after sequence, without padding."""
    writers = layers_of(network)[layer].writers
    (batch,) = tokens.batches(len(tokens))
    with torch.no_grad(), watching(writers) as seen:
        network.base_model(**batch)
    masks = torch.ones_like(tokens.ids).bool() if tokens.mask is None else tokens.mask.bool()
    o, down = (
        [x[mask].double().numpy() for x, mask in zip(seen.inputs[role], masks, strict=True)]
        for role in ("o", "down")
    )
    return o, down


def compact(sequences: Sequences, columns: np.ndarray, units: Sequence[range]) -> list[float]:
    tokens = [token for sequence in sequences for token in sequence]
    return [sum(token[k] ** 2 for token in tokens for k in unit) / len(tokens) for unit in units]


def two_ssp(sequences: Sequences, columns: np.ndarray, units: Sequence[range]) -> list[float]:
    norms = [
        [math.sqrt(sum(token[k] ** 2 for token in sequence for k in unit)) for sequence in sequences]
        for unit in units
    ]
    return [sum(each) / len(sequences) for each in norms]


def minitron(sequences: Sequences, columns: np.ndarray, units: Sequence[range]) -> list[float]:
    means = [
        [sum(math.sqrt(sum(token[k] ** 2 for k in unit)) for token in each) / len(each) for each in sequences]
        for unit in units
    ]
    return [math.sqrt(sum(mean**2 for mean in each)) for each in means]


def fluctuation(sequences: Sequences, columns: np.ndarray, k: int) -> float:
    values = [token[k] for sequence in sequences for token in sequence]
    mean = sum(values) / len(values)
    variance = sum((value - mean) ** 2 for value in values) / (len(values) - 1)
    return float(variance * sum(weight**2 for weight in columns[:, k]))


def flap_groups(sequences: Sequences, columns: np.ndarray, units: Sequence[range]) -> list[float]:
    return [sum(fluctuation(sequences, columns, k) ** 2 for k in unit) / len(unit) for unit in units]


def flap_neurons(sequences: Sequences, columns: np.ndarray, units: Sequence[range]) -> list[float]:
    return [fluctuation(sequences, columns, unit[0]) for unit in units]


Twin = Callable[[Sequences, np.ndarray, Sequence[range]], list[float]]
TWINS: dict[str, tuple[Twin, Twin, bool]] = {
    "compact": (compact, compact, True),
    "two_ssp": (two_ssp, two_ssp, True),
    "minitron": (minitron, minitron, False),
    "flap": (flap_groups, flap_neurons, True),
}
"""The twins of KV groups and of neurons, and whether a group is one unit; else it is a sum over its heads."""


def ranges(count: int, size: int) -> list[range]:
    return [range(size * unit, size * (unit + 1)) for unit in range(count)]


@pytest.mark.parametrize("criterion", TWINS)
@pytest.mark.parametrize("name", ["llama", "qwen3", "gemma2", "gpt2", "bert"])
@pytest.mark.parametrize("tokens", [FULL, padded()], ids=["full", "padded"])
def test_importance_equals_its_literal_twin(name: str, criterion: str, tokens: Tokens) -> None:
    network = model(name)
    sizes, (of_groups, of_neurons, by_group) = dimensions_of(network), TWINS[criterion]
    scores = importances(network, tokens, criterion, batch=2)
    for number, layer in enumerate(layers_of(network)):
        o, down = inputs_of(network, number, tokens)
        columns = [matrix(m).double().numpy() for m in layer.writers.values()]
        per = sizes.heads_per_group
        if by_group:
            groups = of_groups(o, columns[0], ranges(sizes.kv_heads, per * sizes.head_size))
        else:
            heads = of_groups(o, columns[0], ranges(sizes.heads, sizes.head_size))
            groups = [sum(heads[per * group : per * (group + 1)]) for group in range(sizes.kv_heads)]
        np.testing.assert_allclose(scores["groups"][number], groups, rtol=1e-4)
        neurons = of_neurons(down, columns[1], ranges(sizes.ffn, 1))
        np.testing.assert_allclose(scores["ffn"][number], neurons, rtol=1e-4, atol=1e-9)


def test_tokens_that_left_the_vocabulary_weigh_nothing() -> None:
    network = model("llama")
    sizes, layer = dimensions_of(network), layers_of(network)[1]
    inputs = {"o": torch.randn(9, 48), "down": torch.randn(9, 40)}
    counted = torch.tensor([1.0, 0, 1, 1, 0, 0, 1, 1, 1])
    weighed, alone = CommonActivations(sizes, layer), CommonActivations(sizes, layer)
    weighed.add(inputs, {}, counted)
    alone.add({role: x[counted > 0] for role, x in inputs.items()}, {})
    for role, wanted in alone.importance().items():
        np.testing.assert_allclose(weighed.importance()[role], wanted, rtol=1e-6)


@pytest.mark.parametrize("name", ["llama", "gpt2", "bert"])
def test_capacity_chooses_neurons_as_the_group_norm_does(name: str, tmp_path: Path) -> None:
    """The group norm of Torch-Pruning, p = 2: squares of a neuron's rows and columns, mean over matrices."""
    checkpoint = Checkpoint.open(saved(tmp_path / name, name))
    criterion = criterion_of("capacity", checkpoint, ledger_of(checkpoint))
    for number, layer in enumerate(layers_of(model(name))):
        norms = [matrix(module).double().square().sum(1) for module in layer.ffn_in]
        norms.append(matrix(layer.writers["down"]).double().square().sum(0))
        order = torch.stack(norms).mean(0).argsort(descending=True)
        for count in (1, 7, dimensions(checkpoint).ffn // 2):
            assert criterion.choose(number, "ffn", count).tolist() == sorted(order[:count].tolist())
