"""The proof that weights of a narrower stream are the expected products, computed in a different way.

A matrix W' is W M if W' v = W (M v) for random vectors v (Freivalds, 1977): a few products with vectors
instead of one with a matrix. Rounding W' to its stored type changes a row by at most that step times the
lengths of the row and of v.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from zerolm.checkpoints import Checkpoint
from zerolm.checkpoints.dtypes import widened
from zerolm.families.family import BIAS, Pattern
from zerolm.families.known import family_named
from zerolm.networks.blocks import Blocks
from zerolm.networks.roles import StockLayer
from zerolm.units.kept_units import Cut, LayerCut
from zerolm.units.pruning import Repaired, carved_layer
from zerolm.units.stream.in_memory import maps_of, put, set_width
from zerolm.units.stream.maps import PRODUCT_BLOCK, StreamMaps, Values

ROUNDING_STEPS: Final = {"BF16": 2.0**-8, "F16": 2.0**-10, "F32": 2.0**-16}
"""The rounding of a stored type, relative to a weight; for F32, that of the products."""
CANCELLED: Final = 2.0**-19
"""The rounding of rows that are nearly 0 because their sums cancel, relative to the longest row."""
PROBES: Final = 8


def is_product(
    tensor: Values, maps: StreamMaps, role: str, layer: int | None, values: Values, step: float
) -> bool:
    """Return whether a tensor is the narrower stream's product with the parent's ``values``, up to rounding.

    Matrices are (outputs, inputs), also those of experts in one tensor.
    """
    if values.ndim == 1 or role.endswith(BIAS):
        wanted = maps.whole(role, layer, values, "F32")
        same = wanted.shape == tensor.shape
        return same and bool((np.abs(tensor - wanted) <= step * (np.abs(wanted) + 1)).all())
    probes = np.random.default_rng(0).standard_normal((tensor.shape[-1], PROBES), np.float32)
    wanted = maps.applied(role, layer, values, probes)
    if wanted.shape[:-1] != tensor.shape[:-1]:
        return False
    lengths = np.linalg.norm(tensor, axis=-1)[..., None] * np.linalg.norm(probes, axis=0)
    floor = max(step * 1e-3, CANCELLED) * lengths.max(initial=0.0)
    return bool((np.abs(tensor @ probes - wanted) <= step * lengths + floor).all())


def checked_layer(
    blocks: Blocks,
    cut: Cut,
    kept: LayerCut,
    repaired: Repaired,
    written: Callable[[str], Tensor],
    step: float,
) -> StockLayer:
    """Return a carved layer with the ``written`` weights where they are the expected products.

    Other weights keep the parent's values, so that the layer's output differs.
    """
    model, narrowing = blocks.model, cut.narrowing
    assert narrowing is not None
    layer = carved_layer(model, replace(cut, narrowing=None), kept)
    maps = maps_of(model, narrowing, repaired.arrays)
    patterns = family_named(str(model.config.model_type)).tensors.body
    inside = {p.parameter.partition(".{layer}.")[2]: p for p in patterns if p.in_layer and "hidden" in p.axes}
    for name, parameter in list(layer.module.named_parameters()):
        if name not in inside:
            continue
        role, weight = inside[name].role, written(name)
        solved = repaired.arrays.get((kept.layer, role)) if not role.endswith("norm") else None
        if solved is not None:
            put(layer.module, name, torch.from_numpy(solved))
            continue
        child, parent = (_by_outputs(inside[name], each) for each in (weight, parameter))
        if is_product(child, maps, role, kept.layer, parent, step):
            put(layer.module, name, weight)
    set_width(layer.module, narrowing)
    return layer


def _by_outputs(pattern: Pattern, weight: Tensor) -> Values:
    """Return the matrices of experts as (outputs, inputs)."""
    values: Values = weight.detach().numpy()
    return values.swapaxes(1, 2) if pattern.transposed and values.ndim == 3 else values


def check_outside(
    child: Checkpoint, name: str, parent: Checkpoint, parent_name: str, role: str, maps: StreamMaps
) -> None:
    """Raise ``ValueError`` where a tensor outside the layers is not the expected product; rows at a time."""
    raw, dtype = parent.raw(parent_name), parent.tensors[parent_name].dtype
    shape = (*raw.shape[:-1], maps.narrowing.width.hidden)
    same = name in child.tensors and child.tensors[name].shape == shape
    for start in range(0, len(raw) if raw.ndim == 2 else 1, PRODUCT_BLOCK):
        rows = slice(start, start + PRODUCT_BLOCK) if raw.ndim == 2 else slice(None)
        values: NDArray[np.float32] = widened(np.asarray(raw[rows]), dtype)
        same = same and is_product(child.read(name, rows), maps, role, None, values, ROUNDING_STEPS[dtype])
    if not same:
        raise ValueError(f"{name!r} of the written child differs from what was carved")
