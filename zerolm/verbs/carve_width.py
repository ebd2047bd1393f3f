"""The width of the residual stream: what a child keeps of it, and what other widths would keep."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Final

from zerolm.carving.result import ChildStream, SpectrumRow
from zerolm.show.charts import Axis, Dots, Limit, Line, Linked, Mark, Plot, Sign, axis
from zerolm.show.sheet import PAGE, TERMINAL, Cell, Row, Sheet

FEW: Final = (0.875, 0.75, 0.625, 0.5)
"""Shares of the parent's width that the table has."""
ROUNDING: Final = 1e-9
"""Shares of the energy below this are rounding errors."""
HEIGHT: Final = 240
LOST: Final = "share of the energy lost"
ENERGY: Final = {
    "loss": "Energy is that of the normalised stream on the calibration tokens.",
    "weights": "Energy is that of the embeddings and of what the layers write: no tokens were looked at.",
}
ALONE: Final = (
    "Losses are those of the narrower stream alone: all else is whole, and the head is tied as the parent's, "
    "or not."
)
AFTER: Final = {False: "Nothing is repaired.", True: "They are predicted after repair."}


@dataclass(frozen=True)
class StreamWidths:
    """The width of a child's stream compared with the parent's, ``whole``, and a ``spectrum`` of other
    widths.

    ``stream`` is None where it stays whole, the spectrum empty where it was not looked at. Its losses are in
    ``unit``; ``is_repaired`` is True where they are those after repair.
    """

    whole: int
    stream: ChildStream | None
    spectrum: Sequence[SpectrumRow]
    unit: str
    is_repaired: bool = False

    def line(self) -> str:
        """Return the width in a line; empty where the stream was not looked at."""
        stream = self.stream
        if stream is None:
            return f"hidden size {self.whole}, as the parent" if self.spectrum else ""
        basis = {"loss": "loss-weighted basis"}.get(stream.basis, f"basis from {stream.basis}")
        return (
            f"hidden size {self.whole} -> {stream.hidden} ({stream.kept_energy:.1%} of energy, {basis}), "
            f"{'tied' if stream.tied else 'untied'} head"
        )

    def narrower(self) -> list[SpectrumRow]:
        """Return the spectrum and the chosen width, ascending, without the parent's."""
        if not self.spectrum:
            return []
        rows = {row.hidden: row for row in self.spectrum}
        if self.stream:
            chosen = self.stream.hidden
            rows.setdefault(chosen, SpectrumRow(chosen, self.stream.kept_energy, None))
        return [rows[hidden] for hidden in sorted(rows) if hidden < self.whole]

    def is_chosen(self, row: SpectrumRow) -> bool:
        """Return whether the child has this width."""
        return self.stream is not None and row.hidden == self.stream.hidden

    def few(self) -> list[SpectrumRow]:
        """Return a few widths, the widest first, and the chosen one."""
        rows = self.narrower()
        if not rows:
            return []
        near = {min(rows, key=lambda row: abs(row.hidden - share * self.whole)).hidden for share in FEW}
        return [row for row in reversed(rows) if row.hidden in near or self.is_chosen(row)]

    def sheets(self, on: Collection[str] = (PAGE, TERMINAL)) -> list[Sheet]:
        """Return the loss of each width, as charts and a short table; empty where it is not known."""
        rows = self.narrower()
        if not rows:
            return []
        lost = [(row, 1 - row.kept_energy) for row in rows if 1 - row.kept_energy > ROUNDING]
        losses = [(row, row.loss) for row in rows if row.loss is not None]
        drawn = [(row, loss) for row, loss in losses if 0 < loss < math.inf]
        head: Row = ["hidden size", "energy kept", *(["loss"] if losses else [])]
        table: list[Row] = [
            [Cell(first, note="chosen" * self.is_chosen(row)), *others[: len(head) - 1]]
            for row in self.few()
            for first, *others in [texts(row)]
        ]
        basis = self.stream.basis if self.stream else "weights"
        sentences = [ENERGY["loss"], ALONE, AFTER[self.is_repaired]] if losses else [ENERGY[basis]]
        charts = [
            self._chart(*one) for one in ((lost, LOST), (drawn, f"loss, {self.unit}")) if len(one[0]) > 1
        ]
        title = "What each width of the stream loses"
        return [Sheet(title, head, table, sentences, charts=charts, kind="widths", on=on, layout="pair")]

    def _chart(self, rows: Sequence[tuple[SpectrumRow, float]], name: str) -> Linked:
        points = [(float(row.hidden), y) for row, y in rows]
        colour = "blue" if name == LOST else "green"
        marks: list[Mark] = [Line(points, colour), *([Dots(points, colour, 9)] if name != LOST else [])]
        if self.stream:
            hidden = self.stream.hidden
            marks.append(Limit(hidden, f"{hidden:,} chosen"))
            marks += [Sign("star", point, "orange") for point in points if point[0] == hidden]
        columns = [("energy kept", [texts(row)[1] for row, _ in rows])]
        if name != LOST:
            columns.append(("loss", [texts(row)[2] for row, _ in rows]))
        plot = Plot(
            f"{name}, by the hidden size of {self.whole}",
            Axis(0.0, float(self.whole), "hidden size"),
            axis([y for _, y in points], name),
            marks,
            height=HEIGHT,
            points=points,
            columns=columns,
        )
        return Linked([plot], [f"hidden {row.hidden:,}" for row, _ in rows], "width")


def texts(row: SpectrumRow) -> list[str]:
    """Return hidden size, energy kept and loss, which is empty where it was not estimated."""
    loss = "" if row.loss is None else f"{row.loss:.3g}"
    return [f"{row.hidden:,}", f"{row.kept_energy:.1%}", loss]
