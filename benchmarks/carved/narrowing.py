"""A network whose residual stream has fewer dimensions: projected to bases, repaired by least squares."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

import torch
from torch import Tensor

from carved.network import GROUP, Block, Network, states
from zerolm.repairing.ridge import Fit
from zerolm.text.tokens import Tokens
from zerolm.units.kept_units import Cut

EVERY: Final = 5
"""One group of sequences in so many is held out, to choose ridges on."""
REPAIRS: Final = ("none", "outputs", "outputs and reads")


@dataclass(frozen=True, eq=False)
class Seen:
    """A network whose gains are folded, and its stream on some tokens: ``sites`` as ``states`` returns."""

    network: Network
    tokens: Tokens
    sites: list[Tensor]

    @classmethod
    def of(cls, network: Network, tokens: Tokens) -> Seen:
        return cls(network, tokens, states(network, tokens.ids))


@dataclass(frozen=True, eq=False)
class Bases:
    """``columns`` (d, k) at each site, and by what the normalised narrow stream is multiplied to be as long.

    Where neighbouring sites have the same tensor nothing stands on the residual path. ``entry`` (d, k) maps
    the embedding, where that is not the first basis.
    """

    columns: list[Tensor]
    scales: list[float]
    entry: Tensor | None = None

    @classmethod
    def shared(cls, basis: Tensor, energies: Iterable[Tensor], entry: Tensor | None = None) -> Bases:
        """Return one basis (d, k) for all sites; ``energies`` (d, d) are those of the normalised stream."""
        energies = list(energies)
        total = torch.stack(energies).sum(0)
        wide, narrow = basis.shape
        share = ((basis.T @ total @ basis).trace() / total.trace()).item()
        scale = (share * wide / narrow) ** 0.5
        return cls([basis.float()] * len(energies), [scale] * len(energies), entry)


def fitted(inputs: Iterable[Tensor], targets: Iterable[Tensor], start: Tensor) -> Tensor:
    """Return the ridge regression (k, m) of targets on inputs, pulled towards ``start``."""
    fit = Fit.empty(*start.shape, bias=False)
    for number, (x, t) in enumerate(zip(inputs, targets, strict=True)):
        fit.add(x, t, None, torch.ones(x.shape[:2]), is_held=number % EVERY == EVERY - 1)
    return fit.best(start.double())[0].float()


def narrowed(seen: Seen, bases: Bases, cut: Cut, repair: str = "outputs and reads") -> Network:
    """Return the network in these bases, of each layer the units that the cut keeps.

    Repaired are what o_proj and down_proj send, in order, towards the parent's stream in the basis behind
    them, and as the case may be what is read: the parent's normalised stream from the narrow one.
    """
    return Narrowing(seen, bases, cut, repair).network()


class Narrowing:
    """The narrow stream ``y`` beside the parent's, in groups of sequences."""

    def __init__(self, seen: Seen, bases: Bases, cut: Cut, repair: str) -> None:
        if repair not in REPAIRS:
            raise ValueError(f"repair {repair!r} is none of {REPAIRS}")
        self.wide, self.bases, self.cut = seen.network, bases, cut
        self.outputs, self.reads = repair != "none", repair == "outputs and reads"
        self.sites = [site.split(GROUP) for site in seen.sites]
        entry = bases.columns[0] if bases.entry is None else bases.entry
        self.child = Network(seen.network, seen.network.embedding @ entry, [])
        self.y = [self.child.embedding[ids] for ids in seen.tokens.ids.split(GROUP)] if self.outputs else []

    def network(self) -> Network:
        gain = torch.ones(self.bases.columns[-1].shape[1])
        for layer, wide in enumerate(self.wide.blocks):
            self.child.blocks.append(self.block(layer, wide))
        self.child.head = self.wide.head @ self.read(-1)
        self.child.gain = gain
        return self.child

    def read(self, site: int) -> Tensor:
        """Return what maps the narrow normalised stream to the parent's, (d, k)."""
        basis, scale = self.bases.columns[site], self.bases.scales[site]
        if not self.reads:
            return basis * scale
        y = (self.child.norm(y) for y in self.y)
        x = (self.child.norm(x) for x in self.sites[site])
        return fitted(y, x, basis.T * scale).T

    def block(self, layer: int, wide: Block) -> Block:
        """Return a layer, and take the stream through it."""
        kept = self.cut.layers[layer]
        q, kv, ffn = (torch.as_tensor(self.cut.kept(kept, label)) for label in ("q", "kv", "ffn"))
        before, middle, after = (self.bases.columns[(2 * layer + step)] for step in range(3))
        read = self.read(2 * layer)
        outputs = wide.o[:, q], wide.down[:, ffn]
        block = Block(
            wide.q[q] @ read, wide.k[kv] @ read, wide.v[kv] @ read, middle.T @ outputs[0],
            wide.gate[ffn], wide.up[ffn], after.T @ outputs[1],
            torch.ones(before.shape[1]), torch.ones(middle.shape[1]),
        )  # fmt: skip
        block.attention_skip = None if before is middle else before.T @ middle
        block.ffn_skip = None if middle is after else middle.T @ after
        if self.outputs:
            sent = [self.child.heads(block, y) for y in self.y]
            rest = self.y if block.attention_skip is None else [y @ block.attention_skip for y in self.y]
            block.o = self.solved(sent, rest, 2 * layer + 1, block.o)
            self.y = [r + s @ block.o.T for r, s in zip(rest, sent, strict=True)]
        read = self.read(2 * layer + 1)
        block.gate, block.up = wide.gate[ffn] @ read, wide.up[ffn] @ read
        if self.outputs:
            sent = [self.child.neurons(block, y) for y in self.y]
            rest = self.y if block.ffn_skip is None else [y @ block.ffn_skip for y in self.y]
            block.down = self.solved(sent, rest, 2 * layer + 2, block.down)
            self.y = [r + s @ block.down.T for r, s in zip(rest, sent, strict=True)]
        return block

    def solved(self, sent: list[Tensor], rest: list[Tensor], site: int, start: Tensor) -> Tensor:
        """Return the output matrix (k, n) that makes up what the stream lacks at a site."""
        basis = self.bases.columns[site]
        targets = (x @ basis - r for x, r in zip(self.sites[site], rest, strict=True))
        return fitted(sent, targets, start.T).T.contiguous()
