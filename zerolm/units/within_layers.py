"""The kinds of units within layers, in the order in which the sizes of a layer are listed."""

from __future__ import annotations

from typing import Final

from zerolm.units.groups import Groups
from zerolm.units.layer_unit import LayerUnit
from zerolm.units.neurons import Neurons

UNITS: Final[tuple[LayerUnit, ...]] = (Groups(), Neurons())
NAMES: Final = tuple(unit.name for unit in UNITS)
LayerSizes = tuple[int, ...]
"""The number of units that a layer keeps of each of ``UNITS``."""


def unit_of_role(role: str) -> LayerUnit:
    """Return the units of a layer's matrix with this role, such as ``gate`` or ``q+k+v``."""
    first = role.partition("+")[0]
    return next(unit for unit in UNITS if first in unit.matrices)
