"""The passes through a network that proxies share."""

from zerolm.networks.passes.protocol import Protocol
from zerolm.networks.passes.record import LossPass
from zerolm.networks.passes.shared import COSTS, NEEDS, Passes

__all__ = ["COSTS", "NEEDS", "LossPass", "Passes", "Protocol"]
