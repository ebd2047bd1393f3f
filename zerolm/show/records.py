"""Records: the panel that shows the thing that is picked, and all others for the script of the page."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Any

from zerolm.show.charts import Record, Records
from zerolm.show.markup import command, data, folded
from zerolm.show.strip import labels, largest, strip, to_runs


def records_html(chart: Records) -> str:
    """Return the panel with the first record, and all records as data."""
    first = chart.records[0]
    most = largest([record.layers for record in chart.records])
    facts = "".join(
        f'<div><dt>{escape(name)}</dt><dd data-slot="value{place}">{escape(value)}</dd></div>'
        for place, (name, value) in enumerate(zip(chart.names, first.values, strict=True))
    )
    document = {
        "before": chart.before,
        "after": chart.after,
        "config": list(first.file),
        "records": [_document(record, first.file) for record in chart.records],
    }
    line = chart.before + quoted(first.argument) + chart.after
    return (
        f'<div class="detail" role="region" aria-label="{escape(chart.label)}" aria-live="polite">'
        f'<p class="roles" data-slot="roles">{escape(first.roles)}</p>'
        f'<h3 data-slot="words">{escape(first.words)}</h3>'
        f'{strip(first.layers, most, slots=True)}<dl class="pairs">{facts}</dl>'
        f'<p class="caption">{escape(chart.caption)}</p>{command(line, "command")}'
        + (folded(chart.file_name, "\n".join(first.file), "config") if first.file else "")
        + f"</div>{data(document, 'records')}"
    )


def _document(record: Record, usual: Sequence[str]) -> dict[str, Any]:
    return {
        "roles": record.roles,
        "words": record.words,
        "values": list(record.values),
        "runs": to_runs(record.layers),
        "sizes": list(labels(record.layers).values()),
        "choices": record.argument,
        "config": _changed(record.file, usual) if usual else {},
    }


def quoted(text: str) -> str:
    """Return text for the inside of single quotes of a shell."""
    return text.replace("'", "'\"'\"'")


def _changed(lines: Sequence[str], usual: Sequence[str]) -> dict[int, str] | str:
    """Return the lines that differ by their number; all of them where there are more or fewer."""
    if len(lines) != len(usual):
        return "\n".join(lines)
    return {place: line for place, line in enumerate(lines) if line != usual[place]}
