"""The places of refitted matrices, and the two ridges of each."""

from __future__ import annotations

from typing import Final, NamedTuple

Place = tuple[int, str]
"""A layer of the parent and a role of the layout: ``o``, ``o_bias``, ``down`` or ``down_bias``.

With a narrower stream also ``attention_norm``, ``ffn_norm`` and, with the number of layers, ``final_norm``.
"""


class Ridges(NamedTuple):
    """Shares of the mean diagonal: for a matrix's own output in the parent, and for earlier errors."""

    output: float
    lost: float


UNTRIED: Final = Ridges(1e-1, 1.0)
"""The ridges without held-out tokens to choose them on."""
