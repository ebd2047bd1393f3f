"""Plain JSON as dataclasses: every field of its type, or one line that names the field."""

from __future__ import annotations

import json
from typing import Any, TypeVar

from pydantic import TypeAdapter, ValidationError

Kind = TypeVar("Kind")


def checked(kind: type[Kind], document: Any) -> Kind:
    """Return plain JSON as a dataclass, every field of its type; ``ValueError`` says what is wrong."""
    try:
        return TypeAdapter(kind).validate_json(json.dumps(document), strict=True)
    except ValidationError as error:
        from zerolm.groundtruth.truth import first_problem

        raise ValueError(first_problem(error, "it")) from None
