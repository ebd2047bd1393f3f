"""A parent with one type for all matrices: the result of quantising without a plan at equal bytes."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from transformers import PreTrainedModel

from zerolm.carving.bits.kernels import rounded
from zerolm.carving.bits.typed_child import TypedChild
from zerolm.carving.bits.weighed_child import WeighedChild
from zerolm.checkpoints import Checkpoint
from zerolm.checkpoints.gguf.header import read_gguf_header
from zerolm.checkpoints.weight_types import BY_NUMBER, QUANTISED, WeightType
from zerolm.children.child_tensors import Child
from zerolm.units.kept_units import Cut, dimensions


@dataclass(frozen=True)
class OneType:
    """A type for all matrices of a parent, without importances."""

    kind: WeightType

    @property
    def name(self) -> str:
        return f"parent in {self.kind.name}"

    def applied(self, parent: PreTrainedModel) -> PreTrainedModel:
        """Return a copy of the parent with its matrices as read back."""
        model = copy.deepcopy(parent)
        for parameter in model.parameters():
            if parameter.dim() == 2:
                values = rounded(parameter.detach().float().cpu().numpy(), self.kind, None)
                parameter.data.copy_(torch.from_numpy(values))
        return model


def of_one_type(file: Path, parent: Checkpoint) -> OneType | None:
    """Return the type with which the parent's weights have at most the bytes of a file.

    Of several the one with the smallest error. None where none is small enough, or no block size fits the
    rows.
    """
    header = read_gguf_header(file)
    room = sum(
        BY_NUMBER[header.types[name]].size(int(np.prod(shape))) for name, shape in header.tensors.items()
    )
    whole = WeighedChild(Child(parent, Cut.whole(dimensions(parent))))
    able = fitting([kind for kind in QUANTISED if not kind.needs_importances], whole, room)
    if not able:
        return None
    name = next(name for name, slot in parent.layout.slots.items() if slot.role == "down")
    sample = parent.read(name)[:64]
    return OneType(min(able, key=lambda kind: float(np.square(rounded(sample, kind, None) - sample).sum())))


def fitting(types: Sequence[WeightType], whole: WeighedChild, room: int) -> list[WeightType]:
    """Return the types that fit all matrices of a parent and keep it within ``room`` bytes."""
    return [kind for kind in types if whole.holds(kind) and everywhere(kind, whole).bytes <= room]


def everywhere(kind: WeightType, whole: WeighedChild) -> TypedChild:
    """Return a parent with one type for all matrices."""
    return TypedChild(whole, dict.fromkeys(whole.matrices, kind.name))
