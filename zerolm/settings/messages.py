"""Values and names as messages show them: short, whatever their size."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from difflib import get_close_matches
from reprlib import Repr
from typing import Any, Final

MOST: Final = 80
DIGITS: Final = 40
LISTED: Final = 16
"""Names of a message that lists all there are, at most."""
NEAREST: Final = 3
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
    """Return the end of a message about an unknown name: the nearest one, and all there are if they are few.

    Of more than 16 these are the three nearest.
    """
    names = list(possible)
    if len(names) == 1:
        return f"; there is only {names[0]}"
    close = get_close_matches(name[:MOST], names, 1)
    meant = f"; did you mean {close[0]!r}?" if close else ";"
    if len(names) <= LISTED:
        return f"{meant} there are {', '.join(names) or 'none'}"
    near = get_close_matches(name[:MOST], names, NEAREST, 0.0)
    return f"{meant} the nearest of {len(names)} are {', '.join(map(repr, near))}"


def check_known(what: str, name: Any, possible: Iterable[str]) -> None:
    """Raise ``ValueError`` for a name, or another value, that is none of those possible."""
    names = list(possible)
    if name not in names:
        raise ValueError(f"{what} {shown(name)} is not known{nearest(str(name), names)}")


def plural(count: int, noun: str) -> str:
    """Return a number of things in words: 1 text, 2 texts."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


_TYPED: list[Mapping[str, str]] = []
"""What settings are called on the command line at present, by name; the last of them now."""


@contextmanager
def called_as(typed: Mapping[str, str]) -> Iterator[None]:
    """Within, messages call settings as a user types them (``--max-params``, ``PARENT``), by their names.

    Names with underscores are replaced in every ``ValueError``, too, but where they are quoted.
    """
    _TYPED.append(typed)
    try:
        yield
    except ValueError as error:
        error.args = (_with_flags(str(error), typed), *error.args[1:])
        raise
    finally:
        _TYPED.pop()


def called(name: str) -> str:
    """The name of a setting in messages: its flag where a command line is run, else its own name."""
    return _TYPED[-1].get(name, name.rstrip("_")) if _TYPED else name.rstrip("_")


def _with_flags(message: str, typed: Mapping[str, str]) -> str:
    names = sorted((name for name in typed if "_" in name.rstrip("_")), key=len, reverse=True)
    if not names:
        return message
    words = "|".join(map(re.escape, names))
    pattern = rf"(?<![\w'\"`./=-])({words})(?![\w'\"`./=-]|\.\w)"
    return re.sub(pattern, lambda match: typed[match[1]], message)
