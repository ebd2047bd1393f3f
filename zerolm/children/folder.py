"""The child of a cut as a folder that stock classes open: its configuration and its tensors."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from zerolm.checkpoints import Checkpoint, Outgoing
from zerolm.children.child_tensors import Child, ChildTensor
from zerolm.families.config import sizes_of
from zerolm.families.family import Family
from zerolm.families.kinds import FULL, SLIDING, by_number
from zerolm.families.values import of_all, part_at
from zerolm.units.kept_units import Cut
from zerolm.units.within_layers import UNITS

REMOTE: Final = ("auto_map", "custom_pipelines", "custom_generate")
"""Fields that name code in the parent's folder, which children do not have."""


def check_sizes(checkpoint: Checkpoint, cut: Cut) -> None:
    """Raise ``ValueError`` for a cut whose ``largest`` sizes the family's stock class lacks."""
    family, parent = checkpoint.family, cut.parent
    pairs = zip(UNITS, cut.largest, parent.units, strict=True)
    cuts = {"layers": len(cut.layers) < parent.depth}
    cuts |= {unit.share: largest < whole for unit, largest, whole in pairs}
    if cut.narrowing and not family.cut.hidden:
        raise ValueError(f"hidden cannot be cut of a {family.name}: {family.cut.hidden_note}")
    if cut.narrowing and checkpoint.layout.carried:
        other = checkpoint.layout.carried[0]
        raise ValueError(
            f"the hidden size cannot be cut: {other!r} adds to the residual stream and is kept whole"
        )
    removed = family.cut.required_layers(parent.depth) - {kept.layer for kept in cut.layers}
    if removed:
        raise ValueError(
            f"layer {min(removed)} of this {family.name} must be kept: no other layer is of its kind"
        )
    able = {"layers": family.cut.layers, **{unit.share: unit.can_be_cut(family) for unit in UNITS}}
    for kind, is_cut in cuts.items():
        if is_cut and not able[kind]:
            possible = [name for name, can in able.items() if can]
            raise ValueError(
                f"a {family.name} can be cut in {' and '.join(possible)}, not in {kind}: {family.cut.note}"
            )
    if divides(cut) or family.cut.indivisible != "refused":
        return
    raise ValueError(
        f"{parent.counts(cut.largest)['heads']} heads do not divide the hidden size {cut.hidden}, which "
        f"{family.name} needs; {_divisors(cut)} do"
    )


def divides(cut: Cut) -> bool:
    """Return whether the heads of the largest layer divide the hidden size."""
    return cut.hidden % cut.parent.counts(cut.largest)["heads"] == 0


def _divisors(cut: Cut) -> str:
    parent = cut.parent
    heads = (groups * parent.heads_per_group for groups in range(1, parent.kv_heads + 1))
    return ", ".join(str(count) for count in heads if cut.hidden % count == 0) or "none"


def configuration(checkpoint: Checkpoint, cut: Cut) -> dict[str, Any]:
    """Return the configuration of a child with the ``largest`` sizes and an explicit head size.

    Where heads no longer divide the hidden size, it is that of the family with the same network: a llama
    becomes a mistral. Raises ``ValueError`` for biases, which cannot be written so, and where the kinds of
    the kept layers cannot be configured.
    """
    family, parent = checkpoint.family, cut.parent
    counts = parent.counts(cut.largest)
    whole: dict[str, Any] = without_code(checkpoint.config)
    at = part_at(family, whole)
    config = dict(of_all(family, whole if at is None else whole[at]))
    sizes = {"depth": len(cut.layers), "head_size": parent.head_size, "hidden": cut.hidden, **counts}
    for label, size in sizes.items():
        described = family.config.sizes[label]
        if described.field:
            config[described.field] = size
        config |= {name: size for name in described.also if name in config}
    for label, described in family.config.sizes.items():
        if described.rounded is not None:
            config[str(described.rounded.switch.field)] = False
        if described.field and described.each:
            config[described.field] = checkpoint.layout.sizes[label] * counts["kv_heads"] // parent.kv_heads
    for field in family.config.per_layer:
        if isinstance(config.get(field), list):
            config[field] = [config[field][layer.layer] for layer in cut.layers]
    for dropped in family.tensors.dropped:
        config |= {name: value for name, value in dropped.reset.items() if name in config}
    if at is not None:
        config = whole | {at: config}
    if cut.narrowing and family.config.tied.field:
        config[family.config.tied.field] = cut.narrowing.width.tied
    config = with_kinds(checkpoint, cut, config)
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


def with_kinds(checkpoint: Checkpoint, cut: Cut, config: dict[str, Any]) -> dict[str, Any]:
    """Return the configuration with the kinds of the kept layers, listed where its rules imply other kinds.

    Raises ``ValueError`` where it cannot express them.
    """
    family, layout = checkpoint.family, checkpoint.layout
    wanted = [layout.kinds[kept.layer] for kept in cut.layers]
    windows = [layout.windows[kept.layer] for kept in cut.layers]
    at = part_at(family, config)
    for spelt in (False, True):
        part = dict(config if at is None else config[at])
        if spelt:
            part |= _lists(family, wanted, windows)
        described = part if at is None else config | {at: part}
        sizes = sizes_of(family, described)
        if list(sizes.kinds) == wanted and list(sizes.windows) == windows:
            return described
    raise ValueError(
        f"a {family.name} with these {len(wanted)} layers cannot be configured: its rules imply other kinds"
    )


def _lists(
    family: Family, wanted: Sequence[frozenset[str]], windows: Sequence[int]
) -> dict[str, list[str] | list[int] | int]:
    """Return the fields that list the kinds of each layer, and whether it has a window."""
    lists: dict[str, list[str] | list[int] | int] = {}
    window = family.config.window
    if window is not None and window.types is not None:
        lists[window.types] = [SLIDING if size else FULL for size in windows]
    for choice in family.config.kinds:
        names = {kind: name for name, kind in choice.values.items()}
        if choice.field is not None:
            lists[choice.field] = [next(names[kind] for kind in kinds if kind in names) for kinds in wanted]
        lists |= by_number(choice, wanted)
    return lists


def lists_by_layer(checkpoint: Checkpoint, cut: Cut) -> dict[str, list[Any]]:
    """Return the settings that the class derives from layer numbers, such as the kind of attention, as lists.

    Only where layers were removed: a rule of the configuration would then apply to the wrong layers.
    """
    from zerolm.networks.opener import text_config

    fields = checkpoint.family.config.per_layer
    if not fields or len(cut.layers) == cut.parent.depth:
        return {}
    stock = text_config(checkpoint)
    lists = {field: getattr(stock, field, None) for field in fields}
    return {
        field: [values[layer.layer] for layer in cut.layers] for field, values in lists.items() if values
    }  # some classes have one kind for all layers


def without_code(value: Any) -> Any:
    """Return JSON without the fields that name code, at any depth."""
    if isinstance(value, dict):
        return {name: without_code(part) for name, part in value.items() if name not in REMOTE}
    return [without_code(part) for part in value] if isinstance(value, list) else value


def tensors(child: Child) -> list[Outgoing]:
    """Return the tensors of a child in the order of the parent's files; each is cut when it is written.

    Layers are padded with zeros to the ``largest`` sizes. Raises ``ValueError`` where a new weight does not
    fit.
    """
    places = {kept.layer: place for place, kept in enumerate(child.cut.layers)}
    before = child.parent.layout.prefix.head
    heads = (pattern.name for pattern in child.parent.family.tensors.head if pattern.role == "head")
    head = before + next(heads, "")
    outgoing = list[Outgoing]()
    for tensor in child.tensors():
        if tensor.is_copied:
            parts = tensor.info.stored
            outgoing += [Outgoing.copied(part, _name(part.name, tensor, places)) for part in parts]
            continue
        name = head if tensor.is_made_anew else _name(tensor.source, tensor, places)
        outgoing.append(Outgoing(name, tensor.info.dtype, tensor.padded_shape, tensor.padded_blocks))
    return outgoing


def _name(stored: str, tensor: ChildTensor, places: Mapping[int, int]) -> str:
    if tensor.kept is None:
        return stored
    return re.sub(r"\.\d+\.", f".{places[tensor.kept.layer]}.", stored, count=1)
