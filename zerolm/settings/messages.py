"""Values and names as messages show them: short, whatever their size."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches
from reprlib import Repr
from typing import Any, Final

MOST: Final = 80
DIGITS: Final = 40
_REPR: Final = Repr()
_REPR.maxlevel, _REPR.maxlist, _REPR.maxtuple, _REPR.maxdict, _REPR.maxset = 3, 10, 10, 5, 5
_REPR.maxstring, _REPR.maxother, _REPR.maxlong = MOST, MOST, DIGITS


def shown(value: Any) -> str:
    """Return a value as a message shows it, at most 80 characters, never unfolded in full."""
    if isinstance(value, int) and abs(value) >= 10**DIGITS:
        return f"one of more than {DIGITS} digits"
    text = _REPR.repr(value)
    return text if len(text) <= MOST else f"{text[: MOST - 3]}..."


def nearest(name: str, possible: Iterable[str]) -> str:
    """Return the end of a message about an unknown name: the nearest one, and all there are."""
    names = list(possible)
    close = get_close_matches(name[:MOST], names, 1)
    meant = f"; did you mean {close[0]!r}?" if close else ";"
    return f"{meant} there are {', '.join(names) or 'none'}"
