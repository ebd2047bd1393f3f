"""The page of labels from training: the loss of each architecture against its size, and the noise."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from zerolm.report.chart import Frame, Plot, axis, legend, linked
from zerolm.report.page import Cell, Heading, page, pairs, section, table
from zerolm.report.phrases import show_amount

NAMES: Final = {"params": "parameters", "body_params": "body parameters", "geo": "geo"}
LOSS: Final = "loss on text held out, nats a token"
Row = Mapping[str, Any]


def label_training_page(document: Mapping[str, Any], configuration: Mapping[str, Any] | None = None) -> str:
    """Return the page of what ``zerolm bench train --json`` prints, with how to repeat the run."""
    rows, benchmark = _ordered(document), document["benchmark"]
    source = benchmark["source"]
    heading = Heading(
        "zerolm bench train",
        f"{len(rows)} architectures of {benchmark['space']}, {source['tokens']:,} tokens each",
        f"Trained the same way from scratch: {benchmark['task']}, loss on text held out.",
        _best(rows),
        _counting(document),
        _trust(document),
    )
    body = [
        section("Loss against size", _scatter(rows)),
        section("All architectures", _table(rows)),
        section("How they were trained", pairs(_settings(source), "pairs wide")),
    ]
    if document["left_out"]:
        reasons = [(f"architecture {row['id']}", row["reason"]) for row in document["left_out"]]
        body.insert(2, section("Left out", pairs(reasons, "pairs wide")))
    return page(heading, body, configuration)


def label_training_fragment(document: Mapping[str, Any]) -> str:
    """Return a chart and a table of the best, without style or script."""
    rows = _ordered(document)
    frame, points = _frame(rows)
    drawn = frame.html([frame.dots(points, "blue")], f"{LOSS} against body parameters")
    return f'<div style="max-width:640px">{drawn}{_table(rows[:12])}</div>'


def _ordered(document: Mapping[str, Any]) -> list[Row]:
    """Return the rows, the lowest loss first."""
    return sorted(document["rows"], key=lambda row: (row["loss"], row["id"]))


def _best(rows: Sequence[Row]) -> str:
    best, worst = rows[0], rows[-1]
    return (
        f"The lowest loss is {best['loss']:.4f}, of {best['shape']} with {show_amount(best['params'])} "
        f"parameters; the highest {worst['loss']:.4f}, of {worst['shape']}."
    )


def _counting(document: Mapping[str, Any]) -> str:
    taus = [
        f"{NAMES.get(name, name)} {tau:.3f}" for name, tau in document["agreement"].items() if tau is not None
    ]
    if not taus:
        return "No count of parameters tells these architectures apart."
    return f"Scores that saw no label rank them with a tau-b of: {', '.join(taus)}."


def _trust(document: Mapping[str, Any]) -> str:
    noise = document["noise"]
    short = "So few tokens order architectures by how fast they learn; more tokens may turn the order."
    if noise is None:
        return f"One seed each: how far another would change the order is not known. {short}"
    between = noise["tau_between_seeds"]
    agree = "" if between is None else f" Two seeds order the repeated ones with a tau-b of {between:.2f}."
    return (
        f"{noise['runs']} runs of {noise['networks']} architectures from several seeds differ by "
        f"{noise['deviation']:.4f} (one standard deviation): a perfect score would reach a tau-b of "
        f"{noise['tau']:.2f}.{agree} {short}"
    )


def _frame(rows: Sequence[Row]) -> tuple[Frame, list[tuple[float, float]]]:
    sizes, losses = [row["body_params"] for row in rows], [row["loss"] for row in rows]
    frame = Frame(axis(sizes, "parameters without embeddings and head"), axis(losses, LOSS))
    return frame, list(zip(sizes, losses, strict=True))


def _scatter(rows: Sequence[Row]) -> str:
    frame, points = _frame(rows)
    repeated = [(row["body_params"], loss) for row in rows for loss in row["repeats"]]
    marks = [frame.dots(repeated, "grey")] if repeated else []
    drawn = f"<figure>{frame.html([*marks, frame.dots(points, 'blue')], f'{LOSS} against size')}</figure>"
    keys = [("dot", "blue", "first seed"), *([("dot", "grey", "other seeds")] if repeated else [])]
    losses = [f"{row['loss']:.4f}" for row in rows]
    sizes = [f"{row['body_params']:,}" for row in rows]
    names = [str(row["shape"]) for row in rows]
    plots = [Plot(frame, points, [("loss", losses)])]
    return legend(*keys) + linked(drawn, plots, names, "Architectures", [("body parameters", sizes)])


def _table(rows: Sequence[Row]) -> str:
    lines = (
        [
            row["shape"],
            show_amount(row["params"]),
            show_amount(row["body_params"]),
            Cell(f"{row['loss']:.4f}", note=", ".join(f"{loss:.4f}" for loss in row["repeats"])),
            f"{row['seconds']:.0f}",
        ]
        for row in rows
    )
    return table(["architecture", "parameters", "body", "loss (other seeds)", "seconds"], lines, "labels")


def _settings(source: Mapping[str, Any]) -> list[tuple[str, str]]:
    told = {name: value for name, value in source.items() if not isinstance(value, Mapping | list)}
    return [(name.replace("_", " "), str(value)) for name, value in told.items() if value is not None]
