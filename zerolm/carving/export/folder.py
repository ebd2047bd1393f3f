"""The child of a cut: its configuration, its tensors, and the files it inherits."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from zerolm.carving.kept_units import Cut, LayerCut
from zerolm.checkpoints import Checkpoint, Outgoing, sliced
from zerolm.checkpoints.dtypes import narrowed
from zerolm.checkpoints.writer import Chunk

Repaired = Mapping[str, NDArray[np.float32]]
"""New values by the parent's name of a tensor, in the shape that the cut leaves."""


FORMATS: Final = ("hf", "padded", "gguf")
UNEVEN: Final = (
    "the stock class has one size for all layers: a per-layer cut cannot be written as hf; "
    "give --shape uniform, --format gguf, or --format padded, which is as large as its largest layer"
)


def written(cut: Cut) -> tuple[int, int]:
    """The KV groups and neurons of each layer on the disk: the most that any layer keeps."""
    return max(len(layer.groups) for layer in cut.layers), max(len(layer.ffn) for layer in cut.layers)


def padded(cut: Cut) -> Cut:
    """A cut whose layers all have the sizes that are ``written``."""
    groups, ffn = (np.arange(size) for size in written(cut))
    return Cut(cut.parent, tuple(LayerCut(layer.layer, groups, ffn) for layer in cut.layers))


def check_format(form: str) -> None:
    if form not in FORMATS:
        raise ValueError(f"format {form!r} is not known; there are {', '.join(FORMATS)}")


def expressible(checkpoint: Checkpoint, cut: Cut, form: str = "hf") -> None:
    """Refuse a cut that a format, or the stock class of the family, cannot be configured for.

    ``hf`` needs the same sizes in all layers; ``padded`` takes any and fills smaller layers with zeros;
    ``gguf`` takes any of a llama or mistral.
    """
    family, parent = checkpoint.family, cut.parent
    check_format(form)
    if form == "gguf":
        from zerolm.carving.export.gguf import write

        write.expressible(checkpoint, cut)
        return
    if form == "hf" and not cut.uniform:
        raise ValueError(UNEVEN)
    groups, ffn = written(cut)
    asked = {
        "layers": len(cut.layers) < parent.depth,
        "heads": groups < parent.kv_heads,
        "ffn": ffn < parent.ffn,
    }
    for what, is_cut in asked.items():
        if is_cut and not getattr(family.cut, what):
            possible = [name for name in asked if getattr(family.cut, name)]
            raise ValueError(
                f"a {family.name} can be cut in {' and '.join(possible)}, not in {what}: {family.cut.note}"
            )
    if divides(cut) or family.cut.indivisible in ("kept", "mistral"):
        return
    raise ValueError(
        f"{groups * parent.heads_per_group} heads do not divide the hidden size {parent.hidden}, which "
        f"{family.name} needs; {_divisors(cut)} do"
    )


def divides(cut: Cut) -> bool:
    return cut.parent.hidden % (written(cut)[0] * cut.parent.heads_per_group) == 0


def _divisors(cut: Cut) -> str:
    parent = cut.parent
    heads = (groups * parent.heads_per_group for groups in range(1, parent.kv_heads + 1))
    return ", ".join(str(count) for count in heads if parent.hidden % count == 0) or "none"


def configuration(checkpoint: Checkpoint, cut: Cut) -> dict[str, Any]:
    """The configuration of a child with the sizes that are ``written``; its head size is spelt out.

    A llama whose heads no longer divide the hidden size becomes a mistral, which is the same network.
    Raises ``ValueError`` for a llama with biases, which no mistral has.
    """
    family, parent = checkpoint.family, cut.parent
    groups, ffn = written(cut)
    config = dict(checkpoint.config)
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
    if divides(cut) or family.cut.indivisible != "mistral":
        return config
    if any(config.get(flag) for flag in ("attention_bias", "mlp_bias")):
        raise ValueError(
            f"{sizes['heads']} heads do not divide the hidden size {parent.hidden}, and a llama with biases "
            f"cannot be written as mistral; {_divisors(cut)} do"
        )
    kinds = {"LlamaForCausalLM": "MistralForCausalLM", "LlamaModel": "MistralModel"}
    config["model_type"], config["sliding_window"] = "mistral", None
    config["architectures"] = [kinds.get(name, name) for name in config.get("architectures") or []]
    return config


def tensors(checkpoint: Checkpoint, cut: Cut, repaired: Repaired | None = None) -> list[Outgoing]:
    """The child's tensors in the order of the parent's files, cut when their turn comes."""
    places = {layer.layer: (place, layer) for place, layer in enumerate(cut.layers)}
    return [
        _outgoing(checkpoint, cut, name, places, repaired or {})
        for name in checkpoint.tensors
        if name in checkpoint.layout.slots
        and (checkpoint.layout.slots[name].layer is None or checkpoint.layout.slots[name].layer in places)
    ]


def _outgoing(
    checkpoint: Checkpoint,
    cut: Cut,
    name: str,
    places: Mapping[int, tuple[int, LayerCut]],
    repaired: Repaired,
) -> Outgoing:
    info, slot = checkpoint.tensors[name], checkpoint.layout.slots[name]
    if slot.layer is None:
        return Outgoing(name, info.dtype, info.shape, lambda: sliced(info, {}))
    place, layer = places[slot.layer]
    kept = {
        axis: indices
        for axis, label in enumerate(slot.axes)
        if (indices := cut.kept(layer, label)) is not None and len(indices) < info.shape[axis]
    }
    shape = tuple(len(kept[axis]) if axis in kept else size for axis, size in enumerate(info.shape))
    new_name = re.sub(r"\.\d+\.", f".{place}.", name, count=1)
    if name in repaired and repaired[name].shape != shape:
        raise ValueError(f"the repair of {name!r} has shape {repaired[name].shape}, but {shape} is left")
    whole = tuple(_written_size(cut, label, size) for label, size in zip(slot.axes, shape, strict=True))
    if name not in repaired and whole == shape:
        return Outgoing(new_name, info.dtype, shape, lambda: sliced(info, kept))

    def filled() -> Iterator[Chunk]:
        if name in repaired:
            value = narrowed(repaired[name], info.dtype)
        else:
            value = np.asarray(checkpoint.raw(name))
            for axis, indices in kept.items():
                value = value.take(indices, axis=axis)
        padded = np.zeros(whole, value.dtype)
        padded[tuple(slice(size) for size in shape)] = value
        yield padded

    return Outgoing(new_name, info.dtype, whole, filled)


def _written_size(cut: Cut, axis: str, size: int) -> int:
    """The length of an axis on the disk."""
    groups, ffn = written(cut)
    kv = groups * cut.parent.head_size
    return {"q": kv * cut.parent.heads_per_group, "kv": kv, "ffn": ffn}.get(axis, size)
