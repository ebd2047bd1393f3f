"""Looks: numbers of tensors on their way that a proxy reduces itself, where no pass does."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from torch import Tensor

from zerolm.networks.network import Network, Tap


@dataclass(frozen=True)
class Look:
    """A need of the forward pass that is declared next to its proxy: numbers of tensors on their way.

    ``reduce(tensor)`` gives numbers of each tensor at ``taps(network)``, such as hidden states (b, t, d);
    ``passes.looked(look)`` has their means over micro-batches, tap by tap. Two of one ``name`` are the same.
    """

    name: str
    taps: Callable[[Network], Sequence[Tap]] = field(compare=False)
    reduce: Callable[[Tensor], Sequence[float]] = field(compare=False)

    def __str__(self) -> str:
        return self.name


Need = str | Look
"""A name of ``NEEDS``, or what a proxy looks at itself."""
