"""The values of a ``config.json``, of its text part where it has several, checked as they are read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from zerolm.families.family import ByNumber, Family, Field, Kinds

OF_THE_WHOLE: Final = ("model_type", "architectures", "quantization_config")
"""Fields that are those of the whole model, whatever its text part says."""


def described(family: Family, config: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the fields that describe the text model: those of its part, and of the whole where that is it.

    ``ValueError`` for a part that is no object, or says another size than the whole does.
    """
    at = part_at(family, config)
    if at is None:
        return of_all(family, config)
    part = config[at]
    if not isinstance(part, Mapping):
        raise ValueError(f"{at} is {short(part)}, not an object")
    for field in family.config.sizes.values():
        for name in filter(None, (field.field, *field.also)):
            if name in part and config.get(name) not in (None, part[name]):
                raise ValueError(f"{name} is {short(config[name])}, and {short(part[name])} in {at}")
    whole = {name: config[name] for name in OF_THE_WHOLE if name in config}
    part = of_all(family, part)
    tied = family.config.tied.field
    if tied is not None and tied in config:
        whole[tied] = config[tied]
    return {**part, **whole}


def part_at(family: Family, config: Mapping[str, Any]) -> str | None:
    """Return the field that holds the text part; None where the whole says it all, as older ones do."""
    at = family.config.at
    return None if at is None or config.get(at) is None else at


def of_all(family: Family, fields: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return fields that say of all layers of a kind what one says by their numbers, or by letters.

    ``ValueError`` where it says several things, of other layers, or of other values than are known.
    """
    for choice in family.config.kinds:
        if choice.pattern is not None and choice.field is not None and choice.pattern in fields:
            fields = _without_letters(choice, choice.field, choice.pattern, fields)
        if choice.by_number is not None and fields.get(choice.by_number.field) is not None:
            fields = _without_numbers(choice, choice.by_number, fields)
    return fields


def _without_letters(choice: Kinds, listed: str, pattern: str, fields: Mapping[str, Any]) -> dict[str, Any]:
    text, plain = fields[pattern], {name: value for name, value in fields.items() if name != pattern}
    if fields.get(listed) is not None:
        return plain
    if not isinstance(text, str) or not set(text) <= choice.letters.keys():
        raise ValueError(f"{pattern} is {short(text)}, not a text of {' '.join(choice.letters)}")
    return plain | {listed: [choice.letters[letter] for letter in text]}


def _without_numbers(choice: Kinds, numbered: ByNumber, fields: Mapping[str, Any]) -> dict[str, Any]:
    by_number, listed = fields[numbered.field], fields.get(choice.field or "")
    values = list(by_number.values()) if isinstance(by_number, Mapping) else []
    possible = ", ".join(numbered.names)
    if any(value != values[0] for value in values) or not all(isinstance(value, Mapping) for value in values):
        raise ValueError(f"{numbered.field} is {short(by_number)}, not the same {possible} for some layers")
    if values and isinstance(listed, list):
        wanted = {str(n) for n, name in enumerate(listed) if choice.values.get(str(name)) == numbered.kind}
        if wanted != set(map(str, by_number)):
            raise ValueError(
                f"{numbered.field} is of other layers than those of {numbered.kind} {choice.field}"
            )
    each = values[0] if values else {}
    if not each.keys() <= numbered.names.keys():
        raise ValueError(f"{numbered.field} has {', '.join(map(short, each))}; {possible} are read")
    plain = {name: value for name, value in fields.items() if name != numbered.field}
    return plain | {numbered.names[name]: value for name, value in each.items()}


def value_of(config: Mapping[str, Any], field: Field) -> Any:
    """Return the configured value, else the default; for null the value that it means."""
    if field.when is not None and config.get(field.when) is not True:
        return field.otherwise
    if field.counts is not None and isinstance(config.get(field.counts), list):
        return len(config[field.counts])
    for name in (field.field, *field.also):
        if name is not None and name in config:
            return field.null if config[name] is None else config[name]
    return field.default


def is_given(config: Mapping[str, Any], field: Field) -> bool:
    """Return whether a field, or another name of it, has a value that is read."""
    if field.when is not None and config.get(field.when) is not True:
        return False
    return any(name is not None and config.get(name) is not None for name in (field.field, *field.also))


def check_names(config: Mapping[str, Any], field: Field) -> None:
    """Refuse a configuration with two different values of one field."""
    names = [name for name in (field.field, *field.also) if name is not None and name in config]
    for name in names[1:]:
        if config[name] != config[names[0]]:
            raise ValueError(f"the configuration has {names[0]} {short(config[names[0]])} and {name} as well")


def boolean(config: Mapping[str, Any], name: str | None, default: Any) -> bool:
    """Return the value of a flag; ``ValueError`` where it is neither true nor false."""
    value = config.get(name, default) if name else default
    if not isinstance(value, bool):
        raise ValueError(f"{name} must be true or false, not {short(value)}")
    return value


def integer(name: str, value: Any, most: int, least: int = 1) -> int:
    """Return an integer within these bounds, else ``ValueError``."""
    if type(value) is not int or not least <= value <= most:
        raise ValueError(f"the configuration has {name} {short(value)}; {least} to {most} are possible")
    return value


def short(value: Any) -> str:
    """Return a value as a message shows it."""
    text = repr(value) if not isinstance(value, int) or abs(value) < 10**40 else "of more than 40 digits"
    return text if len(text) <= 80 else f"{text[:77]}..."
