"""Texts of several domains in one setting: ``code=FILE,chat=FOLDER``."""

from __future__ import annotations

import os
import re
from typing import Final

NAMED: Final = re.compile(r"([A-Za-z][\w-]{0,39})=(.+)", re.DOTALL)
EMPTY: Final = re.compile(r"[A-Za-z][\w-]{0,39}=")
BETWEEN: Final = re.compile(r",(?=[A-Za-z][\w-]{0,39}=)")


def domains_of(text: str | None) -> dict[str, str]:
    """Return the texts by the names of their domains; empty where it is one text, or none.

    ``ValueError`` for a name that comes twice, or without a text.
    """
    if text is None or os.path.exists(text):
        return {}
    parts = [part.strip() for part in BETWEEN.split(text)]
    empty = next((part for part in parts if EMPTY.fullmatch(part)), None)
    if empty is not None:
        raise ValueError(f"the domain {empty[:-1]!r} has no text: name each with one, as code=FILE,chat=FILE")
    named = [NAMED.fullmatch(part) for part in parts]
    pairs = [(match[1], match[2]) for match in named if match is not None]
    if len(pairs) < len(named):
        return {}
    if len(dict(pairs)) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"the domain {twice!r} has two texts: name each once, as code=FILE,chat=FILE")
    return dict(pairs)
