"""The passes through a network that proxies share."""

from zerolm.lab.zero_cost.passes.look import Look, Need
from zerolm.lab.zero_cost.passes.protocol import Protocol
from zerolm.lab.zero_cost.passes.record import LossPass
from zerolm.lab.zero_cost.passes.shared import COSTS, NEEDS, Passes, pass_of, steps_of

__all__ = [
    "COSTS",
    "NEEDS",
    "Look",
    "LossPass",
    "Need",
    "Passes",
    "Protocol",
    "pass_of",
    "steps_of",
]
