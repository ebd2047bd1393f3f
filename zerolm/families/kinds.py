"""The differences between the layers of a model: the kinds that they are of, and their windows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from zerolm.architecture import MAX_DEPTH, MAX_VOCAB
from zerolm.families.family import Family, Field, KindRule, Kinds
from zerolm.families.values import boolean, integer, short, value_of

FULL, SLIDING = "full_attention", "sliding_attention"


def kinds_of(family: Family, fields: Mapping[str, Any], depth: int) -> tuple[frozenset[str], ...]:
    """Return the kinds that each layer is of; ``ValueError`` where a list has others, or another length."""
    choices = [
        _listed(choice, fields, depth) or _by_rule(choice, fields, depth) for choice in family.config.kinds
    ]
    return tuple(frozenset(choice[layer] for choice in choices) for layer in range(depth))


def _listed(choice: Kinds, fields: Mapping[str, Any], depth: int) -> list[str]:
    names = fields.get(choice.field) if choice.field else None
    if names is None:
        return []
    if not isinstance(names, list) or not all(isinstance(n, str) and n in choice.values for n in names):
        raise ValueError(f"{choice.field} is {short(names)}, not a list of {', '.join(choice.values)}")
    if len(names) != depth:
        raise ValueError(f"it has {depth} layers and {len(names)} {choice.field}")
    return [choice.values[name] for name in names]


def _by_rule(choice: Kinds, fields: Mapping[str, Any], depth: int) -> list[str]:
    holds = [(rule.kind, _layers(rule, fields, depth)) for rule in choice.rules]
    return [next(kind for kind, layers in holds if layer in layers) for layer in range(depth)]


def _layers(rule: KindRule, fields: Mapping[str, Any], depth: int) -> frozenset[int]:
    if rule.several is not None and _number(fields, rule.several) == 1:
        return frozenset()
    if rule.listed is not None:
        return _numbers(fields, rule.listed)
    if rule.but_listed is not None:
        is_given = fields.get(rule.but_listed) is not None
        return frozenset(range(depth)) - _numbers(fields, rule.but_listed) if is_given else frozenset()
    if rule.first is not None:
        return frozenset(range(min(depth, _number(fields, rule.first, least=0))))
    if rule.after is not None:
        last = _number(fields, rule.after, least=-1)
        return frozenset(range(last + 1, depth)) if last >= 0 else frozenset()
    if rule.last is not None:
        return frozenset(range(depth)[max(0, depth - _number(fields, rule.last, least=0)) :])
    if rule.every is not None:
        every = _number(fields, rule.every)
        offset = -rule.less + (0 if rule.offset is None else _number(fields, rule.offset, least=-1))
        return frozenset(n for n in range(depth) if n >= offset and (n - offset) % every == 0)
    return frozenset(range(depth))


def _numbers(fields: Mapping[str, Any], name: str) -> frozenset[int]:
    numbers = fields.get(name) or []
    if not isinstance(numbers, list) or not all(type(n) is int and 0 <= n < MAX_DEPTH for n in numbers):
        raise ValueError(f"{name} is {short(numbers)}, not a list of numbers of layers")
    return frozenset(numbers)


def _number(fields: Mapping[str, Any], field: Field, most: int = MAX_DEPTH, *, least: int = 1) -> int:
    return integer(field.field or "a rule", value_of(fields, field), most, least)


def by_number(choice: Kinds, wanted: Sequence[frozenset[str]]) -> dict[str, list[int] | int]:
    """Return the number of first layers of a kind, and the numbers of others, where rules use these.

    ``wanted`` are the kinds of each layer.
    """
    fields: dict[str, list[int] | int] = {}
    for rule in choice.rules:
        places = [place for place, kinds in enumerate(wanted) if rule.kind in kinds]
        if rule.first is not None and rule.first.field is not None:
            fields[rule.first.field] = next((n for n, place in enumerate(places) if n != place), len(places))
        if rule.listed is not None:
            fields[rule.listed] = places
        if rule.every is not None and rule.every.field is not None and choice.rules[0].listed is not None:
            fields[rule.every.field] = 1  # the list says it all
    return fields


def windows_of(family: Family, fields: Mapping[str, Any], depth: int) -> Iterator[int]:
    """Yield how many tokens each layer attends to at most, 0 for all."""
    window, listed = family.config.window, fields.get("layer_types")
    if isinstance(listed, list) and len(listed) != depth:
        raise ValueError(f"it has {depth} layers and {len(listed)} layer_types")
    if window is None:
        yield from [0] * depth
        return
    size = _window_size(fields, window.size, window.switch)
    size = size // 2 * 2 + 1 if size and window.around else size
    if window.kinds:
        yield from (size if kinds & set(window.kinds) else 0 for kinds in kinds_of(family, fields, depth))
    elif window.types is not None and fields.get(window.types) is not None:
        of_kinds = (choice for choice in family.config.kinds if choice.field == window.types)
        possible = [FULL, SLIDING, *(name for choice in of_kinds for name in choice.values)]
        if not isinstance(listed, list) or not all(kind in possible for kind in listed):
            raise ValueError(f"{window.types} is {short(listed)}, not a list of {FULL} and {SLIDING}")
        yield from (size if kind == SLIDING else 0 for kind in listed)
    elif not size:
        yield from [0] * depth
    elif window.but_every is not None:
        every = _number(fields, window.but_every)
        full = 0 if window.but_first else every - 1
        yield from (0 if n % every == full else size for n in range(depth))
    else:
        first = 0 if window.first is None else _number(fields, window.first, MAX_VOCAB, least=0)
        yield from (size if n >= first and (n - first) % window.every == 0 else 0 for n in range(depth))


def _window_size(fields: Mapping[str, Any], field: Field, switch: str | None) -> int:
    value = value_of(fields, field)
    if value is None or (switch and not boolean(fields, switch, False)):
        return 0
    return integer(str(field.field), value, MAX_VOCAB)
