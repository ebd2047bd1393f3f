"""A table of numbers whose cells are the darker the larger they are."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Final

LEVELS: Final = 10


def heat(
    title: str,
    columns: Sequence[str],
    rows: Sequence[str],
    values: Sequence[Sequence[float]],
    texts: Sequence[Sequence[str]],
    ends: tuple[float, float],
) -> str:
    """Return the table; ``ends`` are the values of the lightest and the darkest cell."""
    head = "".join(f'<th scope="col">{escape(name)}</th>' for name in columns)
    body = "".join(
        f'<tr><th scope="row">{escape(name)}</th>'
        + "".join(
            f'<td class="heat{_level(v, ends)}">{escape(t)}</td>' for v, t in zip(line, told, strict=True)
        )
        + "</tr>"
        for name, line, told in zip(rows, values, texts, strict=True)
    )
    caption = f"<caption>{escape(title)}</caption>" if title else ""
    return (
        f'<div class="scroll" role="group" aria-label="{escape(title or "map")}" tabindex="0">'
        f'<table class="heat">{caption}<thead><tr><td></td>{head}</tr></thead>'
        f"<tbody>{body}</tbody></table></div>"
    )


def _level(value: float, ends: tuple[float, float]) -> int:
    low, high = ends
    share = (value - low) / (high - low) if high > low else 0.0
    return round(LEVELS * min(1.0, max(0.0, share)))
