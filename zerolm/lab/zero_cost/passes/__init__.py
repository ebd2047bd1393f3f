"""The passes through a network that proxies share."""

from zerolm.lab.zero_cost.passes.loss import LossPass
from zerolm.lab.zero_cost.passes.record import Look, Need, Protocol
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
