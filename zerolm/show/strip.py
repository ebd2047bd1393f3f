"""A network layer by layer: widths, heads and FFNs as three rows of columns, input to output."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from itertools import groupby
from typing import Any, Final

from zerolm.show.charts import LayerSizes, Record, Records, Strips
from zerolm.show.markup import command, data, folded
from zerolm.show.text import span

ROWS: Final = (("width", "Width"), ("attention", "Attention"), ("ffn", "FFN"))
NOTE: Final = "Input to the left. A gap is a pruned layer."


def strips_html(chart: Strips) -> str:
    """Return the networks one below the other, drawn to one scale."""
    most = largest([layers for _, layers in chart.networks])
    drawn = "".join(f"<h3>{escape(name)}</h3>{strip(layers, most)}" for name, layers in chart.networks)
    return f'<div class="stack">{drawn}</div><p class="note">{NOTE}</p>'


def to_runs(layers: Sequence[LayerSizes]) -> list[list[int]]:
    """Return equal neighbours once with their number: [count, width, queries, keys, heads, ffn]."""
    return [
        [len(list(group)), sizes.width, sizes.queries, sizes.keys, sizes.heads, sizes.ffn]
        for sizes, group in groupby(layers)
    ]


def largest(strips: Sequence[Sequence[LayerSizes]]) -> list[int]:
    """Return the largest width, attention and FFN of all, which are drawn in full height."""
    layers = [layer for strip in strips for layer in strip]
    return [max((getattr(layer, name) for layer in layers), default=1) or 1 for name in
            ("width", "queries", "ffn")]  # fmt: skip


def strip(layers: Sequence[LayerSizes], most: Sequence[int], *, slots: bool = False) -> str:
    """Return the drawing; with ``slots`` the script of the page can put another one in its place.

    The darker part of attention is that of keys and values, where heads share them.
    """
    drawn = {
        "width": [[layer.width for layer in layers]],
        "attention": [[layer.queries for layer in layers], [layer.keys for layer in layers]],
        "ffn": [[layer.ffn for layer in layers]],
    }
    texts = labels(layers)
    parts = []
    for (name, title), top in zip(ROWS, most, strict=True):
        paths = "".join(
            f'<path d="{columns(values, top)}"{_slot(f"{name}{i}", slots)} class="f {name}{i}"/>'
            for i, values in enumerate(drawn[name])
        )
        parts.append(
            f'<span class="name">{title}</span><svg viewBox="0 0 {len(layers)} 100" '
            f'preserveAspectRatio="none" aria-hidden="true"{_slot(f"{name}-box", slots)}>{paths}</svg>'
            f'<span class="value"{_slot(name, slots)}>{escape(texts[name])}</span>'
        )
    most_text = " ".join(map(str, most))
    return f'<div class="strip" data-most="{most_text}">{"".join(parts)}</div>'


def _slot(name: str, slots: bool) -> str:
    return f' data-slot="{name}"' if slots else ""


def columns(values: Sequence[int], most: int) -> str:
    """Return a path with a column for each layer, 1 wide and 100 high at most."""
    shares = [(200 * value + most) // (2 * most) for value in values]
    return "".join(f"M{i}.08 100v-{share}h.84v{share}z" for i, share in enumerate(shares) if share)


def labels(layers: Sequence[LayerSizes]) -> dict[str, str]:
    """Return the sizes of the rows in words."""
    left = [layer for layer in layers if layer.width]
    heads = [layer.heads for layer in left]
    kv = [layer.heads * layer.keys // layer.queries if layer.queries else 0 for layer in left]
    attention = f"{span(heads)} heads" if all(heads) else span([layer.queries for layer in left])
    if all(heads) and kv != heads:
        attention += f", {span(kv)} KV"
    return {
        "width": span([layer.width for layer in left]),
        "attention": attention,
        "ffn": span([layer.ffn for layer in left]),
    }


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
