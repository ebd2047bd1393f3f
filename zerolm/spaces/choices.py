"""Reading the choices of an architecture, plain JSON from whoever wrote it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeVar

import numpy as np

from zerolm.architecture import MAX_DEPTH, MAX_VOCAB, MAX_WIDTH
from zerolm.settings import REQUIRED, Setting, nearest, shown

Item = TypeVar("Item")
DEPTH: Final = Setting("depth", "integers", REQUIRED, "numbers of layers", low=1, high=MAX_DEPTH)
HIDDEN: Final = Setting("hidden", "integers", REQUIRED, "hidden sizes", low=1, high=MAX_WIDTH)
HEADS: Final = Setting("heads", "integers", REQUIRED, "numbers of heads", low=1, high=MAX_WIDTH)
FFN: Final = Setting("ffn", "integers", REQUIRED, "FFN widths", low=1, high=MAX_WIDTH)
FFN_PER_HIDDEN: Final = Setting("ffn_per_hidden", "interval", REQUIRED, "FFN width over hidden size", low=0)
MLP_RATIO: Final = Setting(
    "mlp_ratio", "numbers", REQUIRED, "FFN widths over hidden size", low=0, high=MAX_WIDTH
)
CLASSES: Final = Setting(
    "classes", "integer", 100, "classes that images are sorted into", low=1, high=MAX_VOCAB
)


def integer(name: str, value: Any, low: int = 1, high: int = MAX_WIDTH) -> int:
    """Return an integer within [low, high]; ``ValueError`` else."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer):
        raise ValueError(f"{name} must be an integer, not {shown(value)}")
    if not low <= value <= high:
        raise ValueError(f"{name} must be an integer from {low} to {high}, not {shown(int(value))}")
    return int(value)


def number(name: str, value: Any) -> float:
    """Return a positive number as it is: an integer stays one."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= MAX_WIDTH:
        raise ValueError(f"{name} must be a positive number up to {MAX_WIDTH}, not {shown(value)}")
    return value


def check_heads(name: str, widths: Sequence[int], heads: Sequence[int]) -> None:
    """Refuse numbers of heads that do not divide the width of that ``name``."""
    for width in widths:
        for count in heads:
            if width % count:
                raise ValueError(f"{name} {width} is not divisible by {count} heads")


def field(choices: Mapping[str, Any], name: str) -> Any:
    """Return a choice; ``ValueError`` where it is missing."""
    if name not in choices:
        raise ValueError(
            f"the architecture lacks {name!r}; it has {', '.join(map(shown, choices)) or 'no fields'}"
        )
    return choices[name]


def no_others(choices: Mapping[str, Any], names: Sequence[str]) -> None:
    """Refuse choices that are not ``known``."""
    unknown = [str(name) for name in choices if name not in names]
    if unknown:
        raise ValueError(
            f"the architecture has an unknown field {shown(unknown[0])}{nearest(unknown[0], names)}"
        )


def each_layer(name: str, value: Any, depth: int, check: Callable[[str, Any], Item]) -> tuple[Item, ...]:
    """Return one value for all ``depth`` layers, or a list of one a layer, as a tuple."""
    values = by_layer(value, depth)
    if len(values) != depth:
        raise ValueError(f"{name} lists {len(values)} layers, but the depth is {depth}")
    return tuple(check(name, item) for item in values)


def by_layer(value: Any, depth: int) -> list[Any]:
    """Return the list of one value a layer that is given, or one value for all ``depth`` layers as a list."""
    return list(value) if isinstance(value, list | tuple) else [value] * depth


def alike(values: Sequence[Item]) -> Item | list[Item]:
    """Return one value where all layers agree, else the list."""
    return values[0] if len(set(values)) == 1 else list(values)
