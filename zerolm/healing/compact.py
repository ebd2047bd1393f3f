"""A child as the network that is trained: without the zeros that fill layers up."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from transformers import PreTrainedModel

from zerolm.carving.recipe import Recipe
from zerolm.checkpoints import Checkpoint
from zerolm.networks.mapped import by_tensor, parameters
from zerolm.networks.opener import open_model
from zerolm.networks.roles import body_prefix
from zerolm.training.randomness import without_dropout
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
        without_dropout(model)  # what a teacher says is no noise to be proof against
        return cls(child, cut, model if cut.is_whole else apply_in_memory(model, cut))

    def train_only(self, role: str) -> None:
        """Let gradients reach the weights of this role alone; ``ValueError`` where there are none."""
        slots, weights = self.checkpoint.layout.slots, dict(self.model.named_parameters())
        named = parameters(self.checkpoint, body_prefix(self.model))
        places = [name for stored, names in named.items() if slots[stored].role == role for name in names]
        chosen = [weights[name] for name in places if name in weights]
        for weight in chosen:
            weight.requires_grad_(True)
        if not chosen:
            raise ValueError(
                f"a {self.checkpoint.family.name} like this one has no {role} to train: leave --only out"
            )

    def values(self) -> dict[str, NDArray[np.float32]]:
        """Return the weights as they are now by the names of the child's tensors."""
        weights = {name: weight.detach() for name, weight in self.model.named_parameters()}
        tensors = by_tensor(self.checkpoint, weights, body_prefix(self.model))
        return {stored: tensor.float().cpu().numpy() for stored, tensor in tensors}
