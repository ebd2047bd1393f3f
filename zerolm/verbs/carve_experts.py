"""The experts of a child: how many stay in each layer, by what, and which."""

from __future__ import annotations

from dataclasses import dataclass, field

from zerolm.show.sheet import NOTEBOOK, PAGE, Sheet


@dataclass(frozen=True)
class ExpertRow:
    """A layer: the experts that stay, and the share of tokens and of gates that were sent to them.

    ``tokens`` and ``gates`` are None where no tokens were read. By pairs, ``loss`` is that of those that
    leave, and another choice would lose less by a share of ``gap`` at most; else both are None.
    ``left`` is the share of the layer's squared error on held-out sequences that repair leaves, None without.
    """

    layer: int
    kept: list[int]
    tokens: float | None = None
    gates: float | None = None
    loss: float | None = None
    gap: float | None = None
    left: float | None = None


@dataclass(frozen=True)
class ChildExperts:
    """The experts of a layer of the ``parent`` and of the ``child``; a token meets ``active`` of them."""

    parent: int
    child: int
    active: int
    groups: int = 1
    layers: list[ExpertRow] = field(default_factory=list)

    def line(self, criterion: str) -> str:
        """Return how many experts stay, by what, and how much of the text's gates they had."""
        gates = [row.gates for row in self.layers if row.gates is not None]
        share = f"; {sum(gates) / len(gates):.1%} of the gates of the text were theirs" if gates else ""
        groups = f", equal in {self.groups} groups" if self.groups > 1 else ""
        return (
            f"experts {self.child} of {self.parent} in {len(self.layers)} layers{groups} "
            f"({self.active} active), chosen by {criterion}{share}{self._proof()}{self._repair()}"
        )

    def _repair(self) -> str:
        """Return what repair leaves of the layers' errors; empty without."""
        left = [row.left for row in self.layers if row.left is not None]
        return f"; repair leaves {min(left):.0%} to {max(left):.0%} of the layers' errors" if left else ""

    def _proof(self) -> str:
        """Return how near the choice by pairs is to the best; empty where none was made."""
        gaps = [row.gap for row in self.layers if row.gap is not None]
        if not gaps:
            return ""
        proven = sum(gap == 0 for gap in gaps)
        if proven == len(gaps):
            return "; proven to be the best in each layer"
        return f"; proven to be the best in {proven} layers, elsewhere within {max(gaps):.2g} of it"

    def sheets(self) -> list[Sheet]:
        """Return the experts that stay, layer by layer."""
        is_repaired = any(row.left is not None for row in self.layers)
        by_pairs = any(row.gap is not None for row in self.layers)
        rows = [
            [str(row.layer), *("" if x is None else f"{x:.1%}" for x in (row.tokens, row.gates)),
             *([f"{row.loss:.4g}", f"{row.gap:.2g}"] if by_pairs else []),
             *([f"{row.left:.1%}"] if is_repaired else []), " ".join(map(str, row.kept))]
            for row in self.layers
        ]  # fmt: skip
        pairs = ["lost by pairs", "gap"] if by_pairs else []
        pairs += ["error that repair leaves"] if is_repaired else []
        head = ["layer", "of the tokens", "of the gates", *pairs, "experts that stay"]
        return [Sheet("Experts, layer by layer", head, rows, on=(PAGE, NOTEBOOK))]
