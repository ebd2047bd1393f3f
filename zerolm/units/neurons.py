"""FFN neurons: a column of the down projection with its rows of the matrices before it."""

from __future__ import annotations

from collections.abc import Mapping

from zerolm.families.config import CoreSizes
from zerolm.units.layer_unit import LayerUnit


class Neurons(LayerUnit):
    """One neuron of an FFN, or of the shared expert that a family counts as its FFN."""

    name = "ffn"
    share = "ffn"
    shown = "FFN neurons"
    axis = "ffn"
    matrices = ("gate", "up", "down")

    def count(self, sizes: CoreSizes) -> int:
        return sizes.ffn

    def counted(self, sizes: CoreSizes) -> Mapping[str, int]:
        return {"ffn": 1}

    def axes(self, sizes: CoreSizes) -> Mapping[str, tuple[str, int]]:
        return {"ffn": ("ffn", 1)}
