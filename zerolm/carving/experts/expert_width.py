"""The number of neurons of each expert, and the possible ones: one for all experts, in the configuration."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from zerolm.architecture import Ints
from zerolm.carving.experts.fewer_experts import NEURONS, expert_layers, with_neurons
from zerolm.checkpoints import Checkpoint
from zerolm.families.config import sizes_of
from zerolm.families.values import part_at
from zerolm.planning.size_request import SizeRequest
from zerolm.planning.sizes import EXPERTS_MULTIPLE
from zerolm.settings.units import KeptUnits

KEPT: Final = KeptUnits("--keep-expert-ffn", "neurons", "0.75")


@dataclass(frozen=True)
class ExpertWidth:
    """The number of neurons of an expert of the parent (``whole``), and the numbers ``possible``, ascending.

    Stock classes multiply all experts at once, with rows of a multiple of eight numbers.
    """

    whole: int
    step: int
    possible: tuple[int, ...]

    @classmethod
    def of(cls, checkpoint: Checkpoint, request: SizeRequest) -> ExpertWidth:
        """Return the width of a checkpoint's experts; ``ValueError`` where it cannot be changed alone."""
        family, whole = checkpoint.family, checkpoint.layout.sizes.get(NEURONS, 0)
        if not family.has_experts or not whole or not expert_layers(checkpoint):
            raise ValueError(f"a {family.name} like this one has no experts whose neurons can be pruned")
        if checkpoint.packed:
            raise ValueError(
                "the parent is stored quantised, in blocks of several neurons: give no --keep-expert-ffn"
            )
        step = math.lcm(EXPERTS_MULTIPLE, request.multiple_of or 1, request.tensor_parallel)
        slots = checkpoint.layout.slots.items()
        others = {
            label: name
            for name, slot in slots
            if not slot.of_experts
            for axis in slot.axes
            for label in axis.split("+")
        }
        faults = {count: _fault(checkpoint, count, others) for count in range(step, whole, step)}
        if faults and all(faults.values()):
            raise ValueError(next(iter(faults.values())))
        possible = [count for count, fault in faults.items() if not fault]
        return cls(whole, step, (*possible, whole))

    def check(self, neurons: Mapping[int, Ints]) -> None:
        """Raise ``ValueError`` for neurons (e, n) by layer of a recipe that do not fit the parent."""
        sizes = {rows.shape[1] for rows in neurons.values()}
        if len(sizes) != 1 or not sizes <= {*self.possible}:
            raise ValueError("the recipe keeps other numbers of neurons than experts of its parent can have")

    def size(self, text: str) -> tuple[int, str]:
        """Return the number of neurons for ``512``, ``0.75`` or ``0.75x``, and a note on rounding.

        A share is rounded to the nearest possible number; ties go to the larger. Raises ``ValueError`` for an
        impossible number.
        """
        exact, is_share = KEPT.wanted(text, self.whole)
        near = min(self.possible, key=lambda count: (abs(count - exact), -count))
        if near == exact:
            return near, ""
        if is_share:
            return (
                near,
                f"{text} of {self.whole} neurons of an expert is {exact.normalize():f}: {near} are kept",
            )
        raise ValueError(
            f"--keep-expert-ffn {text}: an expert has {self.whole} neurons and keeps a multiple of "
            f"{self.step} that leaves shared experts unchanged; the nearest that can be is {near}"
        )


def _fault(checkpoint: Checkpoint, count: int, others: Mapping[str, str]) -> str:
    """Return why experts cannot have ``count`` neurons with all other widths unchanged; empty where they can.

    ``others`` are the axes of tensors that belong to no expert, each with the name of a tensor.
    """
    family, layout, config = checkpoint.family, checkpoint.layout, checkpoint.config
    at = part_at(family, config)
    try:
        part = with_neurons(checkpoint, config if at is None else config[at], count)
        sizes = sizes_of(family, part if at is None else {**config, at: part}).sizes
    except ValueError as error:
        return str(error)
    name = next(
        (others[label] for label in sizes if label in others and sizes[label] != layout.sizes[label]), ""
    )
    return name and (
        f"experts of a {family.name} have their width in common with {name!r}: neurons of experts alone "
        "cannot leave"
    )
