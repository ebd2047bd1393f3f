"""SliceGPT (arXiv 2401.15024): every block rotated by a basis of its own, small components deleted."""

from __future__ import annotations

import torch
from torch import Tensor

from carved.narrowing import Bases, Seen, narrowed
from carved.network import GROUP, Block, Network
from zerolm.units.kept_units import Cut


def slicegpt(seen: Seen, cut: Cut, width: int, repair: str = "none", *, normalised: bool = True) -> Network:
    """Return the network with so many components at every site, its head in the last basis.

    The bases are principal components of what the sliced predecessors send (section 3.3): of the RMSNorms'
    outputs as the paper defines them, or of their inputs as its authors' code does. On the residual path
    stand Q_l^T Q_l+1. Where it is repaired, that is none of theirs.
    """
    return without_gains(narrowed(seen, sliced_bases(seen, width, normalised=normalised), cut, repair))


def sliced_bases(seen: Seen, width: int, *, normalised: bool) -> Bases:
    """Return the bases (d, k) of all sites, in order on what the sliced network sends."""
    wide, d = seen.network, seen.network.embedding.shape[1]
    groups = [wide.embedding[ids] for ids in seen.tokens.ids.split(GROUP)]
    scale = (d / width) ** 0.5  # their norms divide by the root of d, ours of the mean over what there is
    columns = []
    for place in range(2 * len(wide.blocks) + 1):
        q = components(wide, groups, normalised=normalised)[:, :width]
        columns.append(q)
        if place < 2 * len(wide.blocks):
            groups = [through(wide, wide.blocks[place // 2], x, q, scale, place % 2) for x in groups]
    return Bases(columns, [scale] * len(columns))


def components(network: Network, groups: list[Tensor], *, normalised: bool) -> Tensor:
    """Return the principal components (d, d) of the stream."""
    gram: Tensor | float = 0.0
    for x in groups:
        rows = (network.norm(x) if normalised else x).flatten(0, 1)
        gram = gram + (rows.T @ rows).double()
    return torch.linalg.eigh(gram)[1].flip(1).float()


def through(network: Network, block: Block, x: Tensor, q: Tensor, scale: float, place: int) -> Tensor:
    """Return the stream (b, t, d) behind a sub-block that sees what a basis keeps of it."""
    kept = x @ q
    narrow = (network.norm(kept) @ q.T) * scale
    rows = kept @ q.T
    unit = Given(network, narrow)
    if place == 0:
        return network.after_attention(block, rows, unit.heads(block, rows))
    return network.after_ffn(block, rows, unit.neurons(block, rows))


class Given(Network):
    """A network whose norms return what they are given."""

    def __init__(self, network: Network, normed: Tensor) -> None:
        super().__init__(network, network.embedding, [])
        self.normed = normed

    def norm(self, x: Tensor, gain: Tensor | None = None) -> Tensor:
        return self.normed


def without_gains(network: Network) -> Network:
    """Drop the ones of norms that the method does not store."""
    for block in network.blocks:
        block.attention_gain = block.ffn_gain = None
    network.gain = None
    return network
