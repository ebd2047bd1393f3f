"""The child of a cut as a folder that stock classes open: its configuration and its tensors."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from zerolm.architecture import Ints
from zerolm.carving.kept_units import Cut, LayerCut
from zerolm.checkpoints import Checkpoint, Outgoing, sliced
from zerolm.checkpoints.dtypes import narrowed
from zerolm.checkpoints.writer import Chunk

Matrices = Mapping[str, NDArray[np.float32]]
"""New values by the parent's name of a tensor, in the shape that the cut leaves."""
REMOTE: Final = ("auto_map", "custom_pipelines", "custom_generate")
"""Fields that name code of the parent's folder, which no child has."""


def check_sizes(checkpoint: Checkpoint, cut: Cut) -> None:
    """Refuse a cut whose ``largest`` sizes the stock class of the family cannot be configured for."""
    family, parent = checkpoint.family, cut.parent
    groups, ffn = cut.largest
    asked = {
        "layers": len(cut.layers) < parent.depth,
        "heads": groups < parent.kv_heads,
        "ffn": ffn < parent.ffn,
    }
    for kind, is_cut in asked.items():
        if is_cut and not getattr(family.cut, kind):
            possible = [name for name in asked if getattr(family.cut, name)]
            raise ValueError(
                f"a {family.name} can be cut in {' and '.join(possible)}, not in {kind}: {family.cut.note}"
            )
    if divides(cut) or family.cut.indivisible != "refused":
        return
    raise ValueError(
        f"{groups * parent.heads_per_group} heads do not divide the hidden size {parent.hidden}, which "
        f"{family.name} needs; {_divisors(cut)} do"
    )


def divides(cut: Cut) -> bool:
    """Whether the heads of the largest layer divide the hidden size."""
    return cut.parent.hidden % (cut.largest[0] * cut.parent.heads_per_group) == 0


def _divisors(cut: Cut) -> str:
    parent = cut.parent
    heads = (groups * parent.heads_per_group for groups in range(1, parent.kv_heads + 1))
    return ", ".join(str(count) for count in heads if parent.hidden % count == 0) or "none"


def configuration(checkpoint: Checkpoint, cut: Cut) -> dict[str, Any]:
    """Return the configuration of a child with the ``largest`` sizes; its head size is spelt out.

    Where heads no longer divide the hidden size, it is that of the family that has the same network: a llama
    becomes a mistral. Raises ``ValueError`` for biases, which are not written so.
    """
    family, parent = checkpoint.family, cut.parent
    groups, ffn = cut.largest
    config: dict[str, Any] = without_code(checkpoint.config)
    sizes = {
        "depth": len(cut.layers),
        "heads": groups * parent.heads_per_group,
        "kv_heads": groups,
        "head_size": parent.head_size,
        "ffn": ffn,
    }
    config |= {name: size for label, size in sizes.items() if (name := family.config.sizes[label].field)}
    for field in family.config.per_layer:
        if isinstance(config.get(field), list):
            config[field] = [config[field][layer.layer] for layer in cut.layers]
    other = family.cut.written_as
    if divides(cut) or other is None:
        return config
    if any(config.get(flag) for flag in family.config.flags):
        raise ValueError(
            f"{sizes['heads']} heads do not divide the hidden size {parent.hidden}, and a {family.name} with "
            f"biases cannot be written as {family.cut.indivisible}; {_divisors(cut)} do"
        )
    classes = [other.classes.get(name, name) for name in config.get("architectures") or []]
    return config | other.config | {"architectures": classes}


def without_code(value: Any) -> Any:
    """Return JSON without the fields that name code, at any depth."""
    if isinstance(value, dict):
        return {name: without_code(part) for name, part in value.items() if name not in REMOTE}
    return [without_code(part) for part in value] if isinstance(value, list) else value


def tensors(checkpoint: Checkpoint, cut: Cut, repaired: Matrices | None = None) -> list[Outgoing]:
    """Return the child's tensors in the order of the parent's files, cut when their turn comes.

    Layers are filled up with zeros to the ``largest`` sizes, part by part where a matrix is fused.
    """
    places = {layer.layer: (place, layer) for place, layer in enumerate(cut.layers)}
    slots = checkpoint.layout.slots
    return [
        _outgoing(checkpoint, cut, name, places, repaired or {})
        for name in checkpoint.tensors
        if name in slots and (slots[name].layer is None or slots[name].layer in places)
    ]


def _outgoing(
    checkpoint: Checkpoint,
    cut: Cut,
    name: str,
    places: Mapping[int, tuple[int, LayerCut]],
    repaired: Matrices,
) -> Outgoing:
    info, slot = checkpoint.tensors[name], checkpoint.layout.slots[name]
    if slot.layer is None:
        return Outgoing(name, info.dtype, info.shape, lambda: sliced(info, {}))
    place, layer = places[slot.layer]
    kept = kept_indices(cut, layer, slot.axes, info.shape)
    shape = tuple(len(kept[axis]) if axis in kept else size for axis, size in enumerate(info.shape))
    new_name = re.sub(r"\.\d+\.", f".{place}.", name, count=1)
    check_repaired(repaired, name, shape)
    whole = tuple(
        cut.parent.length(label, *cut.largest) or size for label, size in zip(slot.axes, shape, strict=True)
    )
    if name not in repaired and whole == shape:
        return Outgoing(new_name, info.dtype, shape, lambda: sliced(info, kept))

    def filled() -> Iterator[Chunk]:
        is_new = name in repaired
        value = narrowed(repaired[name], info.dtype) if is_new else taken(checkpoint, name, kept)
        padded = np.zeros(whole, value.dtype)
        spots = [cut.places(layer, label) for label in slot.axes]
        lengths = zip(spots, shape, strict=True)
        padded[np.ix_(*(np.arange(size) if spot is None else spot for spot, size in lengths))] = value
        yield padded

    return Outgoing(new_name, info.dtype, whole, filled)


def kept_indices(cut: Cut, layer: LayerCut, axes: tuple[str, ...], shape: tuple[int, ...]) -> dict[int, Ints]:
    """Return the kept indices of a tensor by axis, without those that stay whole."""
    indices = {axis: cut.kept(layer, label) for axis, label in enumerate(axes)}
    return {axis: x for axis, x in indices.items() if x is not None and len(x) < shape[axis]}


def taken(checkpoint: Checkpoint, name: str, kept: Mapping[int, Ints]) -> NDArray[Any]:
    """Return the kept part of a stored tensor, raw; mapped where all is kept."""
    raw: NDArray[Any] = np.asarray(checkpoint.raw(name))
    for axis, indices in kept.items():
        raw = raw.take(indices, axis=axis)
    return raw


def check_repaired(repaired: Matrices, name: str, shape: tuple[int, ...]) -> None:
    """Raise ``ValueError`` where a repaired tensor has another shape than the cut leaves."""
    if name in repaired and repaired[name].shape != shape:
        raise ValueError(f"the repair of {name!r} has shape {repaired[name].shape}, but {shape} is left")
