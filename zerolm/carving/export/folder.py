"""The child of a cut as a folder that stock classes open: its configuration and its tensors."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from zerolm.carving.export.child_tensors import Child, ChildTensor
from zerolm.carving.kept_units import Cut
from zerolm.checkpoints import Checkpoint, Outgoing

REMOTE: Final = ("auto_map", "custom_pipelines", "custom_generate")
"""Fields that name code of the parent's folder, which no child has."""


def check_sizes(checkpoint: Checkpoint, cut: Cut) -> None:
    """Refuse a cut whose ``largest`` sizes the stock class of the family cannot be configured for."""
    family, parent = checkpoint.family, cut.parent
    groups, ffn = cut.largest
    cuts = {
        "layers": len(cut.layers) < parent.depth,
        "heads": groups < parent.kv_heads,
        "ffn": ffn < parent.ffn,
    }
    if cut.narrowing and not family.cut.hidden:
        raise ValueError(f"hidden cannot be cut of a {family.name}: {family.cut.hidden_note}")
    for kind, is_cut in cuts.items():
        if is_cut and not getattr(family.cut, kind):
            possible = [name for name in cuts if getattr(family.cut, name)]
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


def tensors(child: Child) -> list[Outgoing]:
    """Return the tensors of a child in the order of the parent's files, cut when their turn comes.

    Layers are filled up with zeros to the ``largest`` sizes. ``ValueError`` where a new weight does not fit.
    """
    places = {kept.layer: place for place, kept in enumerate(child.cut.layers)}
    head = next((pattern.name for pattern in child.parent.family.tensors.head if pattern.role == "head"), "")
    return [
        Outgoing(
            head if tensor.is_made_anew else _name(tensor, places),
            tensor.info.dtype,
            tensor.padded_shape,
            tensor.padded_blocks,
        )
        for tensor in child.tensors()
    ]


def _name(tensor: ChildTensor, places: Mapping[int, int]) -> str:
    """Return the name of a tensor with the number that its layer has in the child."""
    if tensor.kept is None:
        return tensor.source
    return re.sub(r"\.\d+\.", f".{places[tensor.kept.layer]}.", tensor.source, count=1)
