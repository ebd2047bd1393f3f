"""The bytes of the tensors of a file that have no type: norms, biases, and others that stay as they are."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from zerolm.architecture import Ints
from zerolm.checkpoints import Checkpoint
from zerolm.checkpoints.gguf.names import ADDED, held_in_file
from zerolm.planning.part_costs import Choices
from zerolm.units.kept_units import Cut, dimensions
from zerolm.units.within_layers import NAMES


@dataclass(frozen=True, eq=False)
class PlainBytes:
    """The bytes of tensors without a type in a file, for the choices of sizes.

    Those of ``units`` (layers, n) by kind and number of units, of the rest of each ``layer`` (layers,), and
    at the ``ends``.
    """

    units: list[Ints]
    layer: Ints
    ends: int

    @classmethod
    def of(cls, checkpoint: Checkpoint, choices: Choices) -> PlainBytes:
        """Return the bytes for a checkpoint whose matrices a file holds as they are; others are float32."""
        layout, width, parent = checkpoint.layout, choices.width, dimensions(checkpoint)
        hidden, depth = layout.hidden if width is None else width.hidden, layout.depth
        counts = dict(zip(NAMES, map(np.array, choices.units), strict=True))
        sizes = {kind: np.zeros((depth, len(each)), np.int64) for kind, each in counts.items()}
        totals: dict[int | None, int] = dict.fromkeys((None, *range(depth)), 0)
        held = held_in_file(checkpoint.family)
        for layer in totals:
            for name in layout.layer(layer).values():
                role, shape = layout.slots[name].role, checkpoint.tensors[name].shape
                if not held(role) or not layout.slots[name].axes:  # a number is a key of the file
                    continue
                label, *more = layout.slots[name].axes
                parts = list(parent.parts(label))
                if more:
                    totals[layer] += 4 * math.prod(shape) if role in ADDED else 0
                    continue
                if not parts:
                    totals[layer] += 4 * (hidden if label == "hidden" else shape[0])
                for part in parts if layer is not None else ():
                    sizes[part.kind][layer] += 4 * part.unit * counts[part.kind]
        layers = np.array([totals[layer] for layer in range(depth)], np.int64)
        return cls(list(sizes.values()), layers, totals[None])

    def of_cut(self, cut: Cut, choices: Choices) -> int:
        """Return the bytes of a cut whose sizes are among the choices."""
        total = self.ends + int(self.layer[list(cut.sizes)].sum())
        for layer, sizes in cut.sizes.items():
            rows = zip(self.units, choices.units, sizes, strict=True)
            total += sum(int(part[layer, counts.index(count)]) for part, counts, count in rows)
        return total


def plain_bytes(cut: Cut, checkpoint: Checkpoint) -> int:
    """Return the bytes of the float32 tensors in a child whose matrices have types."""
    choices = Choices.of_cut(cut)
    return PlainBytes.of(checkpoint, choices).of_cut(cut, choices)
