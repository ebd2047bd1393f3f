"""Results that were written as JSON, read back as the dataclasses that they were."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final, TypeVar

from zerolm.settings import shown

Kind = TypeVar("Kind")
STRICT: Final[Mapping[str, Any]] = {"strict": True, "extra": "forbid"}
"""The ``__pydantic_config__`` of a dataclass that takes its own fields only, each of its own type."""


def typed(kind: type[Kind], document: Any) -> Kind:
    """Return plain JSON as a dataclass; ``ValueError``, in one line, names the first field that is wrong."""
    from pydantic import TypeAdapter, ValidationError

    try:
        return TypeAdapter(kind).validate_json(json.dumps(document))
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"]))
        raise ValueError(f"{shown(place) if place else 'it'}: {first['msg'].lower()}") from None
