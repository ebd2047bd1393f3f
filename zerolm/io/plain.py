"""Plain JSON as typed values: a field that does not fit is named by its path."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, is_dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, TypeVar

from zerolm.settings import shown

if TYPE_CHECKING:  # pydantic takes longer to import than a search of a small space
    from pydantic import TypeAdapter, ValidationError

Value = TypeVar("Value")
DEMANDS: Final = {
    "int_type": "an integer",
    "float_type": "a number",
    "finite_number": "a finite number",
    "string_type": "text",
    "bool_type": "true or false",
    "none_required": "null",
    "list_type": "a list",
    "tuple_type": "a list",
    "dict_type": "a JSON object",
    "dataclass_type": "a JSON object",
    "model_type": "a JSON object",
}
"""What each kind of error of pydantic asks for."""


def as_plain(value: Any) -> Any:
    """Return a value of a result as JSON has it: what it says itself (``plain``), or its fields."""
    if hasattr(value, "plain"):
        return value.plain
    if is_dataclass(value) and not isinstance(value, type):
        return {item.name: as_plain(getattr(value, item.name)) for item in fields(value)}
    if isinstance(value, Mapping):
        return {key: as_plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [as_plain(item) for item in value]
    return value


def checked(kind: type[Value], document: Any, name: str = "", context: Any = None) -> Value:
    """Return plain JSON as a value of a type, such as a dataclass; ``name`` is the path of the document.

    What reads its JSON itself (``ReadBy``) is given the ``context``.

    Nothing is converted but integers where a float is asked for, lists to tuples, and objects to dataclasses;
    fields that a dataclass lacks are ignored. ``ValueError`` says in one line which field is wrong:
    ``pick.costs.params must be an integer, not 'x'``.
    """
    from pydantic import ValidationError

    try:
        text = json.dumps(document)
    except (TypeError, RecursionError) as error:
        raise ValueError(f"{name or 'it'} is no plain JSON: {error}") from None
    try:
        adapter = _adapter(kind)  # type: ignore[arg-type]
        value: Value = adapter.validate_json(text, strict=True, context=context)
        return value
    except ValidationError as error:
        raise ValueError(first_problem(error, name or "it", document)) from None


@dataclass(frozen=True)
class ReadBy:
    """Annotates a field whose JSON is read by a function of the context and of the JSON."""

    read: Callable[[Any, Any], Any]

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> Any:
        from pydantic_core import core_schema

        return core_schema.with_info_plain_validator_function(
            lambda value, info: self.read(info.context, value)
        )


def first_problem(error: ValidationError, whole: str, document: Any = None) -> str:
    """Return in one line where a document is wrong, and how; ``whole`` is what the document is called.

    The ``document`` distinguishes the steps of a path from pydantic's names of the members of a union.
    """
    errors = error.errors()
    first = errors[0]
    path = _path(first["loc"], document, first["type"] == "missing")
    place = ".".join([*([] if whole in ("it", "the file") and path else [whole]), *map(_step, path)])
    if first["type"] == "missing":
        return f"{place} is required"
    if first["type"] == "too_short":
        return f"{place} must have at least {first['ctx']['min_length']} entries, not {len(first['input'])}"
    same = [each for each in errors if _path(each["loc"], document) == path]
    wanted = [DEMANDS.get(each["type"]) or each.get("ctx", {}).get("expected") for each in same]
    if not all(wanted):
        raised = first["ctx"]["error"] if first["type"] == "value_error" else first["msg"].lower()
        return f"{place}: {raised}"
    return f"{place} must be {' or '.join(dict.fromkeys(map(str, wanted)))}, not {shown(first['input'])}"


def _path(steps: tuple[int | str, ...], document: Any, missing: bool = False) -> list[int | str]:
    """Return the steps that lead into a document, or where a field is missing, to it."""
    if document is None:
        return [step for step in steps if step != "[key]"]
    path: list[int | str] = []
    for step in steps:
        is_item = isinstance(document, list | tuple) and isinstance(step, int) and step < len(document)
        if is_item or (isinstance(document, dict) and step in document):
            document = document[step]
            path.append(step)
    return [*path, steps[-1]] if missing else path


def _step(step: int | str) -> str:
    text = str(step)
    return text if text.isprintable() and 0 < len(text) <= 200 else ascii(text)[:60]


@lru_cache(maxsize=256)
def _adapter(kind: Any) -> TypeAdapter[Any]:
    from pydantic import TypeAdapter

    return TypeAdapter(kind)
