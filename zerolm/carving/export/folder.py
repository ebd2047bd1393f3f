"""The child of a cut as a folder that stock classes open: its configuration and its tensors."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from zerolm.architecture import Ints
from zerolm.carving.kept_units import Cut, LayerCut
from zerolm.carving.width.maps import StreamMaps
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
    if cut.narrowing and not family.cut.hidden:
        raise ValueError(f"hidden cannot be cut of a {family.name}: {family.cut.hidden_note}")
    for kind, is_cut in asked.items():
        if is_cut and not getattr(family.cut, kind):
            possible = [name for name in asked if getattr(family.cut, name)]
            raise ValueError(
                f"a {family.name} can be cut in {' and '.join(possible)}, not in {kind}: {family.cut.note}"
            )
    if divides(cut) or family.cut.indivisible != "refused":
        return
    raise ValueError(
        f"{groups * parent.heads_per_group} heads do not divide the hidden size {cut.hidden}, which "
        f"{family.name} needs; {_divisors(cut)} do"
    )


def divides(cut: Cut) -> bool:
    """Whether the heads of the largest layer divide the hidden size."""
    return cut.hidden % (cut.largest[0] * cut.parent.heads_per_group) == 0


def _divisors(cut: Cut) -> str:
    parent = cut.parent
    heads = (groups * parent.heads_per_group for groups in range(1, parent.kv_heads + 1))
    return ", ".join(str(count) for count in heads if cut.hidden % count == 0) or "none"


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
        "hidden": cut.hidden,
    }
    config |= {name: size for label, size in sizes.items() if (name := family.config.sizes[label].field)}
    for field in family.config.per_layer:
        if isinstance(config.get(field), list):
            config[field] = [config[field][layer.layer] for layer in cut.layers]
    if cut.narrowing and family.config.tied.field:
        config[family.config.tied.field] = cut.narrowing.width.tied
    other = family.cut.written_as
    if divides(cut) or other is None:
        return config
    if any(config.get(flag) for flag in family.config.flags):
        raise ValueError(
            f"{sizes['heads']} heads do not divide the hidden size {cut.hidden}, and a {family.name} with "
            f"biases cannot be written as {family.cut.indivisible}; {_divisors(cut)} do"
        )
    classes = [other.classes.get(name, name) for name in config.get("architectures") or []]
    return config | other.config | {"architectures": classes}


def without_code(value: Any) -> Any:
    """Return JSON without the fields that name code, at any depth."""
    if isinstance(value, dict):
        return {name: without_code(part) for name, part in value.items() if name not in REMOTE}
    return [without_code(part) for part in value] if isinstance(value, list) else value


def tensors(
    checkpoint: Checkpoint,
    cut: Cut,
    repaired: Matrices | None = None,
    fitted: Mapping[tuple[int, str], NDArray[np.float32]] | None = None,
) -> list[Outgoing]:
    """Return the child's tensors in the order of the parent's files, cut when their turn comes.

    ``fitted`` maps of a narrower stream, by layer and norm, take the place of those of its basis. Layers are
    filled up with zeros to the ``largest`` sizes, part by part where a matrix is fused.
    """
    places = {layer.layer: (place, layer) for place, layer in enumerate(cut.layers)}
    slots, maps = checkpoint.layout.slots, maps_for(checkpoint, cut, fitted or {})
    outgoing = [
        _outgoing(checkpoint, cut, name, places, repaired or {}, maps)
        for name in checkpoint.tensors
        if name in slots
        and (slots[name].layer is None or slots[name].layer in places)
        and not (maps and slots[name].role == "head" and checkpoint.layout.tied)
    ]
    return outgoing if maps is None else [*outgoing, *_new_head(checkpoint, maps)]


def maps_for(
    checkpoint: Checkpoint, cut: Cut, fitted: Mapping[tuple[int, str], NDArray[np.float32]]
) -> StreamMaps | None:
    """Return the maps of a cut's narrower stream for a parent's stored tensors; None where it has none."""
    if cut.narrowing is None:
        return None

    def gain(norm: str, layer: int | None) -> NDArray[np.float32]:
        name = checkpoint.layout.name(norm, layer)
        assert name is not None
        return checkpoint.read(name)

    return StreamMaps(cut.narrowing, checkpoint.layout.depth, gain, fitted)


def _new_head(checkpoint: Checkpoint, maps: StreamMaps) -> Iterator[Outgoing]:
    """Yield the head of a child whose parent's is its embedding, where it has one of its own."""
    if not checkpoint.layout.tied or maps.narrowing.width.tied:
        return
    source = checkpoint.layout.name("embedding")
    assert source is not None
    name = next(p.name for p in checkpoint.family.tensors.head if p.role == "head")
    info = checkpoint.tensors[source]
    shape = (info.shape[0], maps.narrowing.width.hidden)
    yield Outgoing(name, info.dtype, shape, lambda: products(checkpoint, source, "head", None, {}, maps))


def products(
    checkpoint: Checkpoint,
    name: str,
    role: str,
    layer: int | None,
    kept: Mapping[int, Ints],
    maps: StreamMaps,
) -> Iterator[NDArray[Any]]:
    """Yield a tensor of the narrower stream as it is stored, some rows at a time."""
    dtype = checkpoint.tensors[name].dtype
    for block in maps.blocks(role, layer, taken(checkpoint, name, kept), dtype):
        yield narrowed(block, dtype)


def _outgoing(
    checkpoint: Checkpoint,
    cut: Cut,
    name: str,
    places: Mapping[int, tuple[int, LayerCut]],
    repaired: Matrices,
    maps: StreamMaps | None,
) -> Outgoing:
    info, slot = checkpoint.tensors[name], checkpoint.layout.slots[name]
    on_stream = maps is not None and "hidden" in slot.axes
    if slot.layer is None:
        if name in repaired:
            check_repaired(repaired, name, info.shape)
            return Outgoing(name, info.dtype, info.shape, lambda: [narrowed(repaired[name], info.dtype)])
        if maps is None or not on_stream:
            return Outgoing(name, info.dtype, info.shape, lambda: sliced(info, {}))
        shape = child_shape(cut, slot.axes, info.shape, {})
        return Outgoing(
            name, info.dtype, shape, lambda: products(checkpoint, name, slot.role, None, {}, maps)
        )
    place, layer = places[slot.layer]
    kept = kept_indices(cut, layer, slot.axes, info.shape)
    shape = child_shape(cut, slot.axes, info.shape, kept)
    new_name = re.sub(r"\.\d+\.", f".{place}.", name, count=1)
    check_repaired(repaired, name, shape)
    whole = tuple(
        cut.parent.length(label, *cut.largest) or size for label, size in zip(slot.axes, shape, strict=True)
    )
    if name not in repaired and whole == shape:
        if maps is None or not on_stream:
            return Outgoing(new_name, info.dtype, shape, lambda: sliced(info, kept))
        return Outgoing(
            new_name,
            info.dtype,
            shape,
            lambda: products(checkpoint, name, slot.role, slot.layer, kept, maps),
        )

    def filled() -> Iterator[Chunk]:
        if name in repaired:
            value = narrowed(repaired[name], info.dtype)
        elif maps is None or not on_stream:
            value = taken(checkpoint, name, kept)
        else:
            value = np.concatenate(list(products(checkpoint, name, slot.role, slot.layer, kept, maps)))
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


def child_shape(
    cut: Cut, axes: tuple[str, ...], shape: tuple[int, ...], kept: Mapping[int, Ints]
) -> tuple[int, ...]:
    """Return the shape of the part of a tensor that a child has."""
    return tuple(
        cut.hidden if label == "hidden" else len(kept[axis]) if axis in kept else size
        for axis, (label, size) in enumerate(zip(axes, shape, strict=True))
    )


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
