"""The proof of a written child, in numbers: how far its outputs differ from those of the carved parent."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

SHOWN: Final = 1e-3
"""Differences from this share of the largest output on are shown with their share: roundings of few bits."""


@dataclass(frozen=True)
class Verification:
    """How far the outputs of the written child lie from those of the network that it was written from.

    Compared ``by`` their ``outputs``, or block by block (``blocks``); or all ``bytes`` are the same.
    ``embeddings`` is the same for the output of sentence-transformers, or of ``llama.cpp`` if by that, None
    where it was not tried. ``parent`` is how far the outputs of the parent lie from what stock software makes
    of its files, None where that was not tried.
    """

    difference: float
    relative: float
    by: str = "outputs"
    embeddings: float | None = None
    parent: float | None = None

    def text(self, source: str) -> str:
        """Return it in words; ``source`` is the network that the child was written from."""
        share = f" ({self.relative:.1%} of the largest)" if self.relative >= SHOWN else ""
        parts = [f"outputs within {self.difference:.2g} of the {source}'s{share}"]
        if self.by == "bytes":
            parts = [f"all bytes as the {source} has them"]
        if self.embeddings is not None:
            reader = self.by if self.by == "llama.cpp" else "sentence-transformers"
            parts.append(f"embeddings by {reader} within {self.embeddings:.2g}")
        if self.parent is not None:
            parts.append(f"the parent within {self.parent:.2g} of stock software's")
        return ", ".join(parts)
