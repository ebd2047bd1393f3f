"""What a pass leaves behind is what autograd says of everything at once, and the network is as it was."""

import copy
import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from networks_small import WORDS, batch_for, by_weights, chain, made, record
from portion import portion
from torch import Tensor, nn

from zerolm.lab.testing import state
from zerolm.lab.zero_cost.passes import NEEDS, Passes, Protocol
from zerolm.lab.zero_cost.passes.record import Moments
from zerolm.lab.zero_cost.passes.taps import entering, looking
from zerolm.networks.batch import Batch, loss
from zerolm.networks.network import Network

NAMES = ["flexibert", "transformer_xl", "llama", "bert", "stock gpt2"]
ALL = list(NEEDS)


def close(found: Tensor, expected: Tensor, rel: float = 1e-8, least: float = 0.0) -> None:
    """Equal within ``rel`` of the largest element, or of ``least``."""
    assert found.shape == expected.shape
    assert (found - expected).abs().max() <= rel * max(expected.abs().max().item(), least)


@pytest.mark.parametrize("parts", [1, 2, 8])
@pytest.mark.parametrize("name", NAMES)
def test_gradients_are_those_of_the_whole_batch(name: str, parts: int) -> None:
    network = made(name, wide=True, random=0.1)
    batch = batch_for(network)
    needs = ["gradients", "moments", "loss_jacobian", "fisher"]
    found = Passes(network, batch, Protocol(parts=parts), needs).loss
    whole = record(network, batch)
    assert found.value == pytest.approx(whole.value.item(), rel=1e-9)
    assert (found.samples, found.tokens) == (8, 6)
    for linear, expected in by_weights(network, batch).items():
        close(found.gradients[linear], expected)
    (at_entry,) = whole.gradients(whole.entry)
    close(torch.cat(found.loss_jacobian), parts * at_entry.flatten(1))  # of a micro-batch's loss
    grads = whole.gradients(list(whole.outputs.values()))
    for (linear, y), g in zip(whole.outputs.items(), grads, strict=True):
        by_token, by_sample = (y * g).square().sum(2).mean() / 2, (y * g).sum(1).square().sum(1).mean() / 2
        assert found.activations.fisher[linear] == pytest.approx(
            (by_token.item(), by_sample.item()), rel=1e-8
        )
    each = [by_weights(network, part) for part in batch.micro(parts)]
    for linear, moments in found.moments.items():
        stacked = torch.stack([grads[linear] for grads in each])
        close(moments.absolute.mean, stacked.abs().mean(0))
        if parts > 1:
            close(moments.signed.variance, stacked.var(0, correction=0))
            close(moments.absolute.variance, stacked.abs().var(0, correction=0))


@given(
    values=st.lists(st.floats(-1e3, 1e3, width=32), min_size=1, max_size=9), offset=st.sampled_from((0, 1e4))
)
def test_variances_are_never_negative_and_zero_without_variation(values: list[float], offset: float) -> None:
    x = torch.tensor(values) + offset
    moments, still = Moments(), Moments()
    for value in x:
        moments.add(value)
        still.add(x[0])
    assert moments.signed.variance >= 0
    assert moments.absolute.variance >= 0
    assert (still.signed.variance, still.absolute.variance, still.absolute.mean) == (0, 0, x[0].abs())
    expected = x.double().var(correction=0).item()
    rounding = 1e-6 * x.abs().max().item() ** 2 + torch.finfo(x.dtype).tiny
    assert moments.signed.variance.item() == pytest.approx(expected, rel=1e-3, abs=rounding)


@pytest.mark.parametrize("parts", [1, 4])
@pytest.mark.parametrize("name", ["flexibert", "llama", "bert", "stock gpt2"])
def test_curvature_is_the_difference_of_gradients(name: str, parts: int) -> None:
    network = made(name, wide=True, random=0.1)
    batch = batch_for(network)
    found = Passes(network, batch, Protocol(parts=parts), ["curvature"]).loss.curvature
    w = [weight.detach().clone() for weight in network.weights]
    step = 1e-4 / math.sqrt(sum(float(x.square().sum()) for x in w))

    def gradients(direction: float) -> dict[Any, Tensor]:
        with torch.no_grad():
            for weight, along in zip(network.weights, w, strict=True):
                weight.add_(along, alpha=direction * step)
        return by_weights(network, batch)

    ahead, behind = gradients(1), gradients(-2)
    largest = max(float(x.abs().max()) for x in found.values())
    for linear, product in found.items():
        assert (product - ((ahead[linear] - behind[linear]) / (2 * step))).abs().max() <= 1e-5 * largest


class Scale(nn.Module):
    """What a norm becomes in the flow, written again: no mean, no offset, a constant divisor."""

    def __init__(self, norm: nn.Module) -> None:
        super().__init__()
        self.weight = norm.get_parameter("weight")

    def forward(self, x: Tensor) -> Tensor:
        return self.weight * x / (x.detach() ** 2).mean() ** 0.5


def replaced(module: nn.Module, norms: tuple[nn.Module, ...]) -> None:
    for part in list(module.modules()):
        for name, child in list(part.named_children()):
            if any(child is norm for norm in norms):
                setattr(part, name, Scale(child))


@pytest.mark.parametrize("faithful", [False, True])
@pytest.mark.parametrize("name", NAMES)
def test_flow_of_a_network(name: str, faithful: bool) -> None:
    """Against a rebuilt copy: absolute parameters, float64, ones into the layers."""
    network = made(name, random=0.1)
    protocol = Protocol("faithful" if faithful else "sane", parts=1)
    flow = Passes(network, batch_for(network), protocol, ["flow"]).flow
    twin = copy.deepcopy(network)
    twin.module.double().train(faithful)
    with torch.no_grad():
        for parameter in twin.module.parameters():
            parameter.abs_()
    if not faithful:
        replaced(twin.module, twin.norms)
    final: list[Tensor] = []
    with torch.random.fork_rng(devices=[]), entering(twin, torch.ones_like):
        torch.manual_seed(0)
        with looking([twin.final], lambda _, x: final.append(x)):
            logits = twin.module(torch.zeros((1, 6), dtype=torch.long))
    (final[0].sum() if faithful and network.task == "masked" else logits.sum()).backward()
    largest = max(float(g.abs().max()) for _, g in flow.values())  # equal tokens leave q and k none
    pairs = zip(flow, (twin.with_attention_fused() if faithful else twin).linears, strict=True)
    for mine, other in pairs:
        w, g = flow[mine]
        assert torch.equal(w, mine.matrix(mine.parameter.detach()).abs().double())
        close(g, other.matrix(other.parameter.grad), 1e-10, largest)


@pytest.mark.parametrize("parts", [1, 2])
@pytest.mark.parametrize("name", ["flexibert", "llama", "stock gpt2", "pit"])
def test_transfer_keeps_nothing_but_loses_nothing(name: str, parts: int) -> None:
    """Against features that are all kept."""
    network = made(name, random=0.1)
    batch = batch_for(network, 2 if network.task == "image" else 8)
    found = Passes(network, batch, Protocol(parts=parts, seed=3), ["transfer"]).transfer
    count = len(network.stream)
    features: list[list[Tensor]] = [[] for _ in range(count)]
    ups: list[list[Tensor]] = [[] for _ in range(count)]
    vs: list[list[Tensor]] = [[] for _ in range(count)]
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(3)
        with (
            entering(network, lambda x: torch.randn_like(x).requires_grad_()),
            looking(network.stream, lambda index, x: features[index].append(x)),
        ):
            for part in batch.micro(parts):
                network.module(part.inputs, part.classes)
                for index in range(count - 1, 0, -1):
                    above, below = features[index][-1], features[index - 1][-1]
                    v = torch.randint(0, 2, above.shape) * 2.0 - 1
                    ups[index] += torch.autograd.grad(above, below, v, retain_graph=True)
                    vs[index].append(v)
    for index, (entropy, kept) in enumerate(zip(found.entropies, features, strict=True)):
        rows = torch.cat(kept).detach().flatten(0, 1).double()
        p = torch.linalg.eigvalsh(torch.cov(rows.T, correction=0)).clamp_min(0)
        p = p / p.sum()
        assert entropy == pytest.approx(float(-(p * (p + 1e-8).log()).sum()), rel=1e-8)
        if index:
            u, v = torch.cat(ups[index]).double(), torch.cat(vs[index]).double()
            gain = found.gains[index - 1]
            if u.shape[1] != v.shape[1]:
                assert gain is None  # tokens are pooled in between
                continue
            m = u.flatten(0, 1).T @ v.flatten(0, 1) / len(v.flatten(0, 1))
            assert gain == pytest.approx(float(torch.linalg.svdvals(m)[0]), rel=1e-5)


def test_the_gradient_of_ones_through_a_layer_norm() -> None:
    """It is zero, for the outputs of a norm add up to a constant; sane mode says so, faithful mode runs."""
    batch = batch_for(network := made("bert"))
    ones = Protocol(upstream="ones", parts=2)
    faithful = Passes(network, batch, Protocol("faithful", "ones", parts=2), ["gradients"]).loss
    by_rounding = sum(float(g.abs().sum()) for g in faithful.gradients.values())
    hidden: list[Tensor] = []
    with looking([network.final], lambda _, x: hidden.append(x)):
        network.module(batch.inputs, 1)
    weights = network.weights
    random = torch.autograd.grad(
        hidden[0], weights, torch.randn(hidden[0].shape, generator=torch.Generator().manual_seed(0))
    )
    assert by_rounding < 1e-5 * sum(float(g.abs().sum()) for g in random)
    for need in ("gradients", "moments", "loss_jacobian", "fisher", "curvature"):
        with pytest.raises(ValueError, match=r"gradient of ones .* is zero but for rounding .* of a random"):
            Passes(network, batch, ones, [need]).run()
    assert Passes(network, batch, ones, ["codes"]).activations.codes, "what needs no gradient is not refused"
    for name in ("gpt2-uniform", "transformer_xl", "flexibert"):  # they end with a layer norm too
        network = made(name)
        with pytest.raises(ValueError, match="rounding"):
            Passes(network, batch_for(network), ones, ["gradients"]).run()
    for free in (made("llama"), made("bert", random=0.3)):  # a root mean square, and gains that differ
        assert Passes(free, batch_for(free), ones, ["gradients"]).loss.gradients


@pytest.mark.parametrize("name", ["llama", "bert"])
@pytest.mark.parametrize("parts", [2, 4])
def test_ones_are_the_gradient_of_the_sum(name: str, parts: int) -> None:
    """Of the final hidden states of the whole batch, whatever its parts."""
    network = made(name, wide=True, random=0.3)
    batch = batch_for(network)
    found = Passes(network, batch, Protocol(upstream="ones", parts=parts), ["gradients"]).loss
    hidden: list[Tensor] = []
    with looking([network.final], lambda _, x: hidden.append(x)):
        network.module(batch.inputs, 1)
    assert found.value == pytest.approx(hidden[0].sum().item(), rel=1e-8)
    grads = torch.autograd.grad(hidden[0].sum(), network.weights)
    for linear, expected in zip(network.linears, grads, strict=True):
        close(found.gradients[linear], linear.matrix(expected))


def test_a_loss_that_is_not_finite_is_refused() -> None:
    network = made("llama")
    with torch.no_grad():
        network.linears[3].parameter[0, 0] = torch.nan
    for protocol in (Protocol(parts=2), Protocol(parts=2, upstream="ones", mode="faithful")):
        with pytest.raises(ValueError, match=r"the loss is nan, not finite"):
            Passes(network, batch_for(network), protocol, ["outputs"]).run()
    with pytest.raises(ValueError, match=r"left the range of float64"):
        Passes(network, batch_for(network), protocol, ["flow"]).run()


@contextmanager
def counted(network: Network) -> Iterator[list[None]]:
    """A list that grows with every forward pass."""
    found: list[None] = []
    handle = network.module.register_forward_hook(lambda *_: found.append(None))
    try:
        yield found
    finally:
        handle.remove()


@settings(max_examples=portion(40))
@given(needs=st.sets(st.sampled_from(ALL)), parts=st.sampled_from((1, 2, 4)))
def test_a_pass_runs_once_and_only_if_needed(needs: set[str], parts: int) -> None:
    network = chain(4, 4, 4)
    kinds = {NEEDS[need] for need in needs}
    once = bool(kinds - {"flow", "transfer"})
    times = parts * (once + ("transfer" in kinds)) + ("flow" in kinds)
    with counted(network) as found:
        passes = Passes(network, batch_for(network), Protocol(parts=parts), needs)
        passes.run()
        assert len(found) == times
        passes.run()
        assert len(found) == times
    places = {"outputs", "fisher", "codes", "distances", "covariances", "moments"} & needs
    backward = bool(kinds & {"backward", "curvature"})
    expected = places | kinds - {"forward", "backward"} | ({"forward"} if once else set())
    assert set(passes.seconds) == expected | ({"backward", "gradients"} if backward else set())
    assert bool(passes.loss.gradients if once else {}) == backward


@contextmanager
def left_alone(network: Network) -> Iterator[None]:
    """Within, whatever happens, nothing of the network changes that is still changed after it."""
    for number, part in enumerate(network.module.modules()):
        part.training = number % 3 == 0
    network.linears[0].parameter.requires_grad_(False)
    for number, parameter in enumerate(network.module.parameters()):
        if number % 4 == 0:
            parameter.requires_grad_(False)
    before = state(network)
    yield
    after = state(network)
    assert not [part for part in before | after if before.get(part) != after.get(part)]


@pytest.mark.parametrize(
    ("calls", "backward"),
    [(call, way) for call in range(1, 7) for way in (False, True) if (call, way) != (4, True)],
)
def test_an_interrupt_leaves_the_network_as_it_was(calls: int, backward: bool) -> None:
    """Two forward passes of the loss, one of the flow, one that counts operations and two of the transfer."""
    network = made("stock gpt2")
    seen: list[None] = []

    def bomb(_: nn.Module, __: Any, out: Tensor) -> None:
        seen.append(None)
        if len(seen) == calls and not backward:
            raise KeyboardInterrupt
        if len(seen) == calls:
            out.register_hook(explode)  # type: ignore[no-untyped-call]

    def explode(_: Tensor) -> None:
        raise KeyboardInterrupt

    network.linears[-1].module.register_forward_hook(bomb)
    passes = Passes(network, batch_for(network), Protocol(parts=2), ALL)
    with left_alone(network), pytest.raises(KeyboardInterrupt):
        passes.run()
    assert len(seen) == calls


def test_the_loss_is_over_the_classes_that_are_asked_for() -> None:
    network = made("gpt2-uniform", random=0.1)
    batch = batch_for(network)
    fewer = Batch(batch.inputs, batch.labels % 10, 10, "fewer")
    found = Passes(network, fewer, Protocol(parts=4), ["outputs"]).loss.value
    logits = network.module(batch.inputs)
    assert logits.shape[-1] == WORDS
    assert found == pytest.approx(loss(logits[..., :10], fewer).item(), rel=1e-5)
