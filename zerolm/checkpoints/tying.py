"""Whether a head that is stored in addition to the embedding equals it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

import numpy as np

from zerolm.checkpoints.dtypes import widened
from zerolm.checkpoints.headers import TensorInfo
from zerolm.checkpoints.layout import Layout
from zerolm.families.family import Family
from zerolm.families.values import part_at

COMPARED: Final = 1 << 22
"""Numbers compared at a time."""
UNTIED: Final = (
    "the head in the file is not the embedding that the configuration ties it to: both are kept, as stock "
    "software runs them"
)


def as_stored(
    family: Family, config: dict[str, Any], tensors: Mapping[str, TensorInfo], layout: Layout
) -> tuple[dict[str, Any], Layout]:
    """Return configuration and layout as the file has it: untied where head and embedding differ.

    transformers 5 then keeps them separate, whatever the configuration specifies.
    """
    head, embedding = layout.name("head"), layout.name("embedding")
    if not layout.tied or head is None or embedding is None:
        return config, layout
    if same_numbers(tensors[head], tensors[embedding]):
        return config, layout
    config = untied(family, config)
    return config, replace(Layout.of(family, config, tensors), notes=(UNTIED,))


def same_numbers(tensor: TensorInfo, other: TensorInfo) -> bool:
    """Return whether two tensors have the same shape and the same numbers, in whatever types.

    As ``torch.equal`` of both in float32, by which transformers decides whether to tie them. A quantised one
    is no copy of the other.
    """
    if tensor.shape != other.shape or tensor.is_packed or other.is_packed:
        return False
    left, right = (info.raw().reshape(-1) for info in (tensor, other))
    for start in range(0, tensor.count, COMPARED):
        few = slice(start, start + COMPARED)
        if tensor.dtype == other.dtype and np.array_equal(left[few], right[few]):
            continue
        if not np.array_equal(widened(left[few], tensor.dtype), widened(right[few], other.dtype)):
            return False
    return True


def untied(family: Family, config: Mapping[str, Any]) -> dict[str, Any]:
    """Return a configuration in which every entry on tying specifies a separate head."""
    field, at = family.config.tied.field, part_at(family, config)
    assert field is not None
    parts = {} if at is None else {at: {**config[at], field: False}}
    return {**config, field: False, **parts}
