"""Quantisation types of a child's matrices, and the losses of other plans with the same bytes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from zerolm.carving.result import EqualBytes, TypeRow
from zerolm.show.charts import Heat
from zerolm.show.sheet import NOTEBOOK, PAGE, TERMINAL, Sheet
from zerolm.show.text import show_cost

OUTSIDE: Final = "ends"
LOSS: Final = "KL in nats a token, or 1 - cosine"


@dataclass(frozen=True)
class ChildTypes:
    """The types of a child's matrices, and other plans with the same bytes."""

    rows: Sequence[TypeRow]
    equal_bytes: Sequence[EqualBytes]

    def line(self) -> str:
        """Return the number of matrices by type, the largest first; empty where none is chosen."""
        from zerolm.checkpoints.weight_types import BY_NAME

        counts = Counter(row.type for row in self.rows)
        ordered = sorted(counts, key=lambda name: (-BY_NAME[name].bits, name))
        return (
            "quantisation types: " + ", ".join(f"{counts[name]} {name}" for name in ordered) if counts else ""
        )

    def sheets(self) -> list[Sheet]:
        """Return the map of types, and the table of what else the bytes buy."""
        if not self.rows:
            return []
        sheets = [
            Sheet(
                "Quantisation types, layer by layer",
                charts=[self._map()],
                sentences=[f"{self.line()}."],
                on=(PAGE,),
            )
        ]
        if self.equal_bytes:
            rows = [
                [row.name, show_cost("weight_bytes", row.bytes), f"{row.predicted:.3g}",
                 "" if row.measured is None else f"{row.measured:.3g}"]
                for row in self.equal_bytes
            ]  # fmt: skip
            head = ["at these bytes", "weights", f"predicted ({LOSS})", "measured, quantised"]
            sheets.append(Sheet("What the bytes buy", head, rows, on=(PAGE, TERMINAL, NOTEBOOK)))
        return sheets

    def _map(self) -> Heat:
        """Return a map of bits a weight by role and layer, what is outside the layers last."""
        from zerolm.checkpoints.weight_types import BY_NAME, QUANTISED

        layers = sorted({row.layer for row in self.rows if row.layer is not None})
        roles = list(dict.fromkeys(row.role for row in self.rows if row.layer is not None))
        roles += [row.role for row in self.rows if row.layer is None]
        types = {(row.layer, row.role): row.type for row in self.rows}
        names = [[types.get((layer, role), "") for layer in (*layers, None)] for role in roles]
        values = [[BY_NAME[name].bits if name else 0.0 for name in row] for row in names]
        columns = [*map(str, layers), OUTSIDE]
        return Heat("Bits a weight", columns, roles, values, names, (0.0, QUANTISED[0].bits))
