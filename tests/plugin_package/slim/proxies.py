"""A proxy of gradients."""

from __future__ import annotations

from zerolm.lab.zero_cost import proxy
from zerolm.lab.zero_cost.passes import Passes


@proxy("slim_gradient", source="an example", needs=["gradients"])
def slim_gradient(passes: Passes) -> float:
    """Return the sum of squared gradients."""
    return sum(float(passes.gradient(linear).square().sum()) for linear in passes.linears)
