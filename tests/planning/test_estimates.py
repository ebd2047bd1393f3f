"""Predicted losses of cuts, compared with those of whole networks by running or autograd."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import spearmanr
from tiny import model
from tiny_families import SHARING, louder
from torch import Tensor
from torch.nn import functional

from zerolm.carving.loss import Loss
from zerolm.networks.blocks import Blocks
from zerolm.networks.roles import bias, layers_of, matrix
from zerolm.passes import walk
from zerolm.passes.loss_moments import loss_moments
from zerolm.passes.walk import NormInput, normalised
from zerolm.planning.estimates import ESTIMATE_BATCH, StreamEstimates, calibrated, estimated_losses
from zerolm.planning.loss_table import LossTable
from zerolm.text.tokens import Tokens
from zerolm.units.importance.criterion import Additive
from zerolm.units.importance.token_pass import importances
from zerolm.units.kept_units import Cut, LayerCut
from zerolm.units.pruning import dimensions_of
from zerolm.units.stream.in_memory import loss_basis
from zerolm.units.stream.narrowing import Width

TOKENS = Tokens(torch.randint(64, (6, 10), generator=torch.Generator().manual_seed(1)))
MANY = Tokens(torch.randint(64, (96, 16), generator=torch.Generator().manual_seed(2)))
BEHIND = ("olmo2", "glm4", "gemma4_text", SHARING, "nomic_bert")
"""Families with norms behind attention and FFN, beside gemma2 and bert."""
DECODERS = ("llama_biased", "mistral", "qwen3", "gemma2", "gpt2")
BOTH = ("groups", "ffn")


def criterion(network: Any) -> Additive:
    sizes, generator = dimensions_of(network), np.random.default_rng(0)
    wholes = sizes.wholes.items()
    return Additive({kind: [generator.random(c) for _ in range(sizes.depth)] for kind, c in wholes})


@contextmanager
def noted(network: Any) -> Iterator[list[dict[str, Tensor]]]:
    """Note of each layer what goes into its output matrices, what comes out, and what it sends."""
    seen: list[dict[str, Tensor]] = [{} for _ in layers_of(network)]
    handles = []
    for place, layer in enumerate(layers_of(network)):
        parts = {"o": layer.writers["o"], "down": layer.ffn_out, "layer": layer.module}
        for name, module in (parts | dict(layer.behind)).items():

            def hook(_: Any, given: Any, out: Any, place: int = place, name: str = name) -> None:
                out = out[0] if isinstance(out, tuple) else out
                out.requires_grad_() if out.is_leaf else out.retain_grad()
                seen[place] |= {name: out, f"{name}_in": given[0].detach()}

            handles.append(module.register_forward_hook(hook))
    yield seen
    for handle in handles:
        handle.remove()


def drawn(network: Any, ids: Tensor, index: int) -> Tensor:
    """What is differentiated: a batch draws with its number as the seed."""
    sent, generator = network(ids), torch.Generator().manual_seed(index)
    if hasattr(sent, "logits"):
        log = functional.log_softmax(sent.logits, dim=-1).flatten(0, 1)
        return -log.gather(1, torch.multinomial(log.detach().exp(), 1, generator=generator)).sum()
    directions = functional.normalize(sent.last_hidden_state.mean(1), dim=-1)
    return (directions * torch.randn(directions.shape, generator=generator)).sum()


@pytest.mark.parametrize("name", [*DECODERS, "bert", "gpt2_wide", *BEHIND])
def test_a_price_is_the_square_of_what_is_felt_of_a_change(name: str) -> None:
    """The whole network is differentiated at once; what goes is computed from the units that go."""
    network = (louder(name) if name in BEHIND else model(name)).eval()
    table = estimated_losses(network, TOKENS, criterion(network), BOTH)
    by_sequence = network.get_output_embeddings() is None
    sizes, sums, count = dimensions_of(network), {}, 0
    for index, ids in enumerate(TOKENS.ids.split(ESTIMATE_BATCH)):
        count += len(ids) if by_sequence else ids.numel()
        with noted(network) as seen:
            drawn(network, ids, index).backward()
        for layer, (places, ours) in enumerate(zip(seen, layers_of(network), strict=True)):
            went = {("gone", 0): (places["layer"] - places["layer_in"]) * places["layer"].grad}
            for kind, role, module in (("groups", "o", ours.writers["o"]), ("ffn", "down", ours.ffn_out)):
                for size in table.sizes[kind][:-1].tolist():
                    x = places[f"{role}_in"].clone().unflatten(-1, (sizes.wholes[kind], -1))
                    x[..., table.choose(layer, kind, size), :] = 0.0
                    change, gradient = x.flatten(-2) @ matrix(module).T, places[role].grad
                    norm = ours.behind.get(f"behind_{role}")
                    if norm is not None:  # how what the norm makes of the rest differs
                        whole = places[f"behind_{role}_in"]
                        with torch.no_grad():
                            change = norm(whole) - norm(whole - change)
                        gradient = places[f"behind_{role}"].grad
                    went[kind, size] = change * gradient
            if name == SHARING:  # its layers stay
                del went["gone", 0]
            for key, change in went.items():
                each = change.sum((1, 2)) if by_sequence else change.sum(2)
                sums[layer, key] = sums.get((layer, key), 0.0) + float(each.detach().double().square().sum())
    for (layer, (kind, size)), total in sums.items():
        loss = table.without_layer[layer] if kind == "gone" else -table.score(layer, kind, size)
        assert loss == pytest.approx(0.5 * total / count, rel=1e-3, abs=1e-9), (layer, kind, size)


def sizes_cut(network: Any) -> Iterator[tuple[str, int]]:
    """Yield kinds of units, and numbers of them that a layer may keep."""
    yield from (("groups", size) for size in range(1, dimensions_of(network).kv_heads))
    yield from (("ffn", size) for size in (1, 5, 10, 20, 25, 30, 35))


def pairs_of(network: Any, predicted: LossTable, kind: str, size: int) -> np.ndarray:
    """The predicted and the measured loss of each layer cut alone to a size, (layers, 2)."""
    whole = Cut.whole(dimensions_of(network))
    loss, pairs = Loss(Blocks(network, MANY.spread(64).batches(4))), []
    for place, kept in enumerate(whole.layers):
        cut = LayerCut(place, {**kept.kept, kind: predicted.choose(place, kind, size)})
        layers = (*whole.layers[:place], cut, *whole.layers[place + 1 :])
        pairs.append((-predicted.score(place, kind, size), loss.of_cut(Cut(whole.parent, layers))))
    return np.array(pairs)


@pytest.mark.parametrize("name", ["llama", "bert"])
def test_small_cuts_cost_what_is_foretold(name: str) -> None:
    """To second order: of layers that change little, whose parts change less."""
    network = model(name).eval()
    with torch.no_grad():
        for layer in layers_of(network):
            for module in (layer.writers["o"], layer.ffn_out):
                module.get_parameter("weight").mul_(0.1)
                if bias(module) is not None:
                    bias(module).zero_()  # type: ignore[union-attr]
    predicted = estimated_losses(network, MANY, criterion(network), BOTH)
    pairs = np.concatenate([pairs_of(network, predicted, kind, size) for kind, size in sizes_cut(network)])
    assert spearmanr(*pairs.T)[0] > 0.9
    assert 0.75 < np.median(pairs[:, 0] / pairs[:, 1]) < 1.3


@pytest.mark.parametrize("name", ["glm4", "bert"])
def test_norms_on_outputs_do_not_hide_what_is_lost(name: str) -> None:
    """They make up for the size of what is left, and of the last neuron as if it were all."""
    network = louder(name).eval()
    by = Additive(importances(network, MANY, "output_energy"))
    predicted = estimated_losses(network, MANY, by, BOTH)
    for kind, size in sizes_cut(network):
        assert 0.3 < np.divide(*pairs_of(network, predicted, kind, size).sum(0)) < 1.5, (kind, size)


def test_what_the_head_lacks_is_what_kept_directions_do_not_foretell() -> None:
    """The sum from the end gives the residual of every regression; of layers too, where they are repaired."""
    network, generator = model("llama"), torch.Generator().manual_seed(0)
    fisher = loss_moments(network, TOKENS, with_stream=True).fisher
    basis = loss_basis(network, fisher)
    stream_estimates = StreamEstimates(basis, np.arange(1, 48), tied=False, read=fisher.stream["energy"])
    stream, wished = (torch.randn(2, 5, 48, generator=generator) for _ in range(2))
    reading = NormInput(stream, wished)
    stream_estimates.above(Blocks(network, []), 0, stream, reading)
    x = normalised(stream).double()
    inside = stream_estimates._removed_part(reading, *stream_estimates.inside[1])
    of_norms = replace(basis, last=fisher.stream["energy"])
    for losses, known in ((stream_estimates.removed[0][0], basis), (inside, of_norms)):
        for place in (3, 20, 40):
            narrowing = known.narrowing(Width(place + 1, False))
            kept, predicted = (torch.from_numpy(each) for each in (narrowing.basis, narrowing.predicted))
            lost = ((x - x @ kept @ predicted.T) * wished).sum(-1)
            torch.testing.assert_close(losses[..., place].double(), lost, rtol=1e-3, atol=1e-3)


def test_what_repair_leaves_is_foretold_of_units_and_of_the_stream() -> None:
    network = model("llama")
    fisher = loss_moments(network, MANY, with_stream=True).fisher
    by = Additive(importances(network, MANY, "surgeon", fisher=fisher))
    basis = loss_basis(network, fisher)
    alone, cut = (estimated_losses(network, MANY, by, BOTH, basis=basis, repaired=e) for e in (None, fisher))
    repaired = cut.repaired
    assert alone.repaired is None
    for kind in BOTH:
        assert np.array(alone.losses[kind]).tolist() == np.array(cut.losses[kind]).tolist()
    assert (repaired.without_layer == cut.without_layer).all()
    for kind in BOTH:
        for layer, losses in enumerate(repaired.losses[kind]):
            wanted = [by.loss_increase(layer, kind, int(size)) for size in repaired.sizes[kind]]
            assert losses.tolist() == wanted
            assert losses[-1] == 0.0
    assert repaired.stream.losses[False].sum() < cut.stream.losses[False].sum()
    assert (repaired.stream.losses[False][:-1] > 0.0).all()
    first, between, last = cut.every
    assert (first, last) == (cut, repaired)
    for kind in BOTH:
        squares = np.array(first.losses[kind]) * np.array(last.losses[kind])
        np.testing.assert_allclose(np.array(between.losses[kind])[:, :-1] ** 2, squares[:, :-1])
    squares = cut.stream.losses[False] * repaired.stream.losses[False]
    np.testing.assert_allclose(between.stream.losses[False] ** 2, squares)
    np.testing.assert_allclose(between.without_layer, cut.without_layer)
    assert alone.every == [alone]


def test_padding_is_not_priced() -> None:
    network, by = model("llama"), criterion(model("llama"))
    ids = TOKENS.ids.clone()
    mask = torch.ones_like(ids)
    mask[:, 7:] = 0
    tables = []
    for filler in (3, 60):
        ids[:, 7:] = filler
        tables.append(estimated_losses(network, Tokens(ids, mask), by, BOTH))
    for kind in BOTH:
        np.testing.assert_allclose(tables[0].losses[kind], tables[1].losses[kind], rtol=1e-5)


def test_what_is_not_finite_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    network, infinite = model("llama"), torch.full((2, 10, 48), float("inf"))
    monkeypatch.setattr(walk, "gradient_above", lambda *_, **__: infinite)
    with pytest.raises(ValueError, match="the gradients of layer 2 are not finite"):
        estimated_losses(network, TOKENS, criterion(network), BOTH)
    monkeypatch.undo()
    monkeypatch.setattr(
        "zerolm.passes.walk.gradient_by_head", lambda *_: (NormInput(infinite, infinite), infinite)
    )
    with pytest.raises(ValueError, match="the gradients of layer 2 are not finite"):
        loss_basis(network, loss_moments(network, TOKENS, with_stream=True).fisher)
    monkeypatch.undo()
    with torch.no_grad():
        network.lm_head.weight[:, 0] = float("inf")
    with pytest.raises(ValueError, match="the parent's predictions are not finite"):
        estimated_losses(network, TOKENS, criterion(network), BOTH)


@given(st.lists(st.floats(1e-6, 10.0), min_size=1, max_size=30), st.floats(0.5, 2.0), st.floats(0.1, 5.0))
def test_a_power_of_what_is_foretold_is_fitted(predicted: list[float], power: float, factor: float) -> None:
    asked: list[int] = []

    def measure(layers: Sequence[int]) -> dict[int, float]:
        asked.extend(layers)
        return {layer: float(factor * predicted[layer] ** power) for layer in layers}

    losses = calibrated(np.array(predicted), measure)
    assert asked == sorted(set(asked))  # states go up through a network
    assert len(asked) <= 3
    wanted = factor * np.array(predicted) ** power
    np.testing.assert_allclose(losses[asked], wanted[asked], rtol=1e-6)
    np.testing.assert_allclose(losses, wanted, rtol=1e-6)


def test_layers_that_are_not_measured_lie_between_those_that_are() -> None:
    predicted = np.array([0.1, 0.4, 0.2, 0.0, 0.3])
    losses = calibrated(predicted, lambda layers: {0: 0.0, 1: 2.0, 2: 0.4, 3: 0.0, 4: 9.0})
    assert losses[3] == 0.0
    assert losses[[1, 2]].tolist() == pytest.approx([2.0, 0.4])
    assert losses[0] == pytest.approx(0.2)  # as the least that is sound, twice as much
    assert 2.0 < losses[4] / predicted[4] < 5.0
    assert np.array_equal(calibrated(predicted, lambda layers: dict.fromkeys(layers, 0.0)), predicted)


def of_neurons(sizes: np.ndarray, losses: np.ndarray) -> LossTable:
    """The table of a network of one layer, with one group."""
    by = Additive({"groups": [np.ones(1)], "ffn": [np.ones(int(sizes[-1]))]})
    ones, zeros = np.array([1]), np.zeros(1)
    return LossTable(by, {"groups": ones, "ffn": sizes}, {"groups": [zeros], "ffn": [losses]}, zeros)


@given(data=st.data())
def test_between_what_is_measured_losses_are_interpolated_in_order(data: st.DataObject) -> None:
    """Losses that fall with the size fall in between too, and stand where they were measured."""
    sizes = np.cumsum(data.draw(st.lists(st.integers(1, 9), min_size=2, max_size=6)))
    falls = data.draw(st.lists(st.floats(0.0, 4.0), min_size=len(sizes) - 1, max_size=len(sizes) - 1))
    losses = np.array([*np.cumsum(falls)[::-1], 0.0])
    found = of_neurons(sizes, losses)
    worth = np.array([found.score(0, "ffn", count) for count in range(sizes[0], sizes[-1] + 1)])
    assert worth[sizes - sizes[0]] == pytest.approx(-losses, abs=1e-12)
    assert (np.diff(worth) >= -1e-12).all()


def test_the_middle_of_two_losses_is_their_geometric_mean() -> None:
    sizes, losses = np.array([10, 20, 40]), np.array([0.9, 0.1, 0.0])
    found = of_neurons(sizes, losses)
    assert found.score(0, "ffn", 15) == pytest.approx(-0.3)
    assert found.score(0, "ffn", 30) == pytest.approx(-0.05)
