"""A checkpoint with experts: their possible numbers, the costs of fewer, and scores by weights alone."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from zerolm.architecture import Floats
from zerolm.carving.experts import expert_scores
from zerolm.carving.experts.fewer_experts import FewerExperts, expert_layers
from zerolm.carving.experts.routing import Routing
from zerolm.checkpoints import Checkpoint, ledger_of
from zerolm.checkpoints.ledger import Ledger
from zerolm.costs import CostModel
from zerolm.planning.size_request import SizeRequest
from zerolm.planning.sizes import costs_of, plan_of
from zerolm.progress import Progress
from zerolm.units.importance.criterion import FirstUnits


@dataclass(frozen=True, eq=False)
class StockMixture:
    """A checkpoint with experts, whose other units are cut as in the request ``rest``."""

    checkpoint: Checkpoint
    rest: SizeRequest
    model: CostModel
    progress: Progress

    @cached_property
    def routing(self) -> Routing:
        return Routing.of(self.checkpoint)

    @cached_property
    def layers(self) -> list[int]:
        """The layers with experts, ascending."""
        return expert_layers(self.checkpoint)

    @property
    def sizes(self) -> dict[str, int]:
        """The sizes of the checkpoint by label."""
        return self.checkpoint.layout.sizes

    @cached_property
    def ledger(self) -> Ledger:
        """The per-unit sums of all weights, which are checked to be finite."""
        return ledger_of(self.checkpoint, progress=self.progress)

    def shaped(self, count: int, neurons: int | None) -> Checkpoint:
        """Return a child with these numbers of experts in a layer, and of neurons of each, for counting."""
        first = {layer: np.arange(count) for layer in self.layers}
        narrow = {layer: np.tile(np.arange(neurons or 0), (count, 1)) for layer in self.layers if neurons}
        return FewerExperts(self.checkpoint, first, neurons=narrow).shaped()

    def costs(self, count: int, neurons: int | None) -> dict[str, int]:
        """Return the costs of such a child, whose other units have their requested shares."""
        child = self.shaped(count, neurons)
        if not self.rest.keep:
            return costs_of(child, self.model)
        return dict(plan_of(child, FirstUnits(-1.0), self.rest, self.model).costs)

    def by_weights(self, layer: int) -> Floats:
        """Return scores (e,) of the experts of a layer from their weights alone."""
        return expert_scores.by_weights(self.checkpoint, layer, self.ledger)
