"""An architecture layer by layer: widths, heads and FFNs as three rows of columns, input to output."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from itertools import groupby
from typing import Any, Final

from zerolm.architecture import Architecture, Layer

HEADS: Final = ("heads", "n_head", "num_heads", "num_operation_heads")
"""What spaces call the number of heads."""
ROWS: Final = (("width", "Width"), ("attention", "Attention"), ("ffn", "FFN"))


@dataclass(frozen=True, slots=True)
class LayerSizes:
    """One layer: its residual ``width``, the widths of queries and keys, and of the FFN within.

    ``heads`` is 0 where their number is not known; all are 0 of a layer that is gone.
    """

    width: int
    queries: int
    keys: int
    heads: int
    ffn: int


def sizes_of(architecture: Architecture) -> list[LayerSizes]:
    """Return the sizes of each layer."""
    heads = head_counts(architecture)
    return [
        LayerSizes(layer.width, layer.query_width, layer.kv_width, count, _ffn(layer))
        for layer, count in zip(architecture.layers, heads, strict=True)
    ]


def _ffn(layer: Layer) -> int:
    inner = (m.rows if m.cols == layer.width else m.cols for m in layer.matrices if m.role == "ffn")
    return max(inner, default=0)


def head_counts(architecture: Architecture) -> list[int]:
    """Return the heads of each layer as the choices tell them; 0 where they do not."""
    choices, depth = architecture.choices, architecture.depth
    layers = choices.get("encoder_layers", choices.get("layers"))
    layers = layers if isinstance(layers, list) and len(layers) == depth else [choices] * depth
    counts = []
    for place, chosen in enumerate(layers):
        given: Any = next((chosen[name] for name in HEADS if name in chosen), 0)
        if isinstance(given, list):
            stages = choices.get("depth")
            if len(given) != depth and isinstance(stages, list) and len(stages) == len(given):
                given = [count for count, repeat in zip(given, stages, strict=True) for _ in range(repeat)]
            given = given[place] if len(given) == depth else 0
        queries = architecture.layers[place].query_width
        counts.append(given if isinstance(given, int) and given and queries % given == 0 else 0)
    return counts


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
    attention = f"{_span(heads)} heads" if all(heads) else _span([layer.queries for layer in left])
    if all(heads) and kv != heads:
        attention += f", {_span(kv)} KV"
    return {
        "width": _span([layer.width for layer in left]),
        "attention": attention,
        "ffn": _span([layer.ffn for layer in left]),
    }


def _span(values: Sequence[int]) -> str:
    low, high = min(values, default=0), max(values, default=0)
    return f"{low:,}" if low == high else f"{low:,} to {high:,}"
