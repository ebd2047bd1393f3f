"""A child as the network that is trained: without the zeros that fill layers up."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from transformers import PreTrainedModel

from zerolm.carving.kept_units import Cut, LayerCut, dimensions
from zerolm.carving.pruning import apply_in_memory
from zerolm.carving.recipe import Recipe
from zerolm.checkpoints import Checkpoint
from zerolm.networks.mapped import parameters
from zerolm.networks.opener import open_model
from zerolm.training.randomness import set_dropout


@dataclass(frozen=True, eq=False)
class Compact:
    """A child, the ``cut`` of its folder that leaves the zeros out, and the network of that cut."""

    checkpoint: Checkpoint
    cut: Cut
    model: PreTrainedModel

    @classmethod
    def of(cls, child: Checkpoint, recipe: Recipe) -> Compact:
        """Return the network of a child in memory, in float32, its layers as wide as its recipe says.

        It has no dropout.
        """
        sizes = dimensions(child)
        cut = Cut(
            sizes,
            tuple(
                LayerCut(place, np.arange(len(layer.groups)), np.arange(len(layer.ffn)))
                for place, layer in enumerate(recipe.cut.layers)
            ),
        )
        model = open_model(child)
        set_dropout(model, 0.0)  # what a teacher says is no noise to be proof against
        return cls(child, cut, model if cut.is_whole else apply_in_memory(model, cut))

    def values(self) -> dict[str, NDArray[np.float32]]:
        """Return the weights as they are now by the names of the child's tensors."""
        weights = dict(self.model.named_parameters())
        prefix = f"{self.model.base_model_prefix}."
        values = dict[str, NDArray[np.float32]]()
        for stored, roles in parameters(self.checkpoint).items():
            names = [name for role in roles for name in (role, f"{prefix}{role}") if name in weights]
            if len(names) == len(roles):
                arrays = [weights[name].detach().float().cpu().numpy() for name in names]
                axis = self.checkpoint.layout.slots[stored].parts[0].axis
                values[stored] = arrays[0] if len(arrays) == 1 else np.concatenate(arrays, axis)
        return values
