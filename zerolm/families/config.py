"""The one reading of a ``config.json``: the sizes of a model, and the architecture."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from zerolm.architecture import MAX_DEPTH, MAX_VOCAB, MAX_WIDTH, Architecture, Ends, Layer, Matrix, Role
from zerolm.families.core_sizes import CoreSizes
from zerolm.families.family import EQUAL, NO, UNEQUAL, Cuttable, Family, Pattern, Rounded
from zerolm.families.kinds import kinds_of, windows_of
from zerolm.families.known import family_of
from zerolm.families.rule import is_rule, value
from zerolm.families.values import boolean, check_names, described, integer, is_given, short, value_of

LIMITS: Final = {
    "depth": MAX_DEPTH,
    "vocab": MAX_VOCAB,
    "positions": MAX_VOCAB,
    "types": MAX_VOCAB,
    "heads": 1 << 16,
    "kv_heads": 1 << 16,
    "head_size": 1 << 16,
    "experts": 1 << 12,
    "active": 1 << 12,
}
"""The largest sizes that are read, ``MAX_WIDTH`` where nothing is said: exact int64 cannot overflow."""
COUNT_LABELS: Final = ("depth", "heads", "kv_heads", "head_size")
"""Sizes that are no axis of a tensor."""
CHOICES: Final = ("depth", "hidden", "head_size", "heads", "kv_heads", "ffn")
TABLES: Final = ("embedding", "positions", "types", "relative_positions", "relative_positions_all")
"""Roles of matrices outside the layers of which a token meets some rows only."""
OF_FFN: Final = ("gate", "up", "down", "router", "shared", "experts", "dense")
"""First words of the roles of an FFN's matrices."""


@dataclass(frozen=True)
class Remembered:
    """The numbers that a layer keeps of earlier tokens: see ``Memory``."""

    token: int
    state: int
    products: int


@dataclass(frozen=True)
class ModelSizes(CoreSizes):
    """The sizes of a model, as its stock class would have them.

    ``tied``: the head is the embedding. ``windows`` (depth,): how many tokens each layer attends to at most,
    0 for all; ``kinds`` (depth,) those that it is of. ``sizes`` has the length of each axis by its label:
    ``q`` (heads x head size), ``kv``, ``head`` (the size of one head), ``ffn``, ``hidden``, ``vocab``,
    ``positions`` ... but of free ones (``labels``). ``units`` has for axes that are made of units what there
    is one of each, and how many elements each is.
    """

    vocab: int
    tied: bool
    windows: tuple[int, ...]
    kinds: tuple[frozenset[str], ...]
    sizes: dict[str, int]
    units: dict[str, tuple[str, int]]

    def labelled(self, label: str) -> int:
        return self.sizes.get(label, super().labelled(label))

    def length(self, axis: str) -> int | None:
        """Return the length of an axis, also of one with fused parts; None where it is free."""
        parts = [int(label) if label.isdigit() else self.sizes.get(label) for label in axis.split("+")]
        return None if None in parts else sum(size for size in parts if size is not None)

    def size(self, label: str) -> int:
        """Return a size by the name that rules have for it: of an axis, or a count."""
        return int(getattr(self, label)) if label in COUNT_LABELS else self.sizes[label]


def sizes_of(family: Family, config: Mapping[str, Any]) -> ModelSizes:
    """Return the sizes that a configuration gives; ``ValueError`` for what is no size, or does not divide."""
    fields = described(family, config)
    for name, only in family.config.only.items():
        if fields.get(name) not in (None, only):
            raise ValueError(f"{name} is {short(fields[name])}; only {family.name} with {only!r} are read")
    by_label = {label: _size(family, fields, label) for label in family.config.sizes}
    if by_label["heads"] % by_label["kv_heads"]:
        names = [f"{_field(family, name)} {by_label[name]}" for name in ("heads", "kv_heads")]
        raise ValueError(" is not divisible by ".join(names))
    if not family.shares_keys and by_label["heads"] != by_label["kv_heads"]:
        names = [f"{_field(family, name)} {by_label[name]}" for name in ("heads", "kv_heads")]
        raise ValueError(f"{' is not '.join(names)}: a {family.name} has a key and a value for each head")
    if by_label.get("active", 0) > by_label.get("experts", 0) > 0:
        raise ValueError(f"{by_label['active']} experts are chosen of {by_label['experts']}")
    for label, size in family.config.sizes.items():
        other = size.equal
        if other is not None and by_label[label] != by_label[other]:
            names = [f"{_field(family, name)} {by_label[name]}" for name in (label, other)]
            raise ValueError(f"{' is not '.join(names)}; only {family.name} where they are equal are read")
    head = by_label["head_size"]
    axes = {"q": by_label["heads"] * head, "kv": by_label["kv_heads"] * head, "head": head}
    units = {
        label: (axis.each, sum(value(part, by_label.__getitem__) for part in axis.parts))
        for label, axis in family.config.axes.items()
    }
    return ModelSizes(
        **{name: by_label[name] for name in (*CHOICES, "vocab")},
        tied=_is_tied(family, fields),
        windows=tuple(windows_of(family, fields, by_label["depth"])),
        kinds=kinds_of(family, fields, by_label["depth"]),
        sizes=axes
        | {label: by_label[each] * size for label, (each, size) in units.items()}
        | {label: size for label, size in by_label.items() if label not in COUNT_LABELS},
        units=units,
    )


def resized(sizes: ModelSizes, counts: Mapping[str, int]) -> ModelSizes:
    """Return the sizes of a model with these ``counts``: ``heads``, ``kv_heads``, ``ffn``, or other sizes."""
    core: dict[str, Any] = {name: count for name, count in counts.items() if name in CHOICES}
    axes = {label: count for label, count in counts.items() if label in sizes.sizes}
    axes |= {label: counts[each] * sizes.head_size for label, each in (("q", "heads"), ("kv", "kv_heads"))}
    axes |= {label: counts[each] * size for label, (each, size) in sizes.units.items() if each in counts}
    return replace(sizes, **core, sizes=sizes.sizes | axes)


def size_of(family: Family, config: Mapping[str, Any], label: str) -> int:
    """Return a size by its label; ``ValueError`` where it is no integer within reason."""
    return _size(family, described(family, config), label)


def _is_tied(family: Family, fields: Mapping[str, Any]) -> bool:
    tied = family.config.tied
    return boolean(fields, tied.field, tied.default)


def has(family: Family, pattern: Pattern, config: Mapping[str, Any], head: bool) -> bool:
    """Return whether a model with this configuration has the tensor; ``head``: if it has that of its task.

    In the layers of its kinds, that is.
    """
    fields = described(family, config)
    with_head = {"head": head, "untied": head and not _is_tied(family, fields), "optional": False}
    return all(with_head.get(when, _holds(family, when, fields)) for when in pattern.conditions)


def may_have(family: Family, pattern: Pattern, config: Mapping[str, Any]) -> bool:
    """Return whether a model with this configuration has the tensor if it has some head or other."""
    fields = described(family, config)
    of_a_head = set(pattern.conditions) & {"optional", "head", "untied"}
    return bool(of_a_head) and all(_holds(family, when, fields) for when in pattern.conditions)


def _holds(family: Family, when: str, fields: Mapping[str, Any]) -> bool:
    """Return whether a condition holds (see ``Pattern``); True of words that are no flag and no size."""
    one, _, other = when.partition(UNEQUAL)
    if other:
        return _size(family, fields, one) != _size(family, fields, other)
    name, _, text = when.partition(EQUAL)
    if text:
        return bool(fields.get(name) == text)
    flags, label = family.config.flags, when.removeprefix(NO)
    if label in flags:
        return boolean(fields, label, flags[label]) is not when.startswith(NO)
    return label not in family.config.sizes or (_size(family, fields, label) == 0) is when.startswith(NO)


def cut_of(family: Family, config: Mapping[str, Any]) -> Cuttable:
    """Return the cuts that a model with this configuration can take."""
    cut, fields = family.cut, described(family, config)
    for unless in cut.unless:
        if all(_holds(family, when, fields) for when in unless.when.split(" and ")):
            changes: dict[str, Any] = dict.fromkeys(unless.cuts, False)
            notes = {"hidden_note" if name == "hidden" else "note" for name in unless.cuts}
            cut = replace(cut, **changes | dict.fromkeys(notes, unless.note))
    return cut


def is_of(pattern: Pattern, kinds: frozenset[str]) -> bool:
    """Return whether layers of these kinds have the tensor, if the model has."""
    return not pattern.kinds or any(kinds >= set(each.split(" and ")) for each in pattern.kinds)


def from_config(config: Mapping[str, Any]) -> Architecture:
    """Return the architecture of a ``config.json``; ``choices`` hold the sizes that were read.

    Models are counted with the head of their task: language models, bert as ``BertForMaskedLM``; of a model
    that sees or hears, the text part. Raises ``ValueError`` for another model type, what is no size, or sizes
    that do not divide.
    """
    family = family_of(config)
    sizes = sizes_of(family, config)
    present = [pattern for pattern in family.tensors.body if has(family, pattern, config, head=True)]
    inside = [pattern for pattern in present if pattern.in_layer]
    kinds = list(zip(sizes.windows, sizes.kinds, strict=True))
    by_kind = {kind: layer_with(family, inside, sizes, *kind) for kind in set(kinds)}
    outside = [pattern for pattern in present if not pattern.in_layer]
    head = [pattern for pattern in family.tensors.head if has(family, pattern, config, head=True)]
    experts = {name: sizes.sizes[name] for name in ("experts", "active") if name in sizes.sizes}
    return Architecture(
        f"huggingface:{family.name}",
        {name: getattr(sizes, name) for name in CHOICES} | experts,
        tuple(by_kind[kind] for kind in kinds),
        _ends(outside, head, sizes),
    )


def remembered(family: Family, sizes: ModelSizes, kinds: frozenset[str]) -> Remembered:
    """Return the memory of earlier tokens in a layer of these kinds."""
    for memory in family.config.memory:
        if not memory.kinds or kinds & set(memory.kinds):
            rules = memory.token, memory.state, memory.products
            return Remembered(*(value(rule, sizes.size) for rule in rules))
    return Remembered(2 * sizes.sizes["kv"], 0, 2 * sizes.sizes["q"])


def layer_with(
    family: Family, patterns: list[Pattern], sizes: ModelSizes, window: int, kinds: frozenset[str]
) -> Layer:
    """Return a layer that has these tensors, an expert's as many times as there are experts."""
    matrices: list[Matrix] = []
    vectors = idle = idle_vectors = 0
    experts, active = (sizes.sizes.get(label, 1) for label in ("experts", "active"))
    for pattern in patterns:
        if not is_of(pattern, kinds):
            continue
        count, unmet = (experts, experts - active) if pattern.of_experts else (1, 0)
        shape = _shape(pattern, sizes)
        if len(shape) != 2 or pattern.role.endswith("norm"):
            vectors += count * math.prod(shape)
            idle_vectors += unmet * math.prod(shape)
            continue
        matrices += [_matrix(pattern, shape)] * count
        idle += unmet * matrices[-1].weights
    kept = remembered(family, sizes, kinds)
    return Layer(
        matrices=tuple(matrices),
        width=sizes.hidden,
        query_width=kept.products // 2,
        kv_width=kept.token // 2,
        vectors=vectors,
        body_vectors=vectors,
        window=window,
        idle=idle,
        state=kept.state,
        idle_vectors=idle_vectors,
    )


def _matrix(pattern: Pattern, shape: list[int]) -> Matrix:
    rows, cols = reversed(shape) if pattern.transposed else shape
    labels = {label for axis in pattern.axes for label in axis.split("+")}
    role: Role = "ffn" if in_ffn(pattern.role) and not labels & {"q", "kv"} else "attention"
    return Matrix(role, rows, cols, len(pattern.roles), pattern.scaled, pattern.role.replace("+", ""))


def in_ffn(role: str) -> bool:
    """Return whether a role is that of an FFN's matrix."""
    return role.split("+")[0].split("_")[0] in OF_FFN


def _shape(pattern: Pattern, sizes: ModelSizes) -> list[int]:
    """Return the shape of a tensor, of one expert's where there are experts."""
    axes = pattern.axes[1:] if pattern.of_experts and pattern.axes[0] == "experts" else pattern.axes
    return [sizes.length(axis) or 0 for axis in axes]


def _ends(outside: list[Pattern], head: list[Pattern], sizes: ModelSizes) -> Ends:
    shapes = {pattern: _shape(pattern, sizes) for pattern in (*outside, *head)}
    matrices = [pattern for pattern in outside if len(shapes[pattern]) == 2]
    tables = [pattern for pattern in matrices if pattern.role in TABLES]
    embedding = next(shapes[table] for table in tables if table.role == "embedding")
    rest = [pattern for pattern in (*matrices, *head) if pattern not in tables]
    vectors = {pattern: shape[0] for pattern, shape in shapes.items() if len(shape) == 1}
    return Ends(
        embedding=sum(shapes[table][0] * shapes[table][1] for table in tables),
        tied_head=math.prod(embedding) if sizes.tied else 0,
        head_matrices=tuple(
            Matrix("head", shape[0], shape[1], name="head")
            for shape in map(shapes.__getitem__, rest)
            if len(shape) == 2
        ),
        vectors=sum(vectors.values()),
        body_vectors=sum(size for pattern, size in vectors.items() if pattern.role.startswith("final_norm")),
    )


def _size(family: Family, fields: Mapping[str, Any], label: str) -> int:
    size = family.config.sizes[label]
    check_names(fields, size)
    number, name = value_of(fields, size), size.field or label
    most, least = LIMITS.get(label, MAX_WIDTH), 0 if size.may_be_none else 1
    if not is_given(fields, size) and is_rule(number):
        number = value(number, lambda of: _factor(family, fields, of), lambda of: _field(family, of))
    whole = integer(name, number, most, least)
    return whole if size.rounded is None else _rounded(size.rounded, fields, whole)


def _rounded(rounded: Rounded, fields: Mapping[str, Any], width: int) -> int:
    if not boolean(fields, rounded.switch.field, rounded.switch.default):
        return width
    width, factor = 2 * width // 3, value_of(fields, rounded.factor)
    if isinstance(factor, bool) or not isinstance(factor, int | float) or not 0 < factor <= MAX_WIDTH:
        raise ValueError(f"{rounded.factor.field} is {short(factor)}, not a factor")
    multiple = integer(str(rounded.multiple.field), value_of(fields, rounded.multiple), MAX_WIDTH)
    return integer("a rounded size", -(-int(factor * width) // multiple) * multiple, MAX_WIDTH)


def _factor(family: Family, fields: Mapping[str, Any], label: str) -> int:
    """Return a size, or 1 for a flag that is set and 0 for one that is not."""
    flags = family.config.flags
    return int(boolean(fields, label, flags[label])) if label in flags else _size(family, fields, label)


def _field(family: Family, label: str) -> str:
    return (family.config.sizes[label].field if label in family.config.sizes else None) or label
