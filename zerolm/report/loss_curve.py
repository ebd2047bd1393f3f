"""A loss on the way of a training, drawn."""

from __future__ import annotations

from collections.abc import Sequence

from zerolm.report.chart import Frame, Pair, Plot, axis, linked
from zerolm.report.page import note
from zerolm.report.phrases import show_amount


def loss_curve(points: Sequence[Pair], loss: str, of: str = "tokens", narrow: bool = False) -> str:
    """Return a ``loss`` against ``tokens`` or ``steps``, linked to its numbers unless ``narrow``."""
    if len(points) < 2:
        return note("The run was too short for a curve.")
    frame = Frame(
        axis(
            [x for x, _ in points], "tokens trained on" if of == "tokens" else of, wide=float("inf"), pad=0.02
        ),
        axis([y for _, y in points], loss, wide=float("inf")),
    )
    marks = [frame.line(points, "blue"), frame.dots(points, "blue", size=9)]
    drawn = frame.html(marks, f"{loss} against {of}", narrow=narrow)
    if narrow:
        return drawn
    names = [f"{show_amount(int(x))} {of}" for x, _ in points]
    return linked(drawn, [Plot(frame, points, [("loss", [f"{y:.4f}" for _, y in points])])], names, "measure")
