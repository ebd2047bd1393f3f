"""For the commands that are not declared yet."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from zerolm.commands.costs import CONDITIONS
from zerolm.costs import CostModel


def cost_model(given: Mapping[str, Any]) -> CostModel:
    """Return how a network is run, from what is given of ``CONDITIONS`` (None: not given)."""
    return CostModel(**{s.name: s.parse(given[s.name]) for s in CONDITIONS if given.get(s.name) is not None})
