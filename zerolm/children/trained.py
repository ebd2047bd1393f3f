"""Trained weights that replace a checkpoint's, and the proof that they were written."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray
from transformers import PreTrainedModel

from zerolm.architecture import Ints
from zerolm.checkpoints import Checkpoint
from zerolm.checkpoints.dtypes import narrowed, widened
from zerolm.units.kept_units import Cut


@dataclass(frozen=True, eq=False)
class TrainedWeights:
    """New ``values`` of a checkpoint's tensors by name, in the shapes of the ``cut``.

    ``model`` is the network that they come from. There are no maps of a narrower stream: ``arrays`` is empty.
    """

    values: Mapping[str, NDArray[np.float32]]
    model: PreTrainedModel
    arrays: Mapping[tuple[int, str], NDArray[np.float32]] = field(default_factory=dict)

    def named(self, name: Callable[[str, int], str | None]) -> Mapping[str, NDArray[np.float32]]:
        return self.values


def check_written(child: Checkpoint, source: Checkpoint, cut: Cut, weights: TrainedWeights) -> None:
    """Compare all weights of a written child bit for bit; ``ValueError`` names the first that differs.

    ``cut`` is of ``source``, all of whose layers the child has. Where layers are padded, the padding must be
    zeros.
    """
    for name, values in weights.values.items():
        slot, dtype = source.layout.slots[name], child.tensors[name].dtype
        written = child.read(name)
        places: list[Ints | None] = [None] * values.ndim
        if slot.layer is not None:
            places = [cut.places(cut.layers[slot.layer], label) for label in slot.axes]
        whole = [np.arange(size) if at is None else at for at, size in zip(places, values.shape, strict=True)]
        wanted = widened(narrowed(values, dtype), dtype)
        same = np.array_equal(written[np.ix_(*whole)], wanted)
        if not same or np.count_nonzero(written) != np.count_nonzero(wanted):
            raise ValueError(f"{name!r} of the written child differs from the trained network's")
