"""The passes through a network that proxies share."""

from zerolm.lab.zero_cost.passes.protocol import Protocol
from zerolm.lab.zero_cost.passes.record import LossPass
from zerolm.lab.zero_cost.passes.shared import COSTS, NEEDS, Passes

__all__ = ["COSTS", "NEEDS", "LossPass", "Passes", "Protocol"]
