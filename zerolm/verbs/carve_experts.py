"""The experts of a child: how many stay in each layer, by what, and which."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from zerolm.carving.experts.result import ChildExperts
from zerolm.carving.request import SUMMED
from zerolm.show.sheet import NOTEBOOK, PAGE, Sheet

ALWAYS: Final = ("layer", "of the tokens", "of the gates", "experts kept")
"""Columns that each report has."""


@dataclass(frozen=True)
class ShownExperts(ChildExperts):
    """The kept experts in words, and as a sheet."""

    def sentence(self) -> str:
        """Return the numbers of kept experts, and of neurons in each, in words."""
        narrow = "" if self.ffn is None else f", with {self.ffn.child} of {self.ffn.parent} neurons each"
        return f"A layer has {self.child} of {self.parent} experts{narrow}."

    def line(self) -> str:
        """Return the number of kept experts, their criterion, and their share of the text's gates."""
        gates = [row.gates for row in self.layers if row.gates is not None]
        share = f"; {sum(gates) / len(gates):.1%} of the gates of the text were theirs" if gates else ""
        groups = f", equal in {self.groups} groups" if self.groups > 1 else ""
        return (
            f"experts {self.child} of {self.parent} in {len(self.layers)} layers{groups} "
            f"({self.active} active), chosen by {self.criterion}{share}{self._proof()}{self._neurons()}"
            f"{self._repair()}{self._domains()}"
        )

    def _neurons(self) -> str:
        """Return the number of kept neurons of each expert, and the predicted loss; else empty."""
        if self.ffn is None:
            return ""
        losses = [row.lost_by_neurons for row in self.layers if row.lost_by_neurons is not None]
        pairs = [row.loss for row in self.layers if row.loss is not None and self.criterion == SUMMED]
        parts = [f"{sum(pairs):.3g} by experts"] if pairs else []
        parts += [f"{sum(losses):.3g} by neurons"] if losses else []
        lost = f", estimated loss: {', '.join(parts)}" if parts else ""
        return f"; {self.ffn.child} of {self.ffn.parent} neurons of each kept{lost}"

    def _domains(self) -> str:
        """Return the kept shares by domain; empty where the text has one."""
        names = self.layers[0].domains if self.layers else {}
        means = {name: sum(row.domains[name] for row in self.layers) / len(self.layers) for name in names}
        parts = ", ".join(f"{mean:.1%} of {name}" for name, mean in means.items())
        return f"; share of their score kept: {parts}" if parts else ""

    def _repair(self) -> str:
        """Return the share of the layers' errors after repair; empty without."""
        left = [row.left for row in self.layers if row.left is not None]
        return f"; repair leaves {min(left):.0%} to {max(left):.0%} of the layers' errors" if left else ""

    def _proof(self) -> str:
        """Return how near the choice by domains is to the best; empty where none was made."""
        gaps = [row.gap for row in self.layers if row.gap is not None]
        if not gaps:
            return ""
        proven = sum(gap == 0 for gap in gaps)
        if proven == len(gaps):
            return "; proven to be the best in each layer"
        return f"; proven to be the best in {proven} layers, elsewhere within {max(gaps):.2g} of it"

    def sheets(self) -> list[Sheet]:
        """Return the kept experts, layer by layer."""
        names = self.layers[0].domains if self.layers else {}
        columns: list[tuple[str, list[str]]] = [
            ("layer", [str(row.layer) for row in self.layers]),
            ("of the tokens", [_cell(row.tokens, ".1%") for row in self.layers]),
            ("of the gates", [_cell(row.gates, ".1%") for row in self.layers]),
            ("lost by pairs", [_cell(row.loss, ".4g") for row in self.layers]),
            ("lost by neurons", [_cell(row.lost_by_neurons, ".4g") for row in self.layers]),
            ("gap", [_cell(row.gap, ".2g") for row in self.layers]),
            ("error that repair leaves", [_cell(row.left, ".1%") for row in self.layers]),
            *(
                (f"kept of {name}", [_cell(row.domains[name], ".1%") for row in self.layers])
                for name in names
            ),
            ("experts kept", [" ".join(map(str, row.kept)) for row in self.layers]),
        ]
        shown = [(head, cells) for head, cells in columns if any(cells) or head in ALWAYS]
        rows = [list(row) for row in zip(*(cells for _, cells in shown), strict=True)]
        head = [head for head, _ in shown]
        return [Sheet("Experts, layer by layer", head, rows, on=(PAGE, NOTEBOOK))]


def _cell(value: float | None, form: str) -> str:
    return "" if value is None else format(value, form)
