"""The JSON Schema of a family's document, from the classes that it is read into.

``python docs/family_schema.py`` prints it.
"""

from __future__ import annotations

import json
from dataclasses import is_dataclass
from types import NoneType, UnionType
from typing import Any, Final, Literal, get_args, get_origin

from zerolm.families.document import entries_of
from zerolm.families.family import Family, InFile, Prefix, Tensors
from zerolm.families.like import LIKE, WITHOUT

DRAFT: Final = "https://json-schema.org/draft/2020-12/schema"
TEXT: Final = {"type": "string"}
TEXTS: Final = {"type": "array", "items": TEXT}
PLAIN: Final[dict[Any, dict[str, Any]]] = {
    str: TEXT,
    bool: {"type": "boolean"},
    int: {"type": "integer"},
    Any: {},
}


def schema() -> dict[str, Any]:
    """Return the schema of a document: whole, or ``like`` another, of which it says what differs."""
    defs: dict[str, Any] = {}
    whole, change = (_object(Family, defs, whole=whole) for whole in (True, False))
    change["properties"] = {**change["properties"], LIKE: TEXT}
    change["required"] = ["model_type", LIKE]
    title = {"title": "A family of models", "description": _words(Family)}
    return {"$schema": DRAFT, **title, "anyOf": [whole, change], "$defs": defs}


def _of(kind: Any, defs: dict[str, Any], *, whole: bool) -> dict[str, Any]:
    """Return the schema of a declared type; classes go into ``defs``."""
    if is_dataclass(kind) and isinstance(kind, type):
        return _reference(kind, defs, whole=whole)
    origin, arguments = get_origin(kind), get_args(kind)
    if origin is UnionType:
        inner = next(each for each in arguments if each is not NoneType)
        return {"anyOf": [_of(inner, defs, whole=whole), {"type": "null"}]}
    if origin is tuple:
        return {"type": "array", "items": _of(arguments[0], defs, whole=whole)}
    if origin is dict:
        return {"type": "object", "additionalProperties": _of(arguments[1], defs, whole=whole)}
    if origin is Literal:
        return {"enum": list(arguments)}
    return PLAIN[kind]


def _reference(kind: type, defs: dict[str, Any], *, whole: bool) -> dict[str, Any]:
    name = kind.__name__ if whole else f"{kind.__name__}Change"
    if name not in defs:
        defs[name] = {}  # stands while it is made: a class may hold others of its kind
        defs[name] = {"description": _words(kind), **_object(kind, defs, whole=whole)}
        if kind is Prefix:
            pair = {**TEXTS, "minItems": 1, "maxItems": 2}
            defs[name] = {"description": _words(kind), "anyOf": [TEXT, pair, defs[name]]}
        if kind is InFile:
            defs[name] = {"description": _words(kind), "anyOf": [TEXT, defs[name]]}
    return {"$ref": f"#/$defs/{name}"}


def _object(kind: Any, defs: dict[str, Any], *, whole: bool) -> dict[str, Any]:
    entries = entries_of(kind)
    properties = {name: _of(type_, defs, whole=whole) for name, (_, type_, _) in entries.items()}
    if kind is Tensors and not whole:
        properties[WITHOUT] = TEXTS
    needed = [name for name, (_, _, is_needed) in entries.items() if is_needed]
    content: dict[str, Any] = {"type": "object", "properties": properties, "additionalProperties": False}
    # A tensor is always given whole: it takes another's place.
    is_given_whole = whole or kind.__name__ in ("Pattern", "Dropped", "KindRule", "Kinds", "UnitAxis")
    return content | ({"required": needed} if needed and is_given_whole else {})


def _words(kind: Any) -> str:
    """Return the docstring of a class in one line, without the marks of code."""
    return " ".join((kind.__doc__ or "").split()).replace("``", "")


if __name__ == "__main__":
    print(json.dumps(schema(), indent=2))
