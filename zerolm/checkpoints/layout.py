"""The place of each tensor of a concrete checkpoint."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping
from dataclasses import dataclass, fields, replace
from fnmatch import fnmatchcase
from functools import cached_property
from typing import Any

from zerolm.checkpoints.headers import FLOATS, TensorInfo
from zerolm.families.config import ModelSizes, has, is_of, may_have, sizes_of
from zerolm.families.family import BIAS, Family, Pattern, Prefix


@dataclass(frozen=True, slots=True)
class Part:
    """One logical matrix (or vector) within a tensor: its role, its axes, and where it lies.

    It is ``along`` the axis number ``axis``, whole along the others. ``axes`` are as those of its slot, with
    the label of this part alone.
    """

    role: str
    axis: int
    along: slice
    axes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Slot:
    """The place of a tensor: its layer (None outside the layers), its role, its axes by label.

    Roles in a layer: ``q k v o``, ``gate up down``, each with ``_bias``; ``q_norm k_norm``; ``attention_norm
    ffn_norm`` (before), ``attention_post_norm ffn_post_norm`` (after), each with ``_bias``; ``router`` and
    others of a mixture of experts. Outside: ``embedding positions types embedding_norm final_norm head pooler
    classifier`` ... Fused ones are joined by ``+`` (``q+k+v``), and so is the axis along which they lie.

    Axes: ``q`` (heads x head size), ``kv``, ``ffn``, ``hidden``, ``head`` (the size of one head), ``vocab``,
    ``positions``, ``types``, ``experts``, ``labels``. ``transposed``: stored as (inputs, outputs). ``parts``:
    the logical matrices in it, one where nothing is fused. ``expert`` is the number of the expert that it
    belongs to, None for another tensor or one that holds all experts. ``parameter`` is the stock class's name
    of it, or of the tensor that contains it, inside or outside the body of the model.
    """

    layer: int | None
    role: str
    axes: tuple[str, ...]
    transposed: bool = False
    parts: tuple[Part, ...] = ()
    expert: int | None = None
    parameter: str = ""

    @property
    def is_matrix(self) -> bool:
        """Whether it is a matrix, or one for each expert."""
        return len(self.axes) - self._holds_all_experts == 2 and not self.role.endswith("norm")

    @property
    def of_experts(self) -> bool:
        """Whether it is the matrix or the bias of one expert, or those of all."""
        return self.expert is not None or self._holds_all_experts

    @property
    def _holds_all_experts(self) -> bool:
        return self.axes[:1] == ("experts",) and len(self.axes) == (2 if self.role.endswith(BIAS) else 3)

    @property
    def key(self) -> str:
        """The role, followed by the number of the expert where there is one."""
        return self.role if self.expert is None else f"{self.role}.{self.expert}"


@dataclass(frozen=True)
class Layout(ModelSizes):
    """The sizes of a checkpoint and the place of each of its tensors.

    ``gated``: the FFN has a gate in addition to ``up``. Where the head is ``tied`` to the embedding, a stored
    ``head`` is not used. What is ``carried`` is no part of the text model, and kept as it is. ``prefix``
    stands before the stored names. ``notes`` list what is read differently from the configuration.
    """

    gated: bool
    slots: dict[str, Slot]
    carried: tuple[str, ...] = ()
    prefix: Prefix = Prefix()  # noqa: RUF009
    notes: tuple[str, ...] = ()

    @classmethod
    def of(cls, family: Family, config: Mapping[str, Any], tensors: Mapping[str, TensorInfo]) -> Layout:
        """Place all tensors; ``ValueError`` names the first that is missing, misshapen or not known."""
        sizes, prefixes = sizes_of(family, config), family.tensors.prefixes
        first = family.tensors.body[0].name  # its name shows the prefix
        prefix = next((each for each in prefixes if each.body + first in tensors), prefixes[0])
        slots = dict(_placed(family, config, tensors, sizes, prefix))
        for name, slot in slots.items():
            _check(tensors[name], slot, sizes)
        rest = [name for name in tensors if name not in slots]
        carried = tuple(name for name in rest if _is_one_of(name, family.tensors.carried))
        for name in rest:
            if name not in carried and not is_dropped(family, name, sizes.depth):
                raise ValueError(f"tensor {name!r} is none of a {family.name} model with this configuration")
        values = {field.name: getattr(sizes, field.name) for field in fields(sizes)}
        return cls(**values, gated=family.gated, slots=slots, carried=carried, prefix=prefix)

    def name(self, role: str, layer: int | None = None) -> str | None:
        """Return the tensor in this place, None where the checkpoint has none.

        The role is that of the whole tensor, as in ``q+k+v``; an expert's ends with its number, ``up.3``.
        """
        return self._places.get(layer, {}).get(role)

    def layer(self, layer: int | None) -> dict[str, str]:
        """Return the tensors of one layer by role; with None, those outside the layers."""
        return dict(self._places.get(layer, {}))

    def part(self, role: str, layer: int | None = None) -> tuple[str, Part] | None:
        """Return the tensor that holds a logical matrix and where in it, None where there is none."""
        return self._parts.get(layer, {}).get(role)

    @cached_property
    def _places(self) -> dict[int | None, dict[str, str]]:
        places: dict[int | None, dict[str, str]] = {}
        for name, slot in self.slots.items():
            places.setdefault(slot.layer, {})[slot.key] = name
        return places

    @cached_property
    def _parts(self) -> dict[int | None, dict[str, tuple[str, Part]]]:
        parts: dict[int | None, dict[str, tuple[str, Part]]] = {}
        for name, slot in self.slots.items():
            if slot.expert is None:
                parts.setdefault(slot.layer, {}).update({part.role: (name, part) for part in slot.parts})
        return parts


def _is_one_of(name: str, patterns: Iterable[str]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)


def is_dropped(family: Family, name: str, depth: int) -> bool:
    """Return whether a tensor is left out of a child: no stock class reads it."""
    if _is_one_of(name, family.tensors.ignored):
        return True
    for dropped in family.tensors.dropped:
        before, beyond, after = dropped.names.partition("{beyond}")
        if not beyond:
            if fnmatchcase(name, dropped.names):
                return True
            continue
        number = name.removeprefix(before).split(".")[0]
        fits = name.startswith(before) and fnmatchcase(name, f"{before}{number}{after}")
        if fits and number.isdecimal() and int(number) >= depth:
            return True
    return False


def patterns_of(
    family: Family, tensors: Mapping[str, TensorInfo], sizes: ModelSizes, prefix: Prefix
) -> tuple[Pattern, ...]:
    """Return the patterns of the body, of the layout that the checkpoint has by its names and shapes."""
    body = family.tensors.body

    def fits(pattern: Pattern) -> bool:
        any_layer = prefix.body + pattern.name.replace("{expert}", "0")
        names = (any_layer.replace("{layer}", str(layer)) for layer in range(sizes.depth))
        shape = next((tensors[name].shape for name in names if name in tensors), None)
        return shape == tuple(map(sizes.length, pattern.axes))

    for layout in family.tensors.layouts:
        if all(map(fits, layout)):
            roles = {role for pattern in layout for role in pattern.roles}
            return (*(p for p in body if not roles & set(p.roles)), *layout)
    return body


def _placed(
    family: Family,
    config: Mapping[str, Any],
    tensors: Mapping[str, TensorInfo],
    sizes: ModelSizes,
    prefix: Prefix,
) -> Iterator[tuple[str, Slot]]:
    """Yield the tensors by name, with their slots, from the first layer to the last."""
    with_head = _named_head(family, config) and not is_body(family, config, tensors)
    names = [(prefix.body, pattern) for pattern in patterns_of(family, tensors, sizes, prefix)]
    names += [(prefix.head, pattern) for pattern in family.tensors.head]
    required = {pattern: has(family, pattern, config, with_head) for _, pattern in names}
    possible = {pattern: needed or may_have(family, pattern, config) for pattern, needed in required.items()}
    for layer in (None, *range(sizes.depth)):
        for before, pattern in names:
            is_here = pattern.in_layer is (layer is not None)
            if not is_here or (layer is not None and not is_of(pattern, sizes.kinds[layer])):
                continue
            parameter = pattern.parameter.replace("{layer}", str(layer))
            axes, parts = pattern.axes, _parts(pattern, sizes)
            slot = Slot(layer, pattern.role, axes, pattern.transposed, parts, parameter=parameter)
            for expert in range(sizes.sizes["experts"]) if "{expert}" in pattern.name else (None,):
                wanted = before + pattern.name.replace("{layer}", str(layer))
                name = _present(wanted.replace("{expert}", str(expert)), family, tensors)
                if required[pattern] and name not in tensors:
                    raise ValueError(f"tensor {name!r} is missing{_elsewhere(name, before, family, tensors)}")
                if name in tensors and possible[pattern]:
                    yield name, slot if expert is None else replace(slot, expert=expert)


def is_body(family: Family, config: Mapping[str, Any], tensors: Container[str]) -> bool:
    """Return whether an encoder's class has a head of which nothing is stored: stock software opens the body.

    A decoder needs its head.
    """
    stored = (
        before + pattern.name in tensors
        for before in {prefix.head for prefix in family.tensors.prefixes}
        for pattern in family.tensors.head
        if {"head", "untied"} & set(pattern.conditions)
    )
    return family.task == "masked" and _named_head(family, config) and not any(stored)


def _named_head(family: Family, config: Mapping[str, Any]) -> bool:
    classes = config.get("architectures")
    return any(name in family.head_classes for name in (classes if isinstance(classes, list) else ()))


def _parts(pattern: Pattern, sizes: ModelSizes) -> tuple[Part, ...]:
    """Return where the fused parts of a tensor lie, in order."""
    axis = next((number for number, label in enumerate(pattern.axes) if "+" in label), 0)
    if len(pattern.roles) == 1 or "+" not in pattern.axes[axis]:
        return (Part(pattern.role, axis, slice(None), pattern.axes),)
    parts, start = [], 0
    for role, label in zip(pattern.roles, pattern.axes[axis].split("+"), strict=True):
        axes = (*pattern.axes[:axis], label, *pattern.axes[axis + 1 :])
        parts.append(Part(role, axis, slice(start, start + sizes.sizes[label]), axes))
        start += sizes.sizes[label]
    return tuple(parts)


def _present(name: str, family: Family, tensors: Mapping[str, TensorInfo]) -> str:
    """Return the name, or an older one under which the tensor is stored."""
    for new, old in family.tensors.aliases.items():
        if name not in tensors and name.endswith(new) and name.removesuffix(new) + old in tensors:
            return name.removesuffix(new) + old
    return name


def _elsewhere(name: str, before: str, family: Family, tensors: Container[str]) -> str:
    """Return where a tensor that is missing is after all: after another prefix."""
    prefixes = {text for prefix in family.tensors.prefixes for text in (prefix.body, prefix.head)}
    others = (other + name.removeprefix(before) for other in sorted(prefixes))
    there = next((other for other in others if other in tensors), None)
    return "" if there is None else f", but {there!r} is there: its names have prefixes of two kinds"


def _check(tensor: TensorInfo, slot: Slot, sizes: ModelSizes) -> None:
    if tensor.dtype not in FLOATS and not tensor.is_packed:
        raise ValueError(
            f"tensor {tensor.name!r} is {tensor.dtype}; read are {', '.join(FLOATS)}, nothing quantised"
        )
    wanted, shape = [sizes.length(label) for label in slot.axes], tensor.shape
    sizes_fit = (size in (None, stored) for size, stored in zip(wanted, shape, strict=False))
    if len(shape) != len(wanted) or not all(sizes_fit):
        named = zip(wanted, slot.axes, strict=True)
        meant = " x ".join(f"{'any' if size is None else size} ({label})" for size, label in named)
        raise ValueError(f"tensor {tensor.name!r} has shape {list(shape)}, the configuration implies {meant}")
