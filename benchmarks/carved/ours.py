"""A stock child of any hidden width, its FFN and its KV groups, as zerolm carves it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor
from transformers import PreTrainedModel

from carved.bases import basis, energies, loss_grams
from carved.narrowing import Bases, Seen, narrowed
from carved.network import Network
from zerolm.passes.loss_moments import loss_moments
from zerolm.repairing.walk import repair
from zerolm.text.tokens import Tokens
from zerolm.units.importance.criterion import Criterion
from zerolm.units.kept_units import Cut
from zerolm.units.pruning import apply_in_memory, dimensions_of
from zerolm.units.stream.in_memory import loss_basis
from zerolm.units.stream.narrowing import Basis, Width


@dataclass(frozen=True, order=True)
class Shape:
    """The same sizes in all layers."""

    hidden: int
    ffn: int
    groups: int

    def __str__(self) -> str:
        return f"{self.hidden} x {self.ffn} x {self.groups}"


@dataclass(eq=False)
class Calibrated:
    """A parent and what is learnt of it from tokens, each once."""

    model: PreTrainedModel
    tokens: Tokens
    by: Criterion

    @cached_property
    def network(self) -> Network:
        return Network.of(self.model)

    @cached_property
    def seen(self) -> Seen:
        return Seen.of(self.network.folded(), self.tokens)

    @cached_property
    def energies(self) -> list[Tensor]:
        return energies(self.seen)

    @cached_property
    def loss(self) -> Tensor:
        return loss_grams(self.seen.network, self.tokens)

    @cached_property
    def basis(self) -> Tensor:
        """The basis (d, d) that the loss feels most."""
        return basis(torch.stack(self.energies).sum(0), self.loss)

    @cached_property
    def zerolm_basis(self) -> Basis:
        """The basis as zerolm finds it."""
        return loss_basis(self.model, loss_moments(self.model, self.tokens, with_stream=True).fisher)

    def cut(self, shape: Shape) -> Cut:
        """Return the units that the criterion keeps; of a cut the hidden width is no part."""
        sizes = dimensions_of(self.model)
        return Cut.of(sizes, range(sizes.depth), lambda layer: (shape.groups, shape.ffn), self.by.choose)


def carved(parent: Calibrated, shape: Shape, tied: bool, how: str = "least-squares") -> PreTrainedModel:
    """Return the child of a shape as zerolm carves and repairs it, in memory."""
    narrowing = parent.zerolm_basis.narrowing(Width(shape.hidden, tied))
    cut = replace(parent.cut(shape), narrowing=narrowing)
    return apply_in_memory(parent.model, cut, repair(parent.model, cut, parent.tokens, how))


def ours(parent: Calibrated, shape: Shape, tied: bool, how: str) -> Network:
    """Return the same by the quick twin of the formulas here, with a tied head or one of its own."""
    chosen = parent.basis[:, : shape.hidden]
    if not tied:
        return narrowed(parent.seen, Bases.shared(chosen, parent.energies), parent.cut(shape), how)
    gains = parent.network.gain.double()
    slopes, turned = torch.linalg.eigh(chosen.T @ (gains[:, None] * chosen))
    chosen = chosen @ turned  # R^T diag(g) R is diagonal
    last = parent.energies[-1]
    back = last @ chosen @ torch.linalg.inv(chosen.T @ last @ chosen)  # (d, k): the whole from what is kept
    entry = (gains[:, None] * back / slopes).float()
    bases = Bases.shared(chosen, parent.energies, entry)
    child = narrowed(parent.seen, bases, parent.cut(shape), how)
    child.head, child.gain = None, (slopes * bases.scales[-1]).float()
    return child
