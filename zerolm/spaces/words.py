"""How architectures are written in words: one short line, layers that differ as runs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from zerolm.architecture import Architecture
from zerolm.spaces.base import SPACES


def shape_text(architecture: Architecture) -> str:
    """Return the choices of an architecture in one short line, as its space writes them."""
    choices = architecture.choices
    if architecture.space in SPACES:
        return SPACES[architecture.space].words(choices)
    if {"depth", "hidden", "heads", "ffn"} <= choices.keys():
        return uniform_words(choices)
    return ", ".join(f"{name} {value}" for name, value in choices.items())


def uniform_words(choices: Mapping[str, Any]) -> str:
    """Return 8 x 512, heads 8, kv 2, ffn 1280 of layers that are alike, or differ in FFN or KV heads."""
    return f"{attention_words(choices)}, ffn {runs(choices['ffn'])}"


def attention_words(choices: Mapping[str, Any]) -> str:
    """Return 8 x 512, heads 8, kv 2: all that is not the FFN."""
    shared = "kv_heads" in choices and choices["kv_heads"] != choices["heads"]
    kv = f", kv {runs(choices['kv_heads'])}" if shared else ""
    size = choices.get("head_size")
    wide = f" of {size}" if size and size * choices["heads"] != choices["hidden"] else ""
    return f"{choices['depth']} x {choices['hidden']}, heads {choices['heads']}{wide}{kv}"


def runs(value: Any) -> str:
    """Return a value of all layers, or 3 x 1280 + 2 x 1344 of a list of one a layer."""
    return str(value) if not isinstance(value, list | tuple) else counted([str(item) for item in value])


def counted(items: Sequence[str]) -> str:
    """Return the items joined, equal ones once with their number."""
    counts = Counter(items)
    if len(counts) == 1 and " " not in items[0]:
        return items[0]
    return " + ".join(f"{count} x {item}" if count > 1 else item for item, count in counts.items())
