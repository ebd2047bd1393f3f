"""Criteria with tokens against literal twins: loops over heads, neurons and tokens; those of plug-ins."""

import importlib.metadata
import json
import math
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tiny import model, saved

from zerolm.networks.hooks import watching
from zerolm.networks.roles import bias, layers_of, matrix, set_matrix
from zerolm.registry import Entry, Registry
from zerolm.text.tokens import Tokens, random_tokens
from zerolm.units.importance import criteria
from zerolm.units.importance.criterion import Additive
from zerolm.units.importance.token_pass import importances
from zerolm.units.pruning import dimensions_of

FAMILIES = ("llama", "llama_biased", "qwen3", "gemma2", "gpt2", "bert")
TOKENS = random_tokens(64, 5, 11, seed=2)
Sequences = Sequence[np.ndarray]
"""Of each sequence the inputs of an output matrix, (t, k)."""


def padded() -> Tokens:
    mask = torch.ones_like(TOKENS.ids)
    mask[1, 4:], mask[4, 7:] = 0, 0
    return Tokens(TOKENS.ids, mask)


def inputs_by_sequence(network: Any, layer: int, tokens: Tokens) -> tuple[Sequences, Sequences]:
    """The inputs of both output matrices in one forward pass of the whole model, without padding."""
    parts = layers_of(network)[layer]
    (batch,) = tokens.batches(len(tokens))
    with torch.no_grad(), watching({"o": parts.writers["o"], "down": parts.ffn_out}) as seen:
        network.base_model(**batch)
    masks = torch.ones_like(tokens.ids).bool() if tokens.mask is None else tokens.mask.bool()
    o, down = (
        [x[mask].double().numpy() for x, mask in zip(seen.inputs[role], masks, strict=True)]
        for role in ("o", "down")
    )
    return o, down


def amp(sequences: Sequences, columns: np.ndarray, units: Sequence[range], _: bool) -> list[float]:
    x = np.concatenate(sequences)
    return [np.abs(x[:, unit] @ columns[:, unit].T).sum(1).mean() for unit in units]


def amp_of_neurons(sequences: Sequences, _: np.ndarray, units: Sequence[range], __: bool) -> list[float]:
    x = np.concatenate(sequences)
    return [np.abs(x[:, unit]).mean() for unit in units]


def energy(sequences: Sequences, columns: np.ndarray, units: Sequence[range], offset: bool) -> list[float]:
    """Of what varies, where a bias makes up for the mean."""
    x = np.concatenate(sequences)
    x = x - x.mean(0) if offset else x
    return [np.square(x[:, unit] @ columns[:, unit].T).sum(1).mean() for unit in units]


def compact(sequences: Sequences, _: np.ndarray, units: Sequence[range], __: bool) -> list[float]:
    tokens = [token for sequence in sequences for token in sequence]
    return [sum(token[k] ** 2 for token in tokens for k in unit) / len(tokens) for unit in units]


def two_ssp(sequences: Sequences, _: np.ndarray, units: Sequence[range], __: bool) -> list[float]:
    norms = [[math.sqrt(sum(t[k] ** 2 for t in s for k in unit)) for s in sequences] for unit in units]
    return [sum(each) / len(sequences) for each in norms]


def minitron(sequences: Sequences, _: np.ndarray, units: Sequence[range], __: bool) -> list[float]:
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


def flap_groups(sequences: Sequences, columns: np.ndarray, units: Sequence[range], _: bool) -> list[float]:
    return [sum(fluctuation(sequences, columns, k) ** 2 for k in unit) / len(unit) for unit in units]


def flap_neurons(sequences: Sequences, columns: np.ndarray, units: Sequence[range], _: bool) -> list[float]:
    return [fluctuation(sequences, columns, unit[0]) for unit in units]


Twin = Callable[[Sequences, np.ndarray, Sequence[range], bool], list[float]]
TWINS: dict[str, tuple[Twin, Twin, Callable[..., Any] | None]] = {
    "amp": (amp, amp_of_neurons, np.mean), "output_energy": (energy, energy, np.sum),
    "compact": (compact, compact, None), "two_ssp": (two_ssp, two_ssp, None),
    "minitron": (minitron, minitron, np.sum), "flap": (flap_groups, flap_neurons, None),
}  # fmt: skip
"""The twins of KV groups and of neurons, and what a group is of its heads; None where it is one unit."""


def ranges(count: int, size: int) -> list[range]:
    return [range(size * unit, size * (unit + 1)) for unit in range(count)]


@pytest.mark.parametrize("criterion", TWINS)
@pytest.mark.parametrize("name", FAMILIES)
@pytest.mark.parametrize("tokens", [TOKENS, padded()], ids=["full", "padded"])
def test_importance_equals_its_literal_twin(name: str, criterion: str, tokens: Tokens) -> None:
    network = model(name)
    sizes, (of_groups, of_neurons, of_heads) = dimensions_of(network), TWINS[criterion]
    scores, per = importances(network, tokens, criterion, batch=2), sizes.heads_per_group
    for number, layer in enumerate(layers_of(network)):
        o, down = inputs_by_sequence(network, number, tokens)
        columns = [matrix(m).double().numpy() for m in (layer.writers["o"], layer.ffn_out)]
        offset = bias(layer.ffn_out) is not None
        if of_heads is None:
            groups = of_groups(o, columns[0], ranges(sizes.kv_heads, per * sizes.head_size), offset)
        else:
            heads = of_groups(o, columns[0], ranges(sizes.heads, sizes.head_size), offset)
            groups = [of_heads(heads[per * group : per * (group + 1)]) for group in range(sizes.kv_heads)]
        np.testing.assert_allclose(scores["groups"][number], groups, rtol=1e-4)
        neurons = of_neurons(down, columns[1], ranges(sizes.ffn, 1), offset)
        np.testing.assert_allclose(scores["ffn"][number], neurons, rtol=1e-4, atol=1e-9)


@pytest.mark.parametrize("criterion", ["amp", "output_energy"])
def test_a_head_that_sends_nothing_is_worth_nothing(criterion: str) -> None:
    network = model("llama")
    layer, sizes = layers_of(network)[1], dimensions_of(network)
    columns = matrix(layer.writers["o"]).clone()
    columns[:, : sizes.heads_per_group * sizes.head_size] = 0.0
    set_matrix(layer.writers["o"], columns, None)
    groups = importances(network, TOKENS, criterion)["groups"][1]
    assert groups[0] == 0.0
    assert groups[1] > 0.0


class Point:
    """An entry point of an installed package."""

    name, value = "last", "plugin:last"

    def load(self) -> None:
        def last(parts: Any, seed: int) -> Additive:
            worth = {kind: [np.arange(len(x[0].squares), dtype=float) for x in parts[kind]] for kind in parts}
            return Additive(worth)

        criteria.CRITERIA.add(Entry("last", last, "a plug-in"))


@pytest.fixture
def plugin(monkeypatch: pytest.MonkeyPatch) -> None:
    registry: Registry[Any] = criteria.CRITERIA
    monkeypatch.setattr(registry, "_entries", dict(registry._entries))
    monkeypatch.setattr(registry, "_is_loaded", False)

    def entry_points(group: str) -> Any:
        return [Point()] if group == "zerolm.criteria" else importlib.metadata.entry_points(group=group)

    monkeypatch.setattr("zerolm.registry.entry_points", entry_points)


@pytest.mark.usefixtures("plugin")
@pytest.mark.parametrize("more", [(), ("--text", "random", "--sequences", "4", "--length", "8")])
def test_a_criterion_of_a_plugin(
    more: tuple[str, ...], zerolm: Callable[..., Any], tmp_path: Path, own_cache: Path
) -> None:
    parent, out = saved(tmp_path / "parent", "llama"), tmp_path / "child"
    ran = zerolm("carve", str(parent), "--keep-ffn", "0.5", "--criterion", "last", *more, "--out", str(out))
    assert ran.status == 0, ran.err
    recipe = json.loads((out / "recipe.json").read_text())
    assert (recipe["criterion"], recipe["layers"][0]["ffn"]) == ("last", list(range(20, 40)))
    again = ("--recipe", str(out / "recipe.json"), "--out", str(tmp_path / "again"))
    assert zerolm("carve", str(parent), *again).status == 0
    left = {file.relative_to(own_cache).parts[0] for file in own_cache.rglob("*.npz")}
    assert left <= {"ledgers", "fingerprints"}, "what a finished repair needed is forgotten"


BROKEN: dict[str, Callable[[Any, int], Any]] = {
    "nothing": lambda shares, seed: None,
    "no number": lambda shares, seed: 1 // 0,
    "no end": lambda shares, seed: sys.exit(),
    "one kind": lambda shares, seed: Additive({"ffn": [np.ones(3)]}),
    "few units": lambda shares, seed: Additive({kind: [np.ones(1) for _ in shares[kind]] for kind in shares}),
    "no finite score": lambda shares, seed: Additive(
        {kind: [np.full(len(parts[0].squares), np.nan) for parts in shares[kind]] for kind in shares}
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", BROKEN)
def test_a_broken_criterion_of_a_plugin_is_one_line(
    case: str, zerolm: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(criteria.CRITERIA, "_entries", dict(criteria.CRITERIA._entries))
    criteria.CRITERIA.add(Entry("broken", BROKEN[case], "a plug-in"))
    parent = saved(tmp_path / "parent", "llama")
    ran = zerolm("carve", str(parent), "--keep-ffn", "0.5", "--criterion", "broken")
    ran.refused(f"criterion 'broken' of {__name__} fails with")


class Constant:
    """A plug-in's criterion whose scores are ``value``, of ``fewer`` units than there are."""

    value, fewer, role = 1.0, 0, "down"

    def __init__(self, sizes: Any, layer: Any, *roots: Any) -> None:
        self.counts = dict(zip(("o", "down"), sizes.units, strict=True))

    def add(self, inputs: Any, weights: Any) -> None:
        assert inputs.keys() == weights.keys() == {"o", "down"}

    def importance(self) -> dict[str, np.ndarray]:
        neurons = np.full(self.counts["down"] - self.fewer, self.value)
        return {"o": np.ones(self.counts["o"]), self.role: neurons}


WITH_TOKENS: dict[str, tuple[dict[str, Any], str]] = {
    "nan": ({"value": np.nan}, "ValueError: it does not give a finite score to each of 40 units of 'down'"),
    "few": ({"fewer": 1}, "ValueError: it does not give a finite score to each of 40 units of 'down'"),
    "another role": ({"role": "up"}, "KeyError: 'down'; does it name all its needs?"),
    "no end": ({"add": lambda *_: sys.exit(3)}, "SystemExit: 3"),
}  # fmt: skip


@pytest.mark.parametrize("case", WITH_TOKENS)
def test_a_broken_criterion_with_tokens_fails_before_any_pass(
    case: str, zerolm: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(criteria.CRITERIA, "_entries", dict(criteria.CRITERIA._entries))
    more, words = WITH_TOKENS[case]
    broken = type("Broken", (Constant,), {**more, "__module__": __name__})
    criteria.CRITERIA.add(Entry("broken", broken, "a plug-in", ("tokens", "torch", "gradients")))
    criteria.CRITERIA.add(Entry("sound", Constant, "a plug-in", ("tokens", "torch", "gradients")))
    for name in ("zerolm.carving.session.loss_moments", "zerolm.carving.session.generated_tokens"):
        monkeypatch.setattr(name, lambda *_, **__: pytest.fail("work has begun"))
    parent = saved(tmp_path / "parent", "llama")
    asked = ("carve", str(parent), "--keep-ffn", "0.5", "--text", "generated", "--criterion")
    ran = zerolm(*asked, "broken")
    ran.refused(f"criterion 'broken' of {__name__} fails with {words}")
    with pytest.raises(pytest.fail.Exception, match="work has begun"):
        zerolm(*asked, "sound")


def test_all_criteria_say_where_they_come_from() -> None:
    assert all(entry.source for entry in criteria.BUILT_IN)
