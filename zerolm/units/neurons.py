"""FFN neurons: a column of the down projection with its rows of the matrices before it."""

from __future__ import annotations

from collections.abc import Mapping

from zerolm.families.core_sizes import CoreSizes
from zerolm.settings.request import setting
from zerolm.units.layer_unit import LayerUnit


class Neurons(LayerUnit):
    """One neuron of an FFN, or of the shared expert that a family counts as its FFN."""

    name = "ffn"
    share = "ffn"
    shown = "FFN neurons"
    matrices = ("gate", "up", "down")
    is_fine = True
    setting = setting("number", None, "share of FFN neurons to keep", name="keep_ffn", low=0, high=1)

    def count(self, sizes: CoreSizes) -> int:
        return sizes.ffn

    def counted(self, sizes: CoreSizes) -> Mapping[str, int]:
        return {"ffn": 1}

    def axes(self, sizes: CoreSizes) -> Mapping[str, tuple[str, int]]:
        return {"ffn": ("ffn", 1)}
