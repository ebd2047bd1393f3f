"""Spaces by name: the sizes that the layers of a checkpoint may keep, and the way to count their costs.

A plug-in adds its own to ``SIZE_SPACES`` from the entry points ``zerolm.size_spaces``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Final

from zerolm.checkpoints import Checkpoint
from zerolm.costs import CostModel
from zerolm.planning.part_costs import Choices, PartCosts, part_costs
from zerolm.registry import Entry, Registry
from zerolm.spaces.subnetworks import ffn_sizes
from zerolm.units.kept_units import dimensions
from zerolm.units.within_layers import LayerSizes


class SizeSpace(ABC):
    """Sizes that each layer of some checkpoint may keep; costs are counted as usual."""

    @abstractmethod
    def choices(self, checkpoint: Checkpoint) -> Choices:
        """Return the sizes of each layer; ``ValueError`` where the space is not for this checkpoint."""

    @abstractmethod
    def heuristic(self, choices: Choices) -> list[LayerSizes]:
        """Return the sizes of each layer of the space's subnet that needs no measurement."""

    def part_costs(self, checkpoint: Checkpoint, choices: Choices, costs: CostModel) -> PartCosts:
        """Return the costs of the parts of a checkpoint."""
        return part_costs(checkpoint, choices, costs)


SIZE_SPACES: Final[Registry[SizeSpace]] = Registry("space", "zerolm.size_spaces")
SLICED_HEADS: Final = ("bert", "camembert", "electra", "ernie", "roberta", "xlm-roberta")
"""Families whose stock classes do not support fewer heads, but a network in memory does."""


class HeadsFfn(SizeSpace):
    """All numbers of KV groups where heads can be cut, and FFN widths in steps of 1/64 where neurons can."""

    def choices(self, checkpoint: Checkpoint) -> Choices:
        parent, family = dimensions(checkpoint), checkpoint.family
        cuts_heads = family.cut.heads or family.name in SLICED_HEADS
        groups = tuple(range(1, parent.kv_heads + 1)) if cuts_heads else (parent.kv_heads,)
        ffn = tuple(ffn_sizes(parent.ffn)) if family.cut.ffn else (parent.ffn,)
        if len(groups) == len(ffn) == 1:
            raise ValueError(f"neither heads nor FFN of this {family.name} can be cut: {family.cut.note}")
        return Choices((groups, ffn), (parent.depth,))

    def heuristic(self, choices: Choices) -> list[LayerSizes]:
        return [tuple(counts[len(counts) // 2] for counts in choices.units)] * choices.depth[0]


SIZE_SPACES.add(Entry("heads-ffn", HeadsFfn(), "heads and FFN of any parent"))
