"""The width of the residual stream: what a child keeps of it, and what other widths would keep."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from zerolm.report.chart import Axis, Frame, Pair, Plot, axis, linked
from zerolm.report.page import Cell, note, table

SHARES: Final = (0.875, 0.75, 0.625, 0.5)
"""Of the parent's width, in the short table."""
LEAST: Final = 1e-9
"""Shares of the energy below this are what is left of rounding."""
HEIGHT: Final = 240
LOST: Final = "share of the energy lost"
LOSS: Final = "loss, KL in nats a token"
ENERGY: Final = {
    "loss": "Energy is that of the normalised stream on the calibration tokens.",
    "weights": "Energy is that of the embeddings and of what the layers write: no tokens were looked at.",
}
ALONE: Final = (
    "Losses are those of the narrower stream alone on these tokens, all else whole, the head tied or not as "
    "the parent's, and nothing repaired."
)


@dataclass(frozen=True, slots=True)
class WidthRow:
    """A width of the stream: the share of its energy that it keeps, and its loss alone where measured."""

    hidden: int
    kept_energy: float
    loss: float | None
    is_chosen: bool = False

    @property
    def texts(self) -> list[str]:
        """Return hidden size, energy kept and loss, which is empty where it was not measured."""
        loss = "" if self.loss is None else f"{self.loss:.3g}"
        return [f"{self.hidden:,}", f"{self.kept_energy:.1%}", loss]


def width_rows(document: Mapping[str, Any]) -> list[WidthRow]:
    """Return a few widths of what ``zerolm carve --json`` prints, the widest first, and the chosen one.

    They are measured ones where there are any; none where the stream was not looked at.
    """
    rows = _narrower(document)
    known = [row for row in rows if row.loss is not None] or rows
    if not known:
        return []
    whole = document["parent_sizes"]["hidden"]
    wanted = {min(known, key=lambda row: abs(row.hidden - share * whole)).hidden for share in SHARES}
    return [row for row in reversed(rows) if row.hidden in wanted or row.is_chosen]


def _narrower(document: Mapping[str, Any]) -> list[WidthRow]:
    """Return the spectrum and the chosen width, ascending, without the parent's."""
    spectrum, stream = document.get("spectrum") or [], document.get("stream")
    if not spectrum:
        return []
    chosen = int(stream["hidden"]) if stream else 0
    rows = {one["hidden"]: WidthRow(**one, is_chosen=one["hidden"] == chosen) for one in spectrum}
    if stream and chosen not in rows:
        rows[chosen] = WidthRow(chosen, stream["kept_energy"], None, True)
    return [rows[hidden] for hidden in sorted(rows) if hidden < document["parent_sizes"]["hidden"]]


def width_line(document: Mapping[str, Any]) -> str:
    """Return the width of a child's stream in a line; empty where the stream was not looked at."""
    stream = document.get("stream")
    if stream is None:
        looked = document.get("spectrum")
        return f"hidden {document['parent_sizes']['hidden']}, the parent's" if looked else ""
    whole = document["parent_sizes"]["hidden"]
    return (
        f"hidden {stream['hidden']} of {whole}: {stream['kept_energy']:.1%} of the energy, in a basis by the "
        f"{stream['basis']}; {_head(stream)}"
    )


def _head(stream: Mapping[str, Any]) -> str:
    return "the head is the embedding" if stream["tied"] else "the head is a matrix of its own"


def widths_line(document: Mapping[str, Any]) -> str:
    """Return what a few widths would keep, in a line; empty where the stream was not looked at."""
    texts = ("{} {} {}".format(*row.texts).strip() for row in width_rows(document))
    return "; ".join(texts)


def width_sentence(document: Mapping[str, Any]) -> str:
    """Return the width of a child's stream as a sentence; empty where the stream was not looked at."""
    stream = document.get("stream")
    if stream is None:
        looked = document.get("spectrum")
        return f"The hidden size stays {document['parent_sizes']['hidden']:,}." if looked else ""
    whole = document["parent_sizes"]["hidden"]
    return (
        f"The hidden size is {stream['hidden']:,} of {whole:,}: directions chosen by the {stream['basis']} "
        f"that keep {stream['kept_energy']:.1%} of the stream's energy; {_head(stream)}."
    )


def width_chart(document: Mapping[str, Any]) -> str:
    """Return what each width loses, as charts and a short table; empty where nothing is known of it."""
    rows = _narrower(document)
    if not rows:
        return ""
    lost = [(row, 1 - row.kept_energy) for row in rows if 1 - row.kept_energy > LEAST]
    known = [(row, row.loss) for row in rows if row.loss is not None]
    measured = [(row, loss) for row, loss in known if 0 < loss < math.inf]
    drawn = "".join(_drawn(document, *one) for one in ((lost, LOST), (measured, LOSS)) if len(one[0]) > 1)
    head = ["hidden size", "energy kept", *(["loss"] if known else [])]
    shown = [(row.texts[: len(head)], row.is_chosen) for row in width_rows(document)]
    lines: list[list[Cell | str]] = [
        [Cell(first, note="chosen" * chosen), *others] for (first, *others), chosen in shown
    ]
    said = f"{ENERGY['loss']} {ALONE}" if known else ENERGY[document["stream"]["basis"]]
    return f'<div class="pair">{drawn}</div>{table(head, lines, "widths")}{note(said)}'


def _drawn(document: Mapping[str, Any], rows: Sequence[tuple[WidthRow, float]], name: str) -> str:
    whole, points = document["parent_sizes"]["hidden"], [(float(row.hidden), y) for row, y in rows]
    frame = Frame(Axis(0.0, float(whole), "hidden size"), axis([y for _, y in points], name), HEIGHT)
    marks = "".join(_marks(frame, document, points, name))
    label = f"{name}, by the hidden size of {whole}"
    kept = [row.texts[1] for row, _ in rows]
    columns = [("energy kept", kept)]
    if name == LOSS:
        columns.append(("loss", [row.texts[2] for row, _ in rows]))
    plot = Plot(frame, points, columns)
    return linked(frame.html([marks], label), [plot], [f"hidden {row.hidden:,}" for row, _ in rows], "width")


def _marks(frame: Frame, document: Mapping[str, Any], points: Sequence[Pair], name: str) -> Iterator[str]:
    colour = "blue" if name == LOST else "green"
    yield frame.line(points, colour)
    if name == LOSS:
        yield frame.dots(points, colour, size=9)
    stream = document.get("stream")
    if stream:
        yield frame.limit(stream["hidden"], f"{stream['hidden']:,} chosen")
        yield from (frame.mark("star", point, "orange") for point in points if point[0] == stream["hidden"])
