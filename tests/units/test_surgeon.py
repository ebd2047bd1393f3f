"""Units that go one by one, against a twin that solves for the others each time; and Fisher information."""

from typing import Any

import numpy as np
import pytest
import torch
from first_tokens import with_first
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny import model

from tests.units.test_activations import FAMILIES, TOKENS, inputs_by_sequence, padded
from zerolm.architecture import Floats
from zerolm.io.cache import ArrayCache
from zerolm.networks.blocks import Blocks
from zerolm.networks.hooks import watching
from zerolm.networks.roles import BEHIND_NORMS, bias, layers_of, matrix
from zerolm.passes.fisher import OUTPUT_ROLES, FisherSums
from zerolm.passes.loss_moments import loss_moments
from zerolm.passes.walk import LayerGradients, walk
from zerolm.text.tokens import Tokens
from zerolm.units.importance.surgeon import FEW, RIDGE, Surgeon, elimination
from zerolm.units.importance.token_pass import importances
from zerolm.units.pruning import dimensions_of


def drawn(seed: int, inputs: int, outputs: int) -> tuple[Floats, Floats]:
    """Return second moments (n, n) of inputs that are alike, and columns (d, n)."""
    generator = np.random.default_rng(seed)
    x = generator.normal(size=(3 * inputs, inputs)) @ generator.normal(size=(inputs, inputs)) ** 3
    return x.T @ x / len(x), generator.normal(size=(outputs, inputs))


def left_over(moments: Floats, columns: Floats, kept: list[int], size: int) -> float:
    """Return half of what is lost when the others are solved again by least squares, with the ridge."""
    regular = moments + RIDGE * np.trace(moments) / len(moments) * np.eye(len(moments))
    places = [unit * size + place for unit in kept for place in range(size)]
    lost = columns.copy()
    if places:
        inside, crossed = regular[np.ix_(places, places)], regular[places]
        lost[:, places] -= np.linalg.solve(inside, crossed @ columns.T).T
    return 0.5 * float(np.trace(lost @ regular @ lost.T))


@given(st.integers(0, 10**6), st.integers(2, 9), st.integers(1, 3))
@settings(max_examples=30, deadline=None)
def test_always_the_unit_goes_whose_absence_costs_least(seed: int, units: int, size: int) -> None:
    moments, columns = drawn(seed, units * size, 5)
    going = elimination(torch.from_numpy(moments), torch.from_numpy(columns), units)
    left, lost = list(range(units)), 0.0
    for unit, cost in zip(going.order.tolist(), going.costs.tolist(), strict=True):
        after = {each: left_over(moments, columns, [o for o in left if o != each], size) for each in left}
        assert after[unit] == pytest.approx(min(after.values()), rel=1e-6)
        assert cost == pytest.approx(after[unit] - lost, rel=1e-4, abs=1e-9 * after[unit])
        left.remove(unit)
        lost = after[unit]


def test_many_units_that_go_in_steps_cost_what_least_squares_leaves() -> None:
    """300 units go four at a time; the costs add up to the loss at every size."""
    moments, columns = drawn(0, 300, 20)
    going = elimination(torch.from_numpy(moments), torch.from_numpy(columns), 300)
    assert sorted(going.order.tolist()) == list(range(300))
    for gone in (1, 37, 150, 260, 300):
        kept = sorted(going.order[gone:].tolist())
        assert going.costs[:gone].sum() == pytest.approx(left_over(moments, columns, kept, 1), rel=1e-6)
    energy = np.argsort(np.diag(moments) * np.square(columns).sum(0))
    by_energy = left_over(moments, columns, sorted(energy[150:].tolist()), 1)
    assert going.costs[:150].sum() < 0.9 * by_energy


def test_wide_matrices_are_eliminated_in_float32_and_cost_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    moments, columns = (torch.from_numpy(each) for each in drawn(3, 300, 20))
    double = elimination(moments, columns, 300)
    monkeypatch.setattr("zerolm.units.importance.surgeon.WIDE", 300)
    single = elimination(moments, columns, 300)
    for gone in (37, 150, 260):
        kept = sorted(single.order[gone:].tolist())
        left = left_over(moments.numpy(), columns.numpy(), kept, 1)
        assert single.costs[:gone].sum() == pytest.approx(left, rel=1e-3)
        assert left == pytest.approx(double.costs[:gone].sum(), rel=1e-3)


def test_of_two_that_are_alike_one_goes_first_and_then_all_is_as_without_it() -> None:
    moments, columns = drawn(1, 8, 4)
    once = elimination(torch.from_numpy(moments), torch.from_numpy(columns), 8)
    twice = np.append(np.arange(8), 3)
    halves = columns[:, twice] * np.where(twice == 3, 0.5, 1.0)
    again = elimination(torch.from_numpy(moments[np.ix_(twice, twice)]), torch.from_numpy(halves), 9)
    assert again.order[0] in (3, 8)
    assert twice[again.order[1:]].tolist() == once.order.tolist()


def stream_weights(network: Any, number: int, tokens: Tokens) -> Floats:
    """One over the mean square of the stream before a layer, of each token that is no padding, (n,)."""
    with torch.no_grad(), watching({"layer": layers_of(network)[number].module}) as seen:
        network.base_model(input_ids=tokens.ids, attention_mask=tokens.mask)
    squares = seen.inputs["layer"].double().square().mean(-1)
    rows = torch.ones_like(squares).bool() if tokens.mask is None else tokens.mask.bool()
    weights: Floats = 1.0 / squares[rows].numpy()
    return weights


@pytest.mark.parametrize("tokens", [TOKENS, padded()], ids=["full", "padded"])
@pytest.mark.parametrize("name", FAMILIES)
def test_the_criterion_is_the_elimination_on_what_the_model_sends(name: str, tokens: Tokens) -> None:
    network = model(name)
    sizes, fisher = dimensions_of(network), loss_moments(network, tokens).fisher
    worth = importances(network, tokens, "surgeon", batch=2, fisher=fisher)
    for number, layer in enumerate(layers_of(network)):
        modules = (layer.writers["o"], layer.ffn_out)
        kinds = (("groups", sizes.kv_heads), ("ffn", sizes.ffn))
        for inputs, module, (kind, units), role in zip(
            inputs_by_sequence(network, number, tokens), modules, kinds, OUTPUT_ROLES, strict=True
        ):
            x, w = np.concatenate(inputs), stream_weights(network, number, tokens)
            if layer.norm in BEHIND_NORMS:  # divides by the size of the output
                w = w / np.square(x @ matrix(module).double().numpy().T).mean(1)
            w = with_first(w, tokens, fisher.first_token(number, role))
            x = x - w @ x / w.sum() if bias(module) is not None else x
            sent = fisher.root(number, role).T @ matrix(module).double().numpy()
            ridge = max(RIDGE, x.shape[1] / (FEW * len(x)))
            moments = x.T @ (w[:, None] * x) / w.sum()
            going = elimination(torch.from_numpy(moments), torch.from_numpy(sent), units, ridge)
            np.testing.assert_allclose(worth[kind][number], going.scores(), rtol=1e-2, atol=1e-9)


@pytest.mark.parametrize("with_stream", [False, True])
def test_fisher_information_is_that_of_autograd(with_stream: bool) -> None:
    """The whole network's gradients, with the same draws."""
    network = model("llama")
    fisher = loss_moments(network, TOKENS, with_stream=with_stream).fisher
    modules = {
        (layer, role): module
        for layer, found in enumerate(layers_of(network))
        for role, module in zip(OUTPUT_ROLES, (found.writers["o"], found.ffn_out), strict=True)
    }
    total: dict[Any, Any] = dict.fromkeys(modules, 0.0)
    firsts, others = dict.fromkeys(modules, 0.0), dict.fromkeys(modules, 0.0)
    for index, batch in enumerate(TOKENS.batches(2)):
        ids = batch["input_ids"]
        with watching({str(place): module for place, module in modules.items()}) as seen:
            vectors = network.get_input_embeddings()(ids).detach().requires_grad_()
            logits = network(inputs_embeds=vectors).logits
        log = torch.log_softmax(logits, -1).flatten(0, 1)
        generator = torch.Generator().manual_seed(index)
        choice = torch.multinomial(log.detach().exp(), 1, generator=generator)
        gradients = torch.autograd.grad(-log.gather(1, choice).sum(), list(seen.outputs.values()))
        for place, gradient in zip(modules, gradients, strict=True):
            g = gradient[:, 1:].flatten(0, 1).double().numpy()  # others rest on the first token
            total[place] = total[place] + g.T @ g
            squares = gradient.double().square().sum((0, 2))
            firsts[place] += float(squares[0])
            others[place] += float(squares[1:].mean())
    count = TOKENS.count - len(TOKENS)
    for (layer, role), moments in total.items():
        root = fisher.root(layer, role)
        assert np.trace(root @ root.T) == pytest.approx(np.trace(moments) / count, rel=1e-4)
        ratio = firsts[layer, role] / others[layer, role]
        assert fisher.first_token(layer, role) == pytest.approx(ratio, rel=1e-3)
    mean = sum(total.values()) / (len(total) * count)
    np.testing.assert_allclose(fisher.outputs, mean, rtol=1e-3, atol=1e-5 * np.trace(mean))


@pytest.mark.parametrize("name", ["gemma2", "bert"])
def test_gains_of_norms_behind_outputs_are_those_of_their_gradients(name: str) -> None:
    """Moments of an output's gradients are nearer to those by gains than to the mean without them."""
    network, generator = model(name), torch.Generator().manual_seed(0)
    for norm in [norm for layer in layers_of(network) for norm in layer.behind.values()]:
        shape = norm.weight.shape
        norm.weight.data = torch.exp(2 * torch.randn(shape, generator=generator)).to(norm.weight)
    fisher = loss_moments(network, TOKENS).fisher

    moments: dict[tuple[int, str], Floats] = {}

    class Moments(FisherSums):
        def layer(self, layer_gradients: LayerGradients, blocks: Blocks) -> None:
            for role in ("o", "down"):
                g = layer_gradients.gradients.outputs[role][:, 1:].flatten(0, 1).double().numpy()
                place = layer_gradients.layer, role
                moments[place] = moments.get(place, 0.0) + g.T @ g

    blocks = Blocks(network, TOKENS.batches(2))
    walk(blocks, {"": Moments(blocks, with_stream=False)}, ArrayCache(), "")

    def alike(a: Floats, b: Floats) -> float:
        """Return the correlation of the logarithms of two diagonals."""
        return float(np.corrcoef(np.log(np.diag(a)), np.log(np.diag(b)))[0, 1])

    for (layer, role), wanted in moments.items():
        root = fisher.root(layer, role)
        assert alike(root @ root.T, wanted) > max(0.5, alike(fisher.outputs, wanted))


def test_sums_of_what_is_multiplied_in_bfloat16_are_wider() -> None:
    """A sum of 4,096 equal numbers is right; in bfloat16 it would be short of a hundredth."""
    network = model("llama")
    surgeon = Surgeon(dimensions_of(network), layers_of(network)[0], {})
    x = torch.full((4096, 40), 1.0, dtype=torch.bfloat16)
    x[1::2] *= 1.0078125  # the next number: the sum lies between two of bfloat16's
    sizes = dimensions_of(network)
    heads = torch.ones(4096, sizes.heads * sizes.head_size, dtype=torch.bfloat16)
    surgeon.add({"o": heads, "down": x}, {})
    total = float(x[:, 0].double().square().sum())
    assert float(surgeon.moments["down"].squares[0, 0]) == pytest.approx(total, rel=1e-7)
