"""Minitron (arXiv 2407.14679): channels, neurons and heads by their activations; nothing is distilled."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from carved.narrowing import fitted
from carved.network import GROUP, Block, Network, states
from carved.ours import Shape
from zerolm.text.tokens import Tokens
from zerolm.units.kept_units import best, spread


@dataclass(frozen=True, eq=False)
class Activations:
    """Importance: of channels (d,), and layer by layer of KV groups (g,) and neurons (f,)."""

    network: Network
    tokens: Tokens
    sites: list[Tensor]
    channels: Tensor
    groups: list[Tensor]
    neurons: list[Tensor]

    @classmethod
    def of(cls, network: Network, tokens: Tokens) -> Activations:
        """Return mean magnitudes over the tokens of a sequence, aggregated by L2 over sequences.

        Of a channel what all norms send of it is summed, of a neuron it is what down_proj reads (the paper's
        FFN has no gate), of a KV group the L2 norms of its heads' outputs are summed.
        """
        sites = states(network, tokens.ids)
        norms = [gain for b in network.blocks for gain in (b.attention_gain, b.ffn_gain)] + [network.gain]
        channels = sum(score(network.norm(x, gain)) for x, gain in zip(sites, norms, strict=True))
        groups, neurons = [], []
        for layer, block in enumerate(network.blocks):
            heads, sent = [], []
            for x, y in zip(sites[2 * layer].split(GROUP), sites[2 * layer + 1].split(GROUP), strict=True):
                heads.append(network.heads(block, x).unflatten(-1, (-1, network.head_size)).norm(dim=-1))
                sent.append(network.neurons(block, y).abs().mean(1, keepdim=True))
            groups.append(score(torch.cat(heads)).reshape(kv_heads(network, block), -1).sum(1))
            neurons.append(score(torch.cat(sent)))
        return cls(network, tokens, sites, channels, groups, neurons)


def score(x: Tensor) -> Tensor:
    """Aggregate activations (n, t, units): mean magnitude over a sequence, L2 over sequences."""
    return x.abs().mean(1).norm(dim=0)


def kv_heads(network: Network, block: Block) -> int:
    return len(block.k) // network.head_size


def minitron(parent: Activations, shape: Shape, repair: str = "none") -> Network:
    """Return the network of a shape, its head tied.

    Repaired by ``outputs``, which is none of theirs: o_proj and down_proj in order towards the parent's
    stream on the kept channels.
    """
    wide = parent.network
    kept = torch.from_numpy(best(parent.channels.tolist(), shape.hidden))
    child = Network(wide, wide.embedding[:, kept], [])
    child.gain = wide.gain[kept]
    y = [child.embedding[ids] for ids in parent.tokens.ids.split(GROUP)] if repair != "none" else []
    for layer, block in enumerate(wide.blocks):
        groups = best(parent.groups[layer].tolist(), shape.groups)
        heads = len(block.q) // len(block.k) * wide.head_size
        q, kv = (torch.from_numpy(spread(groups, size)) for size in (heads, wide.head_size))
        ffn = torch.from_numpy(best(parent.neurons[layer].tolist(), shape.ffn))
        cut = Block(
            *(w[rows][:, kept] for w, rows in ((block.q, q), (block.k, kv), (block.v, kv))),
            block.o[kept][:, q],
            block.gate[ffn][:, kept],
            block.up[ffn][:, kept],
            block.down[kept][:, ffn],
            block.attention_gain[kept],
            block.ffn_gain[kept],
        )
        child.blocks.append(cut)
        if repair != "none":
            sent = [child.heads(cut, x) for x in y]
            cut.o = towards(parent.sites[2 * layer + 1], kept, y, sent, cut.o)
            y = [x + s @ cut.o.T for x, s in zip(y, sent, strict=True)]
            sent = [child.neurons(cut, x) for x in y]
            cut.down = towards(parent.sites[2 * layer + 2], kept, y, sent, cut.down)
            y = [x + s @ cut.down.T for x, s in zip(y, sent, strict=True)]
    return child


def towards(site: Tensor, kept: Tensor, y: list[Tensor], sent: list[Tensor], start: Tensor) -> Tensor:
    """Return the output matrix (k, n) that makes up what the stream lacks of the parent's."""
    targets = (x[..., kept] - r for x, r in zip(site.split(GROUP), y, strict=True))
    return fitted(sent, targets, start.T).T.contiguous()
