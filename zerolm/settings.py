"""A setting: what a space, a score or a proxy can be told, declared once by what has it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, Literal

Kind = Literal["integer", "number", "integers", "numbers", "interval", "flag", "text"]


class _Required:
    def __repr__(self) -> str:
        return "required"


REQUIRED: Final = _Required()
"""The default of a setting that has none."""


@dataclass(frozen=True)
class Setting:
    """One setting: its flag, YAML key, help and error messages all come from here.

    ``kind`` says how text becomes a value; ``choices`` are the only possible values where there are any.
    """

    name: str
    kind: Kind
    default: Any
    help: str
    choices: tuple[Any, ...] = ()
