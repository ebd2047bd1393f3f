"""Which dimensions of the residual stream to keep: what it holds, and what that matters to."""

from __future__ import annotations

from typing import Final

import torch
from torch import Tensor
from torch.nn import functional

from carved.narrowing import Seen
from carved.network import Network
from zerolm.text.tokens import Tokens

SEQUENCES: Final = 64
BATCH: Final = 8


def energies(seen: Seen) -> list[Tensor]:
    """Return the second moments of the normalised stream at every site, (d, d) float64 each."""
    normed = (seen.network.norm(site).flatten(0, 1) for site in seen.sites)
    return [(x.T @ x).double() / len(x) for x in normed]


def loss_grams(network: Network, tokens: Tokens) -> Tensor:
    """Return the sum over sites of E[g g^T], (d, d), g the gradient in the normalised stream of
    -log p(y), y drawn from the network's own prediction: the Fisher information's blocks."""
    draw = torch.Generator().manual_seed(0)
    gram = torch.zeros(network.embedding.shape[1], network.embedding.shape[1], dtype=torch.float64)
    tokens = tokens.spread(SEQUENCES)
    for ids in tokens.ids.split(BATCH):
        with torch.enable_grad():
            normed: list[Tensor] = []
            tapped = Tapped(network, normed)
            log = functional.log_softmax(tapped(ids).logits.flatten(0, 1), dim=-1)  # (n, v)
            said = torch.multinomial(log.detach().exp(), 1, generator=draw)
            slopes = torch.autograd.grad(-log.gather(1, said).sum(), normed)
        for slope in slopes:
            rows = slope.flatten(0, 1)
            gram += rows.T @ rows
    return gram / tokens.count


class Tapped(Network):
    """A network that notes what each norm returns, as something to differentiate by."""

    def __init__(self, network: Network, normed: list[Tensor]) -> None:
        super().__init__(network, network.embedding, network.blocks)
        self.gain, self.head, self.normed = network.gain, network.head, normed

    def norm(self, x: Tensor, gain: Tensor | None = None) -> Tensor:
        x = super().norm(x)
        if not x.requires_grad:
            x = x.requires_grad_()
        self.normed.append(x)
        return x if gain is None else x * gain


def read_grams(network: Network) -> Tensor:
    """Return the sum of W^T W of all that reads the stream, each of the same weight, (d, d)."""
    readers = [w for b in network.blocks for w in (b.q, b.k, b.v, b.gate, b.up)] + [network.head]
    return sum(one_gram(w) for w in readers)


def written_grams(network: Network) -> Tensor:
    """Return the second moments of the stream as far as weights tell: the normalised rows of the embedding
    and, as heavy, what o_proj and down_proj write, (d, d)."""
    rows = network.norm(network.embedding).double()
    writers = sum(w.double() @ w.double().T for b in network.blocks for w in (b.o, b.down))
    held = rows.T @ rows / len(rows)
    return held + writers * (held.trace() / writers.trace())


def one_gram(w: Tensor) -> Tensor:
    w = w.double()
    return w.T @ w / w.square().sum()


def basis(held: Tensor, matters: Tensor | None = None) -> Tensor:
    """Return an orthogonal (d, d) float64 whose first columns keep most of ``held`` where it ``matters``.

    Q of Q R = G^1/2 V, V the eigenvectors, descending, of G^1/2 C G^1/2; without G those of C.
    """
    if matters is None:
        return torch.linalg.eigh(held)[1].flip(1)
    values, vectors = torch.linalg.eigh(matters / matters.trace())
    root = (vectors * values.clamp_min(0).sqrt()) @ vectors.T
    directions = torch.linalg.eigh(root @ held @ root)[1].flip(1)
    q, r = torch.linalg.qr(root @ directions)
    return q * torch.sign(torch.diagonal(r))
