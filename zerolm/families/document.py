"""A family's JSON document, checked as strictly as it is written."""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from dataclasses import MISSING, fields, is_dataclass
from functools import cache
from types import NoneType, UnionType
from typing import Any, Final, Literal, get_args, get_origin, get_type_hints

from zerolm.families.family import EQUAL, NO, UNEQUAL, Family, InFile, Pattern, Prefix
from zerolm.families.rule import is_rule, needed

NAMES: Final = {"name": "model_type", "module_names": "modules"}
"""Fields of a ``Family`` that have other names in the document."""
NEEDED_SIZES: Final = ("depth", "hidden", "heads", "ffn")
ALL_NEEDED: Final = (*NEEDED_SIZES, "kv_heads", "head_size", "vocab", "positions")
FREE_AXES: Final = ("labels", "head", "q", "kv")
MOST_AXES: Final = 3
CUTS: Final = ("layers", "heads", "ffn", "hidden")
NEEDED_NORM: Final = {
    "post": "attention_post_norm",
    "output": "attention_post_norm",
    "parallel": "attention_norm",
}


def read_family(document: Any) -> Family:
    """Return the family of a document; ``ValueError`` names the first entry that is wrong, and why."""
    if not isinstance(document, Mapping):
        raise ValueError("a family is a JSON object")
    family: Family = _read(Family, document, "family")
    _check(family)
    return family


@cache
def entries_of(kind: Any) -> dict[str, tuple[str, Any, bool]]:
    """Return by their names in a document the fields of a class, their types, and whether they are needed."""
    hints, names = get_type_hints(kind), NAMES if kind is Family else {}
    return {
        names.get(part.name, part.name): (
            part.name, hints[part.name], part.default is MISSING and part.default_factory is MISSING
        )
        for part in fields(kind)
    }  # fmt: skip


def _read(kind: Any, value: Any, where: str) -> Any:
    if kind is Prefix and isinstance(value, str | list):
        value = dict(zip(("body", "head"), [value] if isinstance(value, str) else value, strict=False))
    if kind is InFile and isinstance(value, str):
        value = {"name": value}
    if is_dataclass(kind):
        return _object(kind, value, where)
    origin, arguments = get_origin(kind), get_args(kind)
    if origin is UnionType:
        return None if value is None else _read(next(x for x in arguments if x is not NoneType), value, where)
    if origin is tuple and isinstance(value, list):
        return tuple(_read(arguments[0], item, f"{where}[{index}]") for index, item in enumerate(value))
    if origin is dict and isinstance(value, Mapping):
        return {name: _read(arguments[1], value[name], f"{where}.{name}") for name in value}
    if origin is Literal and value in arguments:
        return value
    if kind is Any or (isinstance(kind, type) and type(value) is kind):
        return value
    wanted = {tuple: "a list", dict: "an object", bool: "true or false", int: "an integer"}.get(
        origin or kind
    )
    wanted = wanted or (f"one of {', '.join(map(str, arguments))}" if origin is Literal else "a text")
    raise ValueError(f"{where} is {str(value)[:60]!r}, not {wanted}")


def _object(kind: Any, value: Any, where: str) -> Any:
    if not isinstance(value, Mapping):
        raise ValueError(f"{where} is {str(value)[:60]!r}, not an object")
    entries = entries_of(kind)
    for name in value:
        if name not in entries:
            raise ValueError(f"{where} has an unknown entry {str(name)[:60]!r}; known: {', '.join(entries)}")
    for name, (_, _, is_needed) in entries.items():
        if is_needed and name not in value:
            raise ValueError(f"{where} lacks {name!r}")
    read = {name: _read(entries[name][1], value[name], f"{where}.{name}") for name in value}
    return kind(**{entries[name][0]: item for name, item in read.items()})


def _check(family: Family) -> None:
    """Refuse what no configuration and no checkpoint could be read by."""
    cut = family.cut
    if (cut.indivisible in ("kept", "refused")) != (cut.written_as is None):
        raise ValueError(f"cut.indivisible is {cut.indivisible!r}: kept, refused, or a family and written_as")
    if cut.hidden and family.norm != "pre":
        raise ValueError(
            f"cut.hidden is true, but the norms are {family.norm!r}: only those before let it be"
        )
    sizes, tensors = family.config.sizes, family.tensors
    for label in ALL_NEEDED if tensors.body else NEEDED_SIZES:
        if label not in sizes:
            raise ValueError(f"config.sizes lacks {label!r}")
    for label, size in sizes.items():
        if size.equal is not None and size.equal not in sizes:
            raise ValueError(f"config.sizes.{label} is equal to {size.equal!r}, which config.sizes lacks")
        if size.each not in (None, "kv_heads"):
            raise ValueError(f"config.sizes.{label} is of each {size.each!r}; only kv_heads are cut")
        for rule in (size.default, size.null, size.otherwise):
            _check_rule(f"sizes.{label}", rule, (sizes.keys() | family.config.flags.keys()) - {label})
    _check_acyclic(sizes)
    _check_kinds(family)
    if not tensors.body:
        names = family.module_names
        if not (names.layers and names.attention and names.projections and names.between):
            raise ValueError("it describes neither tensors nor modules")
        return
    _check_patterns((*tensors.body, *tensors.head), family)
    for layout in tensors.layouts:
        _check_patterns(layout, family)
    _check_gguf(family)
    roles = {role for pattern in tensors.body if pattern.in_layer for role in pattern.roles}
    norm = NEEDED_NORM.get(family.norm, "ffn_norm")
    norms = () if family.module_names.between else (norm,)  # one without weights
    for role in ("o", "down", *norms):
        if not roles & {role, f"experts_{role}"}:
            raise ValueError(f"no tensor in the layers has the role {role!r}")
    if not any(pattern.role == "embedding" for pattern in tensors.body):
        raise ValueError("no tensor has the role 'embedding'")


def _check_kinds(family: Family) -> None:
    """Refuse axes, kinds and memories that no layer could be read by."""
    config = family.config
    labels = config.sizes.keys() | {"q", "kv"}
    for label, axis in config.axes.items():
        if label in labels or axis.each not in config.sizes:
            raise ValueError(f"config.axes.{label} is of each {axis.each!r}, which config.sizes lacks")
        for part in axis.parts:
            _check_rule(f"axes.{label}", part, config.sizes.keys())
    for choice in config.kinds:
        for_all = [rule.is_for_all for rule in choice.rules]
        if for_all.count(True) != 1 or not for_all[-1]:
            kinds = ", ".join(choice.names)
            raise ValueError(f"config.kinds ({kinds}): the last rule, and no other, must be for all layers")
    names = [name for choice in config.kinds for name in choice.names]
    if len(set(names)) < len(names):
        raise ValueError("config.kinds has a kind twice")
    for memory in config.memory:
        for rule in (memory.token, memory.state, memory.products):
            _check_rule("memory", rule, labels | config.axes.keys())
        _check_named("config.memory", memory.kinds, names)
    if config.window is not None:
        _check_named("config.window", config.window.kinds, names)
    for choice in config.kinds:
        if choice.by_number is not None:
            _check_named("config.kinds.by_number", (choice.by_number.kind,), names)
    for unless in family.cut.unless:
        plain = {when.removeprefix(NO) for when in unless.when.split(" and ")}
        if not plain <= config.sizes.keys() | config.flags.keys() or not set(unless.cuts) <= set(CUTS):
            raise ValueError(
                f"cut.unless is of {', '.join(unless.cuts)} when {unless.when!r}, which is neither"
            )


def _check_gguf(family: Family) -> None:
    """Refuse what a GGUF file of the family could not be written by."""
    gguf, config = family.gguf, family.config
    if gguf is None:
        return
    labels = config.sizes.keys() | config.axes.keys() | {"q", "kv", "head", "heads", "kv_heads", "head_size"}
    kinds = [name for choice in config.kinds for name in choice.names]
    for key, rules in gguf.by_kind.items():
        for when, rule in rules.items():
            if not when.startswith(NO) or when.removeprefix(NO) not in config.sizes:
                _check_named(f"gguf.by_kind.{key}", (when,), kinds)
            _check_sizes(f"gguf.by_kind.{key}", (rule,), labels)
    for key, named in gguf.flagged.items():
        _check_named(f"gguf.flagged.{key}", named, kinds)
    _check_sizes("gguf.sizes", tuple(gguf.sizes.values()), labels)
    for label, each in gguf.tiled.items():
        if label not in config.sizes.keys() | config.axes.keys() or each not in config.sizes:
            raise ValueError(f"gguf.tiled has {label!r} by {each!r}, which config.sizes lacks")
    for pattern in (*family.tensors.body, *family.tensors.head):
        _check_sizes(f"tensor {pattern.name!r}", (*pattern.gguf.shape, *pattern.gguf.parts), labels)


def _check_sizes(where: str, rules: tuple[str, ...], labels: AbstractSet[str]) -> None:
    for rule in rules:
        if not is_rule(rule) or not needed(rule) <= labels:
            raise ValueError(f"{where} has {rule[:60]!r} in a gguf file, which is no size")


def _check_named(where: str, kinds: tuple[str, ...], names: list[str]) -> None:
    for kind in " and ".join(kinds).split(" and ") if kinds else ():
        if kind not in names:
            raise ValueError(f"{where} is of the kind {kind!r}, which config.kinds lacks")


def _check_patterns(patterns: tuple[Pattern, ...], family: Family) -> None:
    sizes, axes = family.config.sizes, family.config.axes
    switches = sizes.keys() | family.config.flags.keys()
    kinds = [name for choice in family.config.kinds for name in choice.names]
    seen: dict[tuple[bool, str], list[Pattern]] = {}
    for pattern in patterns:
        where = f"tensor {pattern.name!r}"
        if len(pattern.axes) > MOST_AXES:
            raise ValueError(f"{where} has {len(pattern.axes)} axes")
        parts = {axis: axis.split("+") for axis in pattern.axes}
        for label in (label for labels in parts.values() for label in labels):
            if label not in sizes and label not in axes and label not in FREE_AXES and not label.isdigit():
                raise ValueError(f"{where} has an axis {label!r}, which config.sizes lacks")
        fused = [labels for labels in parts.values() if len(labels) > 1]
        parted = [axis for axis in pattern.axes if axis in axes and len(axes[axis].parts) > 1]
        count = len(fused[0]) if fused else 1
        if len(fused) > 1 or (len(pattern.roles) != count and not (parted and not fused)):
            raise ValueError(
                f"{where} has the role {pattern.role!r}, which does not fit its axes {pattern.axes}"
            )
        plain = ("always", "head", "untied", "optional")
        named = [when for when in pattern.conditions if when not in plain and EQUAL not in when]
        if not {label for when in named for label in when.removeprefix(NO).split(UNEQUAL)} <= switches:
            raise ValueError(f"{where} is there when {pattern.when!r}, which is no flag of config.flags")
        if pattern.of_experts and not (pattern.in_layer and {"experts", "active"} <= sizes.keys()):
            raise ValueError(f"{where} is of experts, but config.sizes lacks 'experts' and 'active'")
        _check_named(where, pattern.kinds, kinds)
        if pattern.kinds and not pattern.in_layer:
            raise ValueError(f"{where} is of a kind of layers, but in none")
        others = seen.setdefault((pattern.in_layer, pattern.role), [])
        if any(_overlap(pattern, other) for other in others):
            raise ValueError(f"{where} has the role {pattern.role!r}, which another tensor has")
        others.append(pattern)


def _overlap(one: Pattern, other: Pattern) -> bool:
    """Return whether some layer of some model may have both tensors, by their names."""
    pairs = [(set(a.split(" and ")), set(b.split(" and "))) for a in one.kinds for b in other.kinds]
    alike = not one.kinds or not other.kinds or any(a <= b or b <= a for a, b in pairs)
    return alike and not any(NO + a == b or NO + b == a for a in one.conditions for b in other.conditions)


def _check_rule(where: str, rule: Any, labels: AbstractSet[str]) -> None:
    if rule is None or (type(rule) is int and rule >= 0):
        return
    if not is_rule(rule) or not needed(rule) <= labels:
        raise ValueError(f"config.{where} has the default {str(rule)[:60]!r}, which is no size")


def _check_acyclic(sizes: Mapping[str, Any]) -> None:
    needs = {
        label: {
            name
            for rule in (size.default, size.null, size.otherwise)
            if isinstance(rule, str)
            for name in needed(rule)
        }
        for label, size in sizes.items()
    }
    while free := [label for label, others in needs.items() if not others & needs.keys()]:
        for label in free:
            del needs[label]
    if needs:
        raise ValueError(f"config.sizes: {', '.join(needs)} follow from each other")
