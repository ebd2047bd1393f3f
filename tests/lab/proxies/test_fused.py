"""A fused matrix and the separate ones in it are one network to every proxy."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

import pytest
import torch
from networks_small import batch_for, made
from torch import Tensor, nn

from zerolm.lab.zero_cost import find_proxy, proxy_names
from zerolm.lab.zero_cost.job import compute
from zerolm.lab.zero_cost.passes import Protocol
from zerolm.networks.network import Linear, Network, matrices_of


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


FUSED: dict[str, Callable[[], Network]] = {
    name: partial(made, name, wide=True, random=0.1)
    for name in ("gpt2", "transformer_xl", "autoformer", "pit", "stock gpt2")
}


@pytest.mark.parametrize("name", FUSED)
def test_fused_and_separate_matrices_have_equal_values(name: str) -> None:
    fused, apart = FUSED[name](), taken_apart(FUSED[name]())
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
