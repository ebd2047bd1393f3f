"""The known families whose documents place every tensor of a checkpoint of another type."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from zerolm.checkpoints.headers import TensorInfo
from zerolm.checkpoints.layout import Layout
from zerolm.families.family import Family
from zerolm.families.known import described, refused
from zerolm.families.reading import alike

USUAL: Final = "llama"
"""Of families that fit alike the one that is named."""


def fitting_family(config: Mapping[str, Any], tensors: Mapping[str, TensorInfo]) -> str | None:
    """Return a family whose document would place all tensors exactly, None where no document does."""
    kind, by_name = config.get("model_type"), described()
    if not isinstance(kind, str) or kind in by_name or kind in refused():
        return None
    fits = [name for name, family in by_name.items() if _places(alike(family, kind, config), config, tensors)]
    return USUAL if USUAL in fits else next(iter(fits), None)


def _places(family: Family, config: Mapping[str, Any], tensors: Mapping[str, TensorInfo]) -> bool:
    """Whether all tensors have a place in a family, and all that it needs are there."""
    try:
        Layout.of(family, config, tensors)
    except ValueError:
        return False
    return True
