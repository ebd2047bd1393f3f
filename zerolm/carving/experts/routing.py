"""The possible numbers of experts in a layer: the requirements of its router."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from zerolm.carving.experts.fewer_experts import AXIS, expert_layers
from zerolm.checkpoints import Checkpoint
from zerolm.settings.units import KeptUnits

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
