"""A checkpoint with experts: what its router requires, the costs of fewer, and scores by weights alone."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np

from zerolm.architecture import Floats
from zerolm.carving.experts import expert_scores
from zerolm.carving.experts.fewer_experts import AXIS, FewerExperts, expert_layers
from zerolm.checkpoints import Checkpoint, ledger_of
from zerolm.checkpoints.ledger import Ledger
from zerolm.costs import CostModel
from zerolm.planning.size_request import SizeRequest
from zerolm.planning.sizes import costs_of, plan_of
from zerolm.progress import Progress
from zerolm.settings.units import KeptUnits
from zerolm.units.importance.criterion import FirstUnits

GROUP_LEAST: Final = 2
"""Routers with groups score a group by its two best experts, or by its best."""
LIMITED: Final = "group_limited_greedy"
EXPERTS: Final = KeptUnits("--keep-experts", "experts", "0.5")


@dataclass(frozen=True)
class Routing:
    """The numbers of experts of a layer, of active ones for a token, of router groups, and of chosen groups.

    Experts of a group are consecutive. Without groups there is one group, which is always chosen.
    """

    experts: int
    active: int
    groups: int = 1
    chosen: int = 1

    @classmethod
    def of(cls, checkpoint: Checkpoint) -> Routing:
        """Return the routing of a checkpoint; ``ValueError`` for one without experts."""
        from zerolm.networks.opener import text_config

        if not checkpoint.family.has_experts or not expert_layers(checkpoint):
            raise ValueError(f"a {checkpoint.family.name} like this one has no experts to take out")
        sizes, config = checkpoint.layout.sizes, text_config(checkpoint)
        experts, active = sizes[AXIS], sizes["active"]
        groups = int(getattr(config, "n_group", None) or 1)
        if getattr(config, "topk_method", LIMITED) not in (LIMITED, "noaux_tc"):
            groups = 1
        chosen = int(getattr(config, "topk_group", None) or 1) if groups > 1 else 1
        if experts % groups:
            raise ValueError(f"{groups} groups of routing do not divide {experts} experts")
        return cls(experts, active, groups, chosen)

    def possible(self, multiple_of: int = 1) -> list[int]:
        """Return the possible numbers of kept experts of a layer, ascending."""
        return [count for count in range(1, self.experts + 1) if not self._fault(count, multiple_of)]

    def size(self, text: str, multiple_of: int = 1) -> int:
        """Return the number of experts for ``8``, ``0.5`` or ``0.5x``; ``ValueError`` if impossible."""
        exact, _ = EXPERTS.wanted(text, self.experts)
        count = int(exact)
        fault = self._fault(count, multiple_of)
        if exact != count:
            fault = f"{text} of {self.experts} experts is no whole number"
        if fault:
            near = min(self.possible(multiple_of), key=lambda other: (abs(other - exact), -other))
            raise ValueError(f"--keep-experts {text}: {fault}; the nearest that can be is {near}")
        return count

    def _fault(self, count: int, multiple_of: int) -> str:
        """Return why a layer cannot keep ``count`` experts; empty where it can."""
        per_group = count // self.groups
        if count > self.experts:
            return f"a layer has {self.experts} experts"
        if count < self.active:
            return f"each token uses {self.active} experts, so that at least these must be kept"
        if count % self.groups:
            return f"the router has {self.groups} groups, which do not divide {count}"
        if self.groups > 1 and per_group < GROUP_LEAST:
            return f"the router judges a group by {GROUP_LEAST} experts, and {per_group} would be left"
        if per_group * self.chosen < self.active:
            return f"{self.chosen} groups of {per_group} experts are fewer than the {self.active} of a token"
        if count % multiple_of:
            return f"{count} is no multiple of {multiple_of} (--expert-parallel)"
        return ""


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
