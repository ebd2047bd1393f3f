"""Gaussian hidden states in a forward, and random directions in a backward pass of one sub-block at a
time."""

from __future__ import annotations

from contextlib import ExitStack, suppress
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from zerolm.lab.zero_cost.passes.record import Protocol, RowSums
from zerolm.lab.zero_cost.passes.taps import as_it_was, entering, logits_of, looking, widened
from zerolm.networks.batch import Batch
from zerolm.networks.hooks import Enough
from zerolm.networks.network import Network


@dataclass(frozen=True)
class Transfer:
    """AZ-NAS's statistics of the n hidden states after each sub-block.

    ``entropies`` (n,): of the spectrum of their covariance over samples and tokens, normalised to sum 1.
    ``gains`` (n - 1,): the largest singular value of E[u v^T], where u is what a random v of +-1 at one
    state becomes at the state before; None where u equals v. ``macs`` are the multiply-accumulates of one
    input's matrix products and convolutions, up to the head.
    """

    entropies: tuple[float, ...]
    gains: tuple[float | None, ...]
    macs: float


def run_transfer(network: Network, batch: Batch, protocol: Protocol) -> Transfer:
    """Return the statistics of AZ-NAS (arXiv 2403.19232, section 3), in evaluation mode.

    The first layer gets standard Gaussian hidden states; of the batch only its shape counts. ``ValueError``
    where hidden states are not finite.
    """
    count = len(network.stream)
    sums = [RowSums() for _ in range(count)]
    products: list[Tensor | float] = [0.0] * (count - 1)
    same = [True] * (count - 1)
    states: dict[int, Tensor] = {}
    with ExitStack() as stack:
        stack.enter_context(as_it_was(network, protocol))
        macs = _macs(network, batch)
        stack.enter_context(entering(network, lambda x: torch.randn_like(x).requires_grad_()))
        stack.enter_context(looking(network.stream, states.__setitem__))
        for part in batch.micro(protocol.parts):
            logits_of(network, part)
            features = [states[index] for index in range(count)]
            for feature, rows in zip(features, sums, strict=True):
                if not torch.isfinite(feature).all():
                    raise ValueError("the hidden states are not finite: are the weights?")
                rows.add(feature)
            for index in range(count - 1, 0, -1):
                above, below = features[index], features[index - 1]
                v = torch.randint(0, 2, above.shape, device=above.device).to(above) * 2 - 1
                (u,) = torch.autograd.grad(above, below, v, retain_graph=True)
                if u.shape != v.shape or not torch.equal(u, v):
                    same[index - 1] = False
                if u.shape[:-1] == v.shape[:-1]:
                    u, v = (widened(x).flatten(0, -2) for x in (u, v))
                    products[index - 1] = products[index - 1] + u.T @ v
            states.clear()
            del features
    gains = [
        None if equal or isinstance(product, float) else float(torch.linalg.matrix_norm(product / n.count, 2))
        for equal, product, n in zip(same, products, sums[1:], strict=True)
    ]
    return Transfer(tuple(map(_entropy, sums)), tuple(gains), macs)


def _macs(network: Network, batch: Batch) -> float:
    """Return the multiply-accumulates of a sample, up to the head."""

    def stop(*_: object) -> None:
        raise Enough

    counter = FlopCounterMode(display=False)
    with torch.no_grad(), counter, suppress(Enough), looking([network.final], stop):
        network.module(batch.inputs[:1], batch.classes)
    return counter.get_total_flops() / 2


def _entropy(rows: RowSums) -> float:
    """Return -sum p ln p over the normalised eigenvalues of the covariance of rows."""
    covariance = rows.second / rows.count - torch.outer(rows.total, rows.total) / rows.count**2
    values = torch.linalg.eigvalsh(covariance).clamp_min(0)
    p = values / values.sum()
    return float(-(p * torch.log(p + 1e-8)).sum())
