"""The measured table against literal twins: the whole network run with one layer cut, and sums of losses."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tiny import model
from torch.nn import functional

from zerolm.io.cache import ArrayCache
from zerolm.networks.blocks import Blocks
from zerolm.networks.pooling import TokenPooling
from zerolm.planning import sensitivity
from zerolm.planning.sensitivity import Loss, LossTable, measured_losses
from zerolm.text.tokens import Tokens
from zerolm.units.importance.criterion import Additive
from zerolm.units.kept_units import Cut, LayerCut
from zerolm.units.pruning import apply_in_memory, dimensions_of

TOKENS = Tokens(torch.randint(64, (6, 10), generator=torch.Generator().manual_seed(1)))


def table(name: str, kinds: tuple[str, ...]) -> tuple[object, LossTable]:
    network = model(name)
    sizes, generator = dimensions_of(network), np.random.default_rng(0)
    importance = {
        "groups": [generator.random(sizes.kv_heads) for _ in range(sizes.depth)],
        "ffn": [generator.random(sizes.ffn) for _ in range(sizes.depth)],
    }
    return network, measured_losses(network, TOKENS, Additive(importance), kinds, batch=4)


def loss(network: object, cut: Cut) -> float:
    """KL in nats a token of the whole carved network, or 1 - cosine of mean hidden states."""
    child = apply_in_memory(network, cut)  # type: ignore[arg-type]
    with torch.no_grad():
        theirs, ours = (m.eval()(TOKENS.ids) for m in (network, child))  # type: ignore[attr-defined]
    if hasattr(theirs, "logits"):
        a, b = (functional.log_softmax(x.logits, dim=-1) for x in (theirs, ours))
        return float((a.exp() * (a - b)).sum(-1).mean())
    a, b = (x.last_hidden_state.mean(1) for x in (theirs, ours))
    return float(1 - functional.cosine_similarity(a, b, dim=-1).mean())


@pytest.mark.parametrize("pooling", ["mean", "max", "cls"])
def test_embeddings_are_pooled_as_asked(pooling: str) -> None:
    """Of padded sequences, one at a time and cut to their tokens."""
    network = model("bert")
    mask = torch.ones_like(TOKENS.ids)
    mask[1, 4:] = mask[3, 7:] = 0
    by = Additive({"groups": [np.ones(6)] * 3, "ffn": [np.arange(40.0)] * 3})
    found = measured_losses(
        network, Tokens(TOKENS.ids, mask), by, ("ffn",), batch=4, pooling=TokenPooling((pooling,))
    )
    whole = Cut.whole(dimensions_of(network))
    last = LayerCut.of(2, whole.layers[2]["groups"], found.choose(2, "ffn", int(found.sizes["ffn"][0])))
    child = apply_in_memory(network, Cut(whole.parent, (*whole.layers[:2], last)))
    pool = {"mean": lambda x: x.mean(0), "max": lambda x: x.amax(0), "cls": lambda x: x[0]}[pooling]
    cosines = []
    for ids, tokens in zip(TOKENS.ids, mask.sum(1), strict=True):
        with torch.no_grad():
            ours, theirs = (pool(m(ids[None, :tokens]).last_hidden_state[0]) for m in (child, network))
        cosines.append(float(functional.cosine_similarity(ours, theirs, dim=0)))
    assert found.losses["ffn"][2][0] == pytest.approx(1 - np.mean(cosines), rel=1e-3)


def test_predictions_that_are_too_many_to_keep_are_made_again(monkeypatch: pytest.MonkeyPatch) -> None:
    runs, found, finish = [0], [], Blocks.finish

    def counted(*arguments: Any, **named: Any) -> Any:
        runs[-1] += 1
        return finish(*arguments, **named)

    monkeypatch.setattr(Blocks, "finish", counted)
    for share in (sensitivity.KEPT_SHARE, 1 << 60):
        monkeypatch.setattr(sensitivity, "KEPT_SHARE", share)
        found.append(table("llama", ("ffn",))[1])
        runs.append(0)
    cuts = 2 * 3 * (1 + 7)  # two batches; three layers gone, and cut to seven widths each
    assert runs == [cuts + 2, cuts + cuts, 0]
    first, second = found
    assert np.array_equal(first.without_layer, second.without_layer)
    assert all(map(np.array_equal, first.losses["ffn"], second.losses["ffn"]))


@pytest.mark.parametrize("name", ["llama", "qwen3", "gpt2", "bert"])
def test_single_cuts_lose_what_the_whole_network_loses(name: str) -> None:
    kinds = ("groups", "ffn") if name in ("llama", "qwen3") else ("ffn",)
    network, found = table(name, kinds)
    whole = Cut.whole(dimensions_of(network))  # type: ignore[arg-type]
    for layer, kind in ((0, kinds[0]), (2, "ffn"), (1, kinds[0])):
        for place, count in enumerate(found.sizes[kind][:-1]):
            kept = whole.layers[layer]
            units = found.choose(layer, kind, int(count))
            groups, ffn = (units, kept["ffn"]) if kind == "groups" else (kept["groups"], units)
            cut = list(whole.layers)
            cut[layer] = LayerCut.of(layer, groups, ffn)
            wanted = loss(network, Cut(whole.parent, tuple(cut)))
            assert found.losses[kind][layer][place] == pytest.approx(wanted, rel=1e-3, abs=1e-6)
    for layer in range(3):
        cut = [each for each in whole.layers if each.layer != layer]
        assert found.without_layer[layer] == pytest.approx(
            loss(network, Cut(whole.parent, tuple(cut))), rel=1e-3
        )


def test_worth_interpolates_and_predictions_add_up() -> None:
    _, found = table("llama", ("groups", "ffn"))
    sizes = found.sizes["ffn"]
    assert found.score(1, "ffn", 40) == 0.0
    middle = (int(sizes[2]) + int(sizes[3])) // 2
    between = sorted(-found.losses["ffn"][1][2:4])
    assert between[0] <= found.score(1, "ffn", middle) <= between[1]
    groups, ffn = np.arange(1), np.arange(20)
    cut = Cut(dimensions_of(model("llama")), (LayerCut.of(0, groups, ffn), LayerCut.of(2, groups, ffn)))
    parts = [found.score(layer, "groups", 1) + found.score(layer, "ffn", 20) for layer in (0, 2)]
    assert found.predicted(cut) == pytest.approx(found.without_layer[1] - sum(parts))


def test_a_stopped_table_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    network, kept, run, of = model("qwen3"), ArrayCache(tmp_path), [], Loss.of
    by = Additive({"groups": [np.arange(2.0)] * 3, "ffn": [np.arange(40.0)] * 3})

    def counted(loss: Loss, layer: int, module: object) -> float:
        run.append(layer)
        return of(loss, layer, module)  # type: ignore[arg-type]

    def stop(text: str, done: int, of: int) -> None:
        if done == 2:
            raise KeyboardInterrupt

    wanted = measured_losses(network, TOKENS, by, ("groups", "ffn"))
    monkeypatch.setattr(Loss, "of", counted)
    with pytest.raises(KeyboardInterrupt):
        measured_losses(network, TOKENS, by, ("groups", "ffn"), cache=kept, progress=stop)
    assert run == [0] * 8 + [1] * 8  # 1 of 2 groups, 7 widths
    for last in (8, 8):  # the layer that was left, then none
        found = measured_losses(network, TOKENS, by, ("groups", "ffn"), cache=kept)
        assert run[16:] == [2] * last
        assert np.array_equal(found.without_layer, wanted.without_layer)
        for kind, layers in wanted.losses.items():
            assert all(np.array_equal(x, y) for x, y in zip(found.losses[kind], layers, strict=True))


@given(data=st.data())
def test_between_what_is_measured_losses_are_interpolated_in_order(data: st.DataObject) -> None:
    """Losses that fall with the size fall in between too, and stand where they were measured."""
    sizes = np.cumsum(data.draw(st.lists(st.integers(1, 9), min_size=2, max_size=6)))
    falls = data.draw(st.lists(st.floats(0.0, 4.0), min_size=len(sizes) - 1, max_size=len(sizes) - 1))
    losses = np.array([*np.cumsum(falls)[::-1], 0.0])
    by = Additive({"groups": [np.ones(1)], "ffn": [np.ones(int(sizes[-1]))]})
    found = LossTable(
        by, {"groups": np.array([1]), "ffn": sizes}, {"groups": [np.zeros(1)], "ffn": [losses]}, np.zeros(1)
    )
    worth = np.array([found.score(0, "ffn", count) for count in range(sizes[0], sizes[-1] + 1)])
    assert worth[sizes - sizes[0]] == pytest.approx(-losses, abs=1e-12)
    assert (np.diff(worth) >= -1e-12).all()


def test_the_middle_of_two_losses_is_their_geometric_mean() -> None:
    by = Additive({"groups": [np.ones(1)], "ffn": [np.ones(40)]})
    sizes, losses = np.array([10, 20, 40]), np.array([0.9, 0.1, 0.0])
    found = LossTable(
        by, {"groups": np.array([1]), "ffn": sizes}, {"groups": [np.zeros(1)], "ffn": [losses]}, np.zeros(1)
    )
    assert found.score(0, "ffn", 15) == pytest.approx(-0.3)
    assert found.score(0, "ffn", 30) == pytest.approx(-0.05)
