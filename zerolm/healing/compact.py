"""A child as the network that is trained: without the zeros that fill layers up."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from torch import nn
from transformers import PreTrainedModel

from zerolm.carving.recipe import Recipe
from zerolm.checkpoints import Checkpoint
from zerolm.networks.mapped import parameters
from zerolm.networks.opener import open_model
from zerolm.networks.roles import body_prefix
from zerolm.training.randomness import set_dropout
from zerolm.units.kept_units import Cut, LayerCut, dimensions
from zerolm.units.pruning import apply_in_memory


@dataclass(frozen=True, eq=False)
class Compact:
    """A child, the ``cut`` of its folder that leaves the zeros out, and the network of that cut."""

    checkpoint: Checkpoint
    cut: Cut
    model: PreTrainedModel

    @classmethod
    def of(cls, child: Checkpoint, recipe: Recipe) -> Compact:
        """Return the network of a child in memory, in float32, its layers with the widths of its recipe.

        It has no dropout.
        """
        sizes = dimensions(child)
        cut = Cut(
            sizes,
            tuple(
                LayerCut.of(place, *map(np.arange, layer.sizes))
                for place, layer in enumerate(recipe.cut.layers)
            ),
        )
        model = open_model(child)
        for weight in model.parameters():  # of what is stored fused, classes that hold it apart have views
            if weight.untyped_storage().nbytes() > weight.numel() * weight.element_size():
                weight.data = weight.data.clone()
        set_dropout(model, 0.0)  # what a teacher says is no noise to be proof against
        return cls(child, cut, model if cut.is_whole else apply_in_memory(model, cut))

    def train_only(self, role: str) -> None:
        """Let gradients reach the weights of this role alone; ``ValueError`` where there are none."""
        slots = self.checkpoint.layout.slots
        places = [name for stored, names, _ in self._parameters() for name in names
                  if slots[stored].role == role]  # fmt: skip
        for name in places:
            self.model.get_parameter(name).requires_grad_(True)
        if not places:
            raise ValueError(
                f"a {self.checkpoint.family.name} like this one has no {role} to train: leave --only out"
            )

    def _parameters(self) -> Iterator[tuple[str, list[str], bool]]:
        """Yield each tensor of the child, the network's parameters that it holds, and whether it has all."""
        weights = {name for name, _ in self.model.named_parameters()}
        prefix = body_prefix(self.model)
        for stored, roles in parameters(self.checkpoint).items():
            names = [name for role in roles for name in {role: 0, f"{prefix}{role}": 0} if name in weights]
            yield stored, names, len(names) == len(roles)

    def values(self) -> dict[str, NDArray[np.float32]]:
        """Return the weights as they are now by the names of the child's tensors."""
        weights = dict(self.model.named_parameters())
        stored_in: dict[str, list[str]] = {}
        values = dict[str, NDArray[np.float32]]()
        for stored, names, has_all in self._parameters():
            if has_all and len(names) == 1:
                stored_in.setdefault(names[0], []).append(stored)
            elif has_all:
                arrays = [_array(weights[name]) for name in names]
                axis = self.checkpoint.layout.slots[stored].parts[0].axis
                values[stored] = np.concatenate(arrays, axis)
        for name, several in stored_in.items():
            values |= self._apart(_array(weights[name]), several)
        return values

    def _apart(self, whole: NDArray[np.float32], stored: list[str]) -> dict[str, NDArray[np.float32]]:
        """Return the values of each of the tensors in which a parameter is stored.

        Experts that are stored one by one follow one another: all gates, then all up projections.
        """
        if len(stored) == 1:
            shape = self.checkpoint.tensors[stored[0]].shape
            is_turned = self.checkpoint.layout.slots[stored[0]].transposed and whole.ndim == 3
            return {stored[0]: whole.swapaxes(1, 2) if is_turned and whole.shape != shape else whole}
        count, starts, values = len(whole), [0] * len(whole), dict[str, NDArray[np.float32]]()
        for number, name in enumerate(stored):
            expert, rows = number % count, self.checkpoint.tensors[name].shape[0]
            values[name] = whole[expert, starts[expert] : starts[expert] + rows]
            starts[expert] += rows
        return values


def _array(weight: nn.Parameter) -> NDArray[np.float32]:
    return weight.detach().float().cpu().numpy()
