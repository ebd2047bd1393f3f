"""Spaces by name: the sizes that the layers of a checkpoint may keep, and the way to count their costs.

A plug-in adds its own to ``SIZE_SPACES`` from the entry points ``zerolm.size_spaces``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Final

from zerolm.checkpoints import Checkpoint
from zerolm.costs import CostModel
from zerolm.planning.part_costs import Choices, PartCosts, part_costs
from zerolm.registry import Registry
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
