"""KV groups: a key/value head with the query heads that use it."""

from __future__ import annotations

from collections.abc import Mapping

from zerolm.families.core_sizes import CoreSizes
from zerolm.settings.request import setting
from zerolm.units.layer_unit import LayerUnit


class Groups(LayerUnit):
    """One key/value head with its ``heads // kv_heads`` query heads; without grouped queries one head."""

    name = "groups"
    share = "heads"
    shown = "KV groups"
    matrices = ("q", "k", "v", "o")
    is_fine = False
    setting = setting(
        "number",
        None,
        "share of KV groups (a KV head with its query heads) to keep",
        name="keep_heads",
        low=0,
        high=1,
    )

    def count(self, sizes: CoreSizes) -> int:
        return sizes.kv_heads

    def counted(self, sizes: CoreSizes) -> Mapping[str, int]:
        return {"heads": sizes.heads // sizes.kv_heads, "kv_heads": 1}

    def axes(self, sizes: CoreSizes) -> Mapping[str, tuple[str, int]]:
        return {"q": ("heads", sizes.head_size), "kv": ("kv_heads", sizes.head_size)}

    def row(self, sizes: CoreSizes, role: str) -> int:
        return sizes.head_size * (sizes.heads // sizes.kv_heads if role in ("q", "o") else 1)
