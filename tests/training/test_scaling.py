"""muP: every parameter in one group, nothing changed at the base width, and steps that do not grow."""

import math
from typing import Any

import pytest
import torch
from drawn import architectures
from hypothesis import given
from torch import nn

from zerolm.architecture import Architecture
from zerolm.networks.build import build
from zerolm.networks.network import Network
from zerolm.solvers.sampling import drawn
from zerolm.spaces import make_space
from zerolm.training.request import DEPTH_RULES
from zerolm.training.scaling import BASE, BASE_DEPTH, ScaledLogits, check_depth_rule, scaled

RATE = 0.01


def llama(hidden: int, tied: bool = True, depth: int = 2) -> Architecture:
    space = make_space("llama", vocab=64, tied=tied)
    return space.read({"depth": depth, "hidden": hidden, "head_size": 8, "heads": hidden // 8,
                       "kv_heads": hidden // 16, "ffn": 3 * hidden})  # fmt: skip


def rates(network: Network, groups: list[dict[str, Any]]) -> dict[str, float]:
    """Return the rate of every parameter by its name; each must be in exactly one group."""
    names = {id(parameter): name for name, parameter in network.module.named_parameters()}
    pairs = [(names[id(p)], group["lr"]) for group in groups for p in group["params"]]
    assert sorted(name for name, _ in pairs) == sorted(names.values())
    return dict(pairs)


def test_at_the_base_width_nothing_is_changed_but_by_inputs() -> None:
    plain, network = (build(llama(BASE), 3) for _ in range(2))
    module, groups = scaled(network, BASE, RATE)
    assert module.factor == 1.0
    for name, rate in rates(network, groups).items():
        weight, drawn = network.module.get_parameter(name), plain.module.get_parameter(name)
        inputs = weight.shape[1] if name.endswith("down.weight") else BASE
        assert rate == pytest.approx(RATE * BASE / inputs)
        assert torch.allclose(weight, drawn * math.sqrt(BASE / inputs))


def test_hidden_matrices_follow_their_inputs_and_nothing_else_does() -> None:
    for tied in (True, False):
        network = build(llama(32, tied), 3)
        module, groups = scaled(network, 32, RATE)
        by_name = rates(network, groups)
        hidden = {id(linear.parameter) for linear in network.linears}
        for name, rate in by_name.items():
            weight = network.module.get_parameter(name)
            is_hidden = id(weight) in hidden
            assert rate == pytest.approx(RATE * BASE / weight.shape[1] if is_hidden else RATE), name
            if weight.ndim == 2:
                deviation = 0.02 * math.sqrt(BASE / weight.shape[1]) if is_hidden else 0.02
                assert float(weight.detach().std()) == pytest.approx(deviation, rel=0.1), name
        ids = torch.arange(12)[None]
        assert torch.allclose(module(ids, 40), network.module(ids, 40) * BASE / 32)


@given(architectures(max_depth=2))
def test_every_parameter_of_any_space_is_in_one_group(architecture: Architecture) -> None:
    try:
        network = build(architecture, 0)
    except ValueError:  # sizes that make no network
        return
    module, groups = scaled(network, architecture.layers[-1].width, RATE)
    assert isinstance(module, ScaledLogits)
    by_name = rates(network, groups)
    assert all(by_name[name] == RATE for name in by_name if name.endswith(("bias", "norm.weight")))


def moved(hidden: int, scaling: bool) -> float:
    """Return how far three steps of Adam move what the last layer gives, root mean square."""
    network = build(llama(hidden), 0)
    module, groups = scaled(network, hidden, RATE) if scaling else (ScaledLogits(network.module, 1.0), None)
    optimiser = torch.optim.Adam(groups or list(network.module.parameters()), lr=RATE)
    ids = torch.randint(64, (4, 17), generator=torch.Generator().manual_seed(0))
    states: list[torch.Tensor] = []
    network.layers[-1].register_forward_hook(lambda *given: states.append(given[2].detach()))
    for _ in range(4):
        logits = module(ids[:, :-1])
        optimiser.zero_grad()
        nn.functional.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten()).backward()
        optimiser.step()
    return float((states[-1] - states[0]).square().mean().sqrt())


def test_steps_move_hidden_states_as_far_at_any_width() -> None:
    """The coordinate check of Tensor Programs V: without scaling they move further the wider they are."""
    narrow, wide = (moved(hidden, True) for hidden in (64, 512))
    assert 0.6 < wide / narrow < 1.6
    narrow, wide = (moved(hidden, False) for hidden in (64, 512))
    assert wide / narrow > 2.5


RULES = [rule for rule, exponent in DEPTH_RULES.items() if exponent is not None]


def states(depth: int, rule: str) -> list[torch.Tensor]:
    """Return the residual stream before, between and after the layers, at initialisation."""
    network = build(llama(32, depth=depth), 0)
    module, _ = scaled(network, 32, RATE, depth_rule=rule)
    seen: list[torch.Tensor] = []
    for layer in network.layers:
        layer.register_forward_hook(lambda *given: seen.append(given[2].detach()))
    network.layers[0].register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0].detach()))
    with torch.no_grad():
        module(torch.arange(48)[None])
    return seen


@pytest.mark.parametrize(("rule", "depth"), [(rule, depth) for rule in RULES for depth in (1, BASE_DEPTH, 9)])
def test_branches_and_rates_follow_the_depth(rule: str, depth: int) -> None:
    """Each step adds what it would add without a rule, times the factor; what is outside learns as before."""
    exponent, ratio = DEPTH_RULES[rule], depth / BASE_DEPTH
    plain, ruled = states(depth, "none"), states(depth, rule)
    attention = build(llama(32, depth=depth), 0)
    scaled(attention, 32, RATE, depth_rule=rule)
    first = attention.layers[0].get_submodule("attention")
    inner = first.get_submodule("inner")(first.get_submodule("norm")(plain[0]))
    assert torch.allclose(first(plain[0]) - plain[0], ratio**-exponent * inner, rtol=1e-4, atol=1e-7)
    assert torch.equal(plain[0], ruled[0])
    networks = [build(llama(32, depth=depth), 0) for _ in range(2)]
    before, after = (
        rates(network, scaled(network, 32, RATE, depth_rule=name)[1])
        for network, name in zip(networks, ("none", rule), strict=True)
    )
    for name, rate in after.items():
        factor = ratio ** (exponent - 1) if name.startswith("layers.") else 1.0
        assert rate == pytest.approx(before[name] * factor), name


def test_rules_are_for_branches_of_normed_inputs() -> None:
    architecture = next(iter(drawn(make_space("bert", vocab=64, positions=32), 1, 0)))
    check_depth_rule([llama(32), architecture], "none")
    check_depth_rule([llama(32)], "sqrt")
    with pytest.raises(ValueError, match=r"--depth-rule linear needs .*'bert'.*--depth-rule none"):
        check_depth_rule([llama(32), architecture], "linear")
