"""The text of a record: the field that holds it, or messages as a chat template renders them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final

from zerolm.settings import shown
from zerolm.text.records import Row

SINGLE: Final = ("text", "content", "messages", "conversations")
TOGETHER: Final = (("prompt", "completion"), ("sentence1", "sentence2"))
"""Fields that are read one after another: a prompt with its completion, and sentences, one a line."""
SENTENCES: Final = TOGETHER[1]
JOIN: Final = "+"
"""Between names of fields that are read together, as a user gives them."""
ROLES: Final = {"human": "user", "gpt": "assistant"}
"""Roles of ``conversations`` by those of chat templates; others are the same."""
MOST_SHOWN: Final = 20

Render = Callable[[Sequence[Mapping[str, Any]]], str]
"""Gives the text of messages, each with ``role`` and ``content``."""
_FIELD: list[str | None] = [None]
"""The names of the field that is read at present, the last of them now."""


@contextmanager
def reading_field(name: str | None) -> Iterator[None]:
    """Within, the text of records is in this field; without a name, in the only one that is known."""
    _FIELD.append(current_field() if name is None else name)
    try:
        yield
    finally:
        _FIELD.pop()


def current_field() -> str | None:
    """Return the name of the field that texts are read from, None where the record decides."""
    return _FIELD[-1]


def text_fields(place: str, fields: Sequence[str]) -> tuple[str, ...]:
    """Return the fields of records that hold their text, in order; none of records that are strings.

    ``ValueError`` lists the fields where none or several could, or the one that was named is not there.
    """
    named = current_field()
    if not fields:
        if named is not None:
            raise ValueError(f"the records of {place!r} are strings without fields: leave --text-field out")
        return ()
    listed = ", ".join(map(str, fields[:MOST_SHOWN])) + (" ..." if len(fields) > MOST_SHOWN else "")
    if named is not None:
        parts = (named,) if named in fields else tuple(named.split(JOIN))
        if not set(parts) <= set(fields):
            raise ValueError(f"{place!r} has no field {shown(named)}; it has {listed}")
        return parts
    possible: list[tuple[str, ...]] = [(name,) for name in SINGLE if name in fields]
    possible += [names for names in TOGETHER if set(names) <= set(fields)]
    if len(possible) == 1:
        return possible[0]
    first = JOIN.join(possible[0]) if possible else next(iter(fields), "NAME")
    if possible:
        several = " and ".join(JOIN.join(names) for names in possible)
        raise ValueError(f"{place!r} has the fields {several}: name one of them, --text-field {first}")
    raise ValueError(
        f"{place!r} has no field text, content, messages, or prompt and completion; it has {listed}: "
        f"name the field of the text, --text-field {shown(first).strip(chr(39))}"
    )


def text_of(place: str, row: Row, fields: Sequence[str], render: Render | None) -> tuple[str, bool]:
    """Return the text of a record, empty for nulls, and whether it is a rendered chat.

    ``ValueError`` says where a value is that is no text, or why messages cannot be rendered.
    """
    if isinstance(row, str):
        return row, False
    missing = [name for name in fields if name not in row]
    if missing:
        raise ValueError(f"{place} has no field {shown(missing[0])}; the first record has")
    values = [row[name] for name in fields]
    if any(value is None for value in values):
        return "", False
    if all(isinstance(value, str) for value in values):
        between = "\n" if tuple(fields) == SENTENCES else ""
        return between.join(values), False
    if all(isinstance(value, list) for value in values):
        return _rendered(place, [each for value in values for each in value], render), True
    odd = next(name for name, value in zip(fields, values, strict=True) if not isinstance(value, str))
    raise ValueError(f"{place} has {odd} {shown(row[odd])}; a text, or a list of messages, is needed")


def _rendered(place: str, messages: Sequence[Any], render: Render | None) -> str:
    checked = [_message(place, message) for message in messages]
    if not checked:
        return ""
    if render is None:
        raise ValueError(
            f"{place} holds messages, which the chat template of a model renders, and no model reads this "
            "text: give one with a field text"
        )
    try:
        return render(checked)
    except ValueError as error:
        raise ValueError(f"{place}: {error}") from None


def _message(place: str, message: Any) -> dict[str, Any]:
    """Return a message by ``role`` and ``content``, which others call ``from`` and ``value``."""
    if isinstance(message, dict):
        named = {name: value for name, value in message.items() if value is not None}
        role, content = named.get("role"), named.get("content", "")
        if isinstance(role, str) and isinstance(content, str | list):
            return named | {"content": content}
        speaker, value = named.get("from"), named.get("value")
        if isinstance(speaker, str) and isinstance(value, str):
            return {"role": ROLES.get(speaker, speaker), "content": value}
    raise ValueError(f"{place} has the message {shown(message)}; one has a role and content")
