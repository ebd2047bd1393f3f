"""FLAP (arXiv 2312.11983): what fluctuates least is pruned, and its mean becomes a bias."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from carved.network import GROUP, Network, states
from zerolm.text.tokens import Tokens
from zerolm.units.kept_units import spread


@dataclass(frozen=True, eq=False)
class Fluctuations:
    """Layer by layer, of the inputs of o_proj and of down_proj: means, and metrics of groups and neurons.

    The metric is WIFV, the variance of an input over tokens times the squared norm of its
    column, standardised over the matrix; of a group the mean of its inputs'.
    """

    network: Network
    means: list[tuple[Tensor, Tensor]]
    metrics: list[tuple[Tensor, Tensor]]

    @classmethod
    def of(cls, network: Network, tokens: Tokens) -> Fluctuations:
        sites = states(network, tokens.ids)
        means, metrics = [], []
        for layer, block in enumerate(network.blocks):
            heads = torch.cat([network.heads(block, x) for x in sites[2 * layer].split(GROUP)])
            neurons = torch.cat([network.neurons(block, x) for x in sites[2 * layer + 1].split(GROUP)])
            found = [standardised(x, w) for x, w in ((heads, block.o), (neurons, block.down))]
            groups = found[0].reshape(len(block.k) // network.head_size, -1).mean(1)
            means.append((heads.mean((0, 1)), neurons.mean((0, 1))))
            metrics.append((groups, found[1]))
        return cls(network, means, metrics)


def standardised(x: Tensor, w: Tensor) -> Tensor:
    """Return WIFV (k,) of inputs (n, t, k) of a matrix (d, k), standardised."""
    metric = x.flatten(0, 1).var(0) * w.square().sum(0)
    return (metric - metric.mean()) / metric.std()


def flap(parent: Fluctuations, budget: int, *, adaptive: bool = True) -> Network:
    """Return the network with at most so many parameters in its layers, biases included.

    Adaptive (AL-AM): groups and neurons of all layers compete by the metric, each at its price. Otherwise
    (UL-UM) all layers keep the same share of groups, rounded, and as many neurons as the budget allows.
    """
    network = parent.network
    block = network.blocks[0]
    d, depth = block.o.shape[0], len(network.blocks)
    count = len(parent.metrics[0][0])
    price = {"groups": d * 2 * (len(block.q) + len(block.k)) // count, "ffn": 3 * d}
    fixed = depth * 4 * d  # two gains and two biases a layer
    if len(block.gate) * price["ffn"] * depth + count * price["groups"] * depth + 2 * depth * d <= budget:
        return pruned(parent, [(torch.arange(count), torch.arange(len(block.gate)))] * depth, biases=False)
    left = budget - fixed
    if adaptive:
        return pruned(parent, competed(parent, left, price))
    share = left / (depth * (count * price["groups"] + len(block.gate) * price["ffn"]))
    groups = max(1, round(share * count))
    neurons = (left // depth - groups * price["groups"]) // price["ffn"]
    return pruned(
        parent,
        [tuple(top(x, n) for x, n in zip(of, (groups, neurons), strict=True)) for of in parent.metrics],
    )


def top(metric: Tensor, count: int) -> Tensor:
    return metric.topk(count).indices.sort().values


def competed(parent: Fluctuations, budget: int, price: dict[str, int]) -> list[tuple[Tensor, Tensor]]:
    """Return the groups and neurons of each layer above the lowest threshold that the budget allows."""
    metric = torch.cat([torch.cat(of) for of in parent.metrics])
    prices = torch.cat(
        [
            torch.full((len(x),), price[kind])
            for of in parent.metrics
            for kind, x in zip(price, of, strict=True)
        ]
    )
    order = metric.argsort(descending=True)
    threshold = metric[order][(prices[order].cumsum(0) <= budget).sum() - 1]
    return [tuple((x >= threshold).nonzero().flatten() for x in of) for of in parent.metrics]


def pruned(parent: Fluctuations, kept: list[tuple[Tensor, Tensor]], *, biases: bool = True) -> Network:
    """Return the network of these units; what the others send on average is a bias."""
    wide = parent.network
    child = Network(wide, wide.embedding, [])
    child.gain = wide.gain
    for block, (groups, ffn), means in zip(wide.blocks, kept, parent.means, strict=True):
        size = len(block.q) // len(block.k) * wide.head_size
        q, kv = (torch.from_numpy(spread(groups.numpy(), of)) for of in (size, wide.head_size))
        cut = replace(
            block, q=block.q[q], k=block.k[kv], v=block.v[kv], o=block.o[:, q],
            gate=block.gate[ffn], up=block.up[ffn], down=block.down[:, ffn],
        )  # fmt: skip
        if biases:
            cut.o_bias, cut.down_bias = (
                without(mean, units) @ w.T
                for mean, units, w in zip(means, (q, ffn), (block.o, block.down), strict=True)
            )
        child.blocks.append(cut)
    return child


def without(mean: Tensor, kept: Tensor) -> Tensor:
    """Return the means (k,) of what is not kept, zero elsewhere."""
    mean = mean.clone()
    mean[kept] = 0.0
    return mean
