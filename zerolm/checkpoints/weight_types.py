"""The quantisation types of GGUF files, with the sizes of their blocks."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Final

from zerolm.settings import check_known


@dataclass(frozen=True)
class WeightType:
    """A type: its ``name`` and ``number`` in GGUF, weights and bytes of a block.

    ``file`` is the number of files that are mostly of this type (``general.file_type``).

    ``needs_importances``: llama.cpp refuses to make it without, or makes it badly.
    """

    name: str
    number: int
    weights: int
    bytes: int
    file: int
    needs_importances: bool = False

    @property
    def bits(self) -> float:
        """The bits of a weight."""
        return 8 * self.bytes / self.weights

    def holds(self, row: int) -> bool:
        """Return whether a row of this length can be divided into blocks."""
        return row % self.weights == 0

    def size(self, count: int) -> int:
        """Return the bytes of ``count`` weights, in whole blocks."""
        return count // self.weights * self.bytes


STORED: Final = (
    WeightType("F32", 0, 1, 4, 0),
    WeightType("F16", 1, 1, 2, 1),
    WeightType("BF16", 30, 1, 2, 32),
)
QUANTISED: Final = (
    WeightType("Q8_0", 8, 32, 34, 7),
    WeightType("Q6_K", 14, 256, 210, 18),
    WeightType("Q5_1", 7, 32, 24, 9),
    WeightType("Q5_K", 13, 256, 176, 17),
    WeightType("Q5_0", 6, 32, 22, 8),
    WeightType("Q4_1", 3, 32, 20, 3),
    WeightType("Q4_K", 12, 256, 144, 15),
    WeightType("Q4_0", 2, 32, 18, 2),
    WeightType("IQ4_NL", 20, 32, 18, 25),
    WeightType("IQ4_XS", 23, 256, 136, 30),
    WeightType("Q3_K", 11, 256, 110, 12),
    WeightType("IQ3_S", 21, 256, 110, 26),
    WeightType("IQ3_XXS", 18, 256, 98, 23, needs_importances=True),
    WeightType("Q2_K", 10, 256, 84, 10),
    WeightType("IQ2_S", 22, 256, 82, 28, needs_importances=True),
)
"""From the largest to the smallest. Source: ``gguf`` (``GGML_QUANT_SIZES``), and llama.cpp's quantiser."""
BY_NAME: Final = {each.name: each for each in (*STORED, *QUANTISED)}
BY_NUMBER: Final = {each.number: each for each in (*STORED, *QUANTISED, WeightType("F64", 28, 1, 8, 0))}
BLOCKS: Final = {number: (each.weights, each.bytes) for number, each in BY_NUMBER.items()} | {
    9: (32, 40), 15: (256, 292), 16: (256, 66), 17: (256, 74), 19: (256, 50), 24: (1, 1), 25: (1, 2),
    26: (1, 4), 27: (1, 8), 29: (256, 56), 34: (256, 54), 35: (256, 66), 39: (32, 17), 40: (64, 36),
    41: (128, 18),
}  # fmt: skip
"""Weights and bytes of a block of every type by its number, also of those that are copied and never read."""
ALL: Final = "all"
IN_SMALLER_BLOCKS: Final = {
    "Q6_K": "Q8_0", "Q5_K": "Q5_1", "Q4_K": "Q5_0", "IQ4_XS": "IQ4_NL", "Q3_K": "Q4_0", "IQ3_S": "IQ4_NL",
    "IQ3_XXS": "IQ4_NL", "Q2_K": "Q4_0", "IQ2_S": "IQ4_NL",
}  # fmt: skip
"""What llama.cpp's quantiser gives rows that blocks of 256 do not divide (``tensor_type_fallback``)."""


def types_named(text: str, *, with_importances: bool) -> tuple[WeightType, ...]:
    """Return the types of a list such as ``Q4_K,Q6_K`` or ``all``, from the largest.

    ``ValueError`` for one that is not known, or needs importances where there are none.
    """
    if text == ALL:
        return tuple(kind for kind in QUANTISED if with_importances or not kind.needs_importances)
    chosen = set()
    for name in (part.strip() for part in text.split(",")):
        check_known("type", name.upper(), BY_NAME)
        kind = BY_NAME[name.upper()]
        if kind.needs_importances and not with_importances:
            raise ValueError(f"type {kind.name} needs importances: give --text FILE")
        chosen.add(kind)
    return from_largest(chosen)


def for_rows(types: Collection[WeightType], row: int) -> set[WeightType]:
    """Return the types that rows of this length may have: those whose blocks divide it.

    In the place of another stands what llama.cpp's quantiser gives such rows, if that fits.
    """
    smaller = {each: BY_NAME[IN_SMALLER_BLOCKS.get(each.name, each.name)] for each in types}
    return {each if each.holds(row) else other for each, other in smaller.items() if other.holds(row)}


def from_largest(types: Iterable[WeightType]) -> tuple[WeightType, ...]:
    """Return types from the largest to the smallest; of equals that of the larger block last."""
    return tuple(sorted(types, key=lambda each: (-each.bits, each.weights, each.name)))
