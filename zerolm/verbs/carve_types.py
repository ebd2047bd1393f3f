"""Quantisation types of a child's matrices, and the losses of other plans with the same bytes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Final

from zerolm.carving.result import EqualBytes, TypeRow
from zerolm.show.charts import Heat
from zerolm.show.sheet import NOTEBOOK, PAGE, TERMINAL, Sheet
from zerolm.show.text import show_cost

OUTSIDE: Final = "ends"
LOSS: Final = "KL in nats a token, or 1 - cosine"


def types_line(types: Sequence[TypeRow]) -> str:
    """Return the number of matrices by type, the largest first; empty where none is chosen."""
    from zerolm.checkpoints.weight_types import BY_NAME

    counts = Counter(row.type for row in types)
    ordered = sorted(counts, key=lambda name: (-BY_NAME[name].bits, name))
    return "quantisation types: " + ", ".join(f"{counts[name]} {name}" for name in ordered) if counts else ""


def types_sheets(types: Sequence[TypeRow], equal_bytes: Sequence[EqualBytes]) -> Iterator[Sheet]:
    """Yield the map of types, and the table of what else the bytes buy; nothing where none is chosen."""
    if types:
        title, line = "Quantisation types, layer by layer", f"{types_line(types)}."
        yield Sheet(title, charts=[_map(types)], sentences=[line], on=(PAGE,))
    if types and equal_bytes:
        rows = [
            [row.name, show_cost("weight_bytes", row.bytes), f"{row.predicted:.3g}",
             "" if row.measured is None else f"{row.measured:.3g}"]
            for row in equal_bytes
        ]  # fmt: skip
        head = ["at these bytes", "weights", f"predicted ({LOSS})", "measured, quantised"]
        yield Sheet("What the bytes buy", head, rows, on=(PAGE, TERMINAL, NOTEBOOK))


def _map(types: Sequence[TypeRow]) -> Heat:
    """Return a map of bits a weight by role and layer, what is outside the layers last."""
    from zerolm.checkpoints.weight_types import BY_NAME, QUANTISED

    layers = sorted({row.layer for row in types if row.layer is not None})
    roles = list(dict.fromkeys(row.role for row in types if row.layer is not None))
    roles += [row.role for row in types if row.layer is None]
    by_place = {(row.layer, row.role): row.type for row in types}
    names = [[by_place.get((layer, role), "") for layer in (*layers, None)] for role in roles]
    values = [[BY_NAME[name].bits if name else 0.0 for name in row] for row in names]
    columns = [*map(str, layers), OUTSIDE]
    return Heat("Bits a weight", columns, roles, values, names, (0.0, QUANTISED[0].bits))
