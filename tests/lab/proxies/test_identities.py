"""What proxies are by other words: masks, scales, traces and counts; fused matrices are the separate ones."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import tiny
import torch
import transformers
from hypothesis import given
from hypothesis import strategies as st
from matrix_capacity import capacity_svd, zerolm_of_weights
from networks_small import batch_for, chain, made
from torch import Tensor, nn
from torch.func import functional_call
from transformers import ViTConfig, ViTForImageClassification

from zerolm.lab.zero_cost import find_proxy, proxy_names
from zerolm.lab.zero_cost.definitions.activations import output_spectrum, spread
from zerolm.lab.zero_cost.job import compute
from zerolm.lab.zero_cost.passes import Passes, Protocol
from zerolm.lab.zero_cost.passes.shared import singular_values
from zerolm.networks.batch import Batch, loss
from zerolm.networks.huggingface import stock_network
from zerolm.networks.network import Linear, Network, matrices_of

NAMES = ["flexibert", "llama", "stock gpt2"]


def value(network: Network, name: str, batch: Batch, protocol: Protocol | None = None) -> float:
    return compute(network, [find_proxy(name)], batch, protocol or Protocol(parts=2))[name].value[0]


def names_of(network: Network) -> dict[int, str]:
    return {id(parameter): name for name, parameter in network.module.named_parameters()}


def modules(network: Network) -> tuple[Linear, ...]:
    return network.with_attention_fused().linears


def loss_with(network: Network, batch: Batch, weights: dict[Linear, Tensor]) -> Tensor:
    """The loss with these parameters in the place of the matrices."""
    names = names_of(network)
    swapped = {names[id(linear.parameter)]: each for linear, each in weights.items()}
    return loss(functional_call(network.module, swapped, (batch.inputs, batch.classes)), batch)


@pytest.mark.parametrize("name", NAMES)
def test_snip_is_the_gradient_by_masks(name: str) -> None:
    """Element by element, and in sum; by roles it is head importance and synaptic saliency."""
    network = made(name, wide=True, random=0.1)
    batch = batch_for(network)
    masks = {linear: torch.ones_like(linear.parameter, requires_grad=True) for linear in modules(network)}
    masked = {linear: linear.parameter.detach() * mask for linear, mask in masks.items()}
    by_mask = torch.autograd.grad(loss_with(network, batch, masked), list(masks.values()))
    by_parameter = {id(linear.parameter): grad for linear, grad in zip(masks, by_mask, strict=True)}
    passes = Passes(network, batch, Protocol(parts=2), ["gradients"])
    sums = {"attention": 0.0, "ffn": 0.0}
    for linear in network.linears:
        product = passes.weight(linear) * passes.gradient(linear)
        grad = linear.matrix(by_parameter[id(linear.parameter)])
        assert torch.allclose(grad, product, rtol=1e-8, atol=1e-12)
        sums[linear.role] += float(grad.abs().sum())
    assert value(network, "snip", batch) == pytest.approx(sum(sums.values()), rel=1e-8)
    assert value(network, "head_importance", batch) == pytest.approx(sums["attention"], rel=1e-8)
    assert value(network, "synaptic_saliency", batch) == pytest.approx(sums["ffn"], rel=1e-8)


@pytest.mark.parametrize("name", NAMES)
def test_zerolm_of_weights_is_the_mean_squared_singular_value(name: str) -> None:
    network = made(name)
    batch = batch_for(network)
    roles: dict[str, list[np.ndarray[tuple[int, ...], np.dtype[np.float32]]]] = {"attention": [], "ffn": []}
    for linear in network.linears:
        roles[linear.role].append(linear.matrix(linear.parameter.detach()).numpy())
    proxy = find_proxy("zerolm_weights")
    found = compute(network, [proxy], batch, Protocol())["zerolm_weights"].value
    assert found == pytest.approx([sum(map(capacity_svd, each)) for each in roles.values()], rel=1e-6)
    for column, (score,) in proxy.scores([found]).items():
        expected = zerolm_of_weights(roles["attention"], roles["ffn"], float(column.split()[1]))
        assert score == pytest.approx(expected, rel=1e-6)


@given(
    rows=st.integers(1, 6),
    cols=st.integers(1, 6),
    seed=st.integers(0, 99),
    scale=st.sampled_from((1e-9, 1, 1e9)),
)
def test_singular_values(rows: int, cols: int, seed: int, scale: float) -> None:
    matrix = scale * torch.randn(rows, cols, generator=torch.Generator().manual_seed(seed))
    expected = torch.linalg.svdvals(matrix.double())
    found = singular_values(matrix).flip(0)
    assert found.shape == expected.shape
    assert (found - expected).abs().max() <= 1e-7 * expected.max()
    assert (found**2).sum().item() == pytest.approx((matrix.double() ** 2).sum().item())


@given(
    st.lists(st.integers(1, 5), min_size=2, max_size=5),
    st.integers(0, 99),
    st.sampled_from(("sane", "faithful")),
)
def test_proxies_of_the_flow_of_a_chain(widths: list[int], seed: int, mode: str) -> None:
    """Every layer carries the whole flow; what log_synflow and DSS make of it is explicit."""
    network = chain(*widths, seed=seed)
    tokens = 3
    batch = batch_for(network, 2, tokens)
    protocol = Protocol("faithful" if mode == "faithful" else "sane", parts=1)
    head = network.module.get_submodule("head").get_parameter("weight").detach().abs().double()
    weights = [linear.parameter.detach().abs().double() for linear in network.linears]
    state, states = torch.ones(widths[0], dtype=torch.float64), []
    for w in weights:
        states.append(state)
        state = w @ state
    flow = tokens * float((head @ state).sum())
    logs, dss = 0.0, 0.0
    back = head.sum(0)
    for index in reversed(range(len(weights))):
        w, g = weights[index], tokens * torch.outer(back, states[index])
        logs += float((w * (g.log().abs() if mode == "faithful" else (1 + g).log())).sum())
        nuclear = float(torch.linalg.svdvals(w).sum()) * float(g.norm())  # an outer product has but one
        dss += flow if index % 2 else nuclear
        back = back @ w
    assert value(network, "synflow", batch, protocol) == pytest.approx(len(weights) * flow, rel=1e-9)
    assert value(network, "log_synflow", batch, protocol) == pytest.approx(logs, rel=1e-9)
    assert value(network, "dss", batch, protocol) == pytest.approx(dss, rel=1e-6)


def test_the_flow_gets_through_norms_that_add_one_and_images_of_any_size() -> None:
    """Gemma's norms multiply by 1 + weight, and weights start at 0."""
    kind, settings = tiny.MODELS["gemma2"]
    maker = getattr(transformers, kind)
    network = stock_network(maker(maker.config_class(**settings)))
    assert value(network, "synflow", batch_for(network)) > 0
    sizes: dict[str, Any] = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    sizes |= {"intermediate_size": 8, "image_size": 32, "patch_size": 8, "num_labels": 3}
    network = stock_network(ViTForImageClassification(ViTConfig(**sizes)))
    batch = Batch(torch.randn(4, 3, 32, 32), torch.tensor([0, 1, 2, 0]), None, "noise")
    assert value(network, "synflow", batch) > 0


@given(inputs=st.integers(1, 8), outputs=st.integers(1, 8), rank=st.integers(1, 8), seed=st.integers(0, 99))
def test_equal_components_are_counted_one_by_one(inputs: int, outputs: int, rank: int, seed: int) -> None:
    """An input of so many equally strong directions, through an isometry: the rank comes back."""
    generator = torch.Generator().manual_seed(seed)
    rank = min(inputs, outputs, rank)
    draw = torch.randn(inputs, inputs, generator=generator, dtype=torch.float64)
    basis = torch.linalg.qr(draw)[0][:, :rank]  # (inputs, rank)
    other = torch.linalg.qr(torch.randn(outputs, outputs, generator=generator, dtype=torch.float64))[0]
    w = other[:, :rank] @ basis.T  # (outputs, inputs)
    spectrum = output_spectrum(w, basis @ basis.T)
    assert spectrum.shape == (min(inputs, outputs),)
    assert spread(spectrum) == rank
    assert torch.allclose(spectrum[-rank:], torch.ones(rank, dtype=torch.float64))


def test_signs_of_more_rows_than_columns_never_count() -> None:
    """Rounding would make a determinant of such a matrix a large number."""
    for outputs, expected in ((41, 0.0), (40, 1.0)):
        network = chain(40, outputs)
        assert value(network, "eznas", batch_for(network, 32)) == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize("name", NAMES)
def test_grasp_is_minus_the_weights_times_the_hessian_times_the_gradient(name: str) -> None:
    """By double backward along the constant gradient, as in its paper."""
    network = made(name, wide=True, random=0.1)
    batch, weights = batch_for(network), network.weights
    value_now = loss(network.module(batch.inputs, batch.classes), batch)
    grads = torch.autograd.grad(value_now, weights, create_graph=True)
    products = torch.autograd.grad(torch.stack([(g * g.detach()).sum() for g in grads]).sum(), weights)
    expected = -sum(float((w.detach() * h).sum()) for w, h in zip(weights, products, strict=True))
    assert value(network, "grasp", batch) == pytest.approx(expected, rel=1e-8)


class Apart(nn.Module):
    def __init__(self, parts: Sequence[nn.Module]) -> None:
        super().__init__()
        self.parts = nn.ModuleList(parts)

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([part(x) for part in self.parts], dim=-1)


def separate(linear: Linear) -> nn.Linear:
    weight, bias = linear.matrix(linear.parameter.detach()), linear.bias
    part = nn.Linear(weight.shape[1], weight.shape[0], bias is not None, dtype=weight.dtype)
    with torch.no_grad():
        part.weight.copy_(weight)
        if bias is not None:
            part.bias.copy_(bias)
    return part


def taken_apart(network: Network) -> Network:
    """The same network, each matrix in a module of its own; the one given is changed."""
    linears: list[Linear] = []
    for module in dict.fromkeys(linear.module for linear in network.linears):
        group = [linear for linear in network.linears if linear.module is module]
        if len(group) == 1:
            linears += group
            continue
        parts = [separate(linear) for linear in group]
        for parent in list(network.module.modules()):
            for name, child in list(parent.named_children()):
                if child is module:
                    setattr(parent, name, Apart(parts))
        linears += [replace(x, module=part, rows=None) for x, part in zip(group, parts, strict=True)]
    assert len(linears) == len(network.linears)
    return replace(network, linears=tuple(linears))


@pytest.mark.parametrize("name", ["gpt2", "transformer_xl", "autoformer", "pit", "stock gpt2"])
def test_fused_and_separate_matrices_have_equal_values(name: str) -> None:
    fused, twin = (made(name, wide=True, random=0.1) for _ in range(2))
    apart = taken_apart(twin)
    assert len({linear.module for linear in fused.linears}) < len(fused.linears)
    assert len({linear.module for linear in apart.linears}) == len(apart.linears)
    assert [x.name for x in fused.linears] == [x.name for x in apart.linears]
    batch = batch_for(fused, 2 if fused.task == "image" else 16)
    proxies, protocol = [find_proxy(each) for each in proxy_names()], Protocol(parts=2)
    one, other = (compute(network, proxies, batch, protocol) for network in (fused, apart))
    for proxy in proxies:
        assert one[proxy.name].left_out == other[proxy.name].left_out
        assert one[proxy.name].value == pytest.approx(other[proxy.name].value, rel=1e-5), proxy.name


def test_a_fused_gate_is_activated_and_what_is_beside_it_is_not() -> None:
    """Phi-3 has queries, fewer keys and values, gate and up in two modules."""
    linears = [*matrices_of(nn.Linear(16, 32), 0, "attention", {"q": 16, "k": 8, "v": 8})]
    assert [x.rows for x in linears] == [slice(0, 16), slice(16, 24), slice(24, 32)]
    assert [x.bias.shape[0] for x in linears if x.bias is not None] == [16, 8, 8]
    gate, up = matrices_of(nn.Linear(16, 48, bias=False), 0, "ffn", {"gate": 24, "up": 24}, ("gate",))
    assert (gate.activated, up.activated) == (True, False)
    assert gate.bias is None
    y = torch.arange(48.0)
    assert torch.equal(torch.cat([gate.outputs(y), up.outputs(y)]), y)


def test_in_faithful_mode_a_fused_module_of_attention_is_one() -> None:
    network = made("stock gpt2")
    assert [x.name for x in network.with_attention_fused().linears][:4] == ["qkv", "o", "up", "down"]
    plain = made("llama")
    assert plain.with_attention_fused().linears == plain.linears
