"""The sizes of a network that all others of its layers follow from."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class CoreSizes:
    """The sizes that make the matrices of a layer, and the number of layers."""

    depth: int
    hidden: int
    heads: int
    kv_heads: int
    head_size: int
    ffn: int

    def labelled(self, label: str) -> int:
        """Return a size by its label; 0 where there is none."""
        size: int = getattr(self, label, 0)
        return size
