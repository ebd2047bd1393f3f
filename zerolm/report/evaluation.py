"""The page of an evaluation: what a child has lost, beside random and uniform carvings of its size."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from zerolm.report.bars import BarRow, bars
from zerolm.report.chart import LINEAR, Axis, axis
from zerolm.report.page import Cell, Heading, note, page, section, table
from zerolm.report.phrases import show_amount

MEASURES: Final = {
    "perplexity": ("Perplexity", "perplexity (lower is better)", ".2f"),
    "kl": ("Divergence from the parent", "KL in nats a token (lower is better)", ".4f"),
    "cosine": ("Likeness of embeddings", "cosine to the parent's (higher is better)", ".4f"),
}
COLOURS: Final = {"child": "blue", "parent": "green"}
Row = Mapping[str, Any]


def evaluation_page(document: Mapping[str, Any], configuration: Mapping[str, Any] | None = None) -> str:
    """Return the page of what ``zerolm eval --json`` prints; ``configuration`` is that of ``run.yaml``."""
    rows, tasks = document.get("rows", []), document.get("tasks", [])
    measures = [name for name in MEASURES if rows and name in rows[0]]
    heading = Heading(
        "zerolm eval",
        _title(rows, measures, tasks),
        f"{document['sequences']} sequences, {document['tokens']:,} tokens."
        if rows
        else "Tasks of the harness.",
        _found(rows, measures, tasks),
        _baseline(rows, measures),
        _trust(document),
    )
    body = [section(MEASURES[name][0], _bars(rows, name)) for name in measures]
    if rows:
        body.append(section("All numbers", _table(rows, measures), note(document.get("note", ""))))
    if tasks:
        body.append(section("Tasks of lm-evaluation-harness", _tasks(tasks)))
    return page(heading, body, configuration)


def evaluation_fragment(document: Mapping[str, Any]) -> str:
    """Return the numbers and a chart of the first measure, without style or script."""
    rows, tasks = document.get("rows", []), document.get("tasks", [])
    measures = [name for name in MEASURES if rows and name in rows[0]]
    parts = (
        [_table(rows, measures), *(_bars(rows, name, narrow=True) for name in measures[:1])] if rows else []
    )
    parts += [_tasks(tasks)] if tasks else []
    return f'<div style="max-width:640px">{"".join(parts)}</div>'


def _named(rows: Sequence[Row], name: str) -> Row | None:
    return next((row for row in rows if row["name"] == name), None)


def _shown(name: str, value: float) -> str:
    return f"{value:,{MEASURES[name][2]}}"


def _title(rows: Sequence[Row], measures: Sequence[str], tasks: Sequence[Row]) -> str:
    child, parent = _named(rows, "child"), _named(rows, "parent")
    if child and parent and measures:
        name = measures[0]
        return (
            f"{name.capitalize()} {_shown(name, child[name])}; the parent's is {_shown(name, parent[name])}"
        )
    return f"{len({row['task'] for row in tasks})} tasks, child against parent"


def _found(rows: Sequence[Row], measures: Sequence[str], tasks: Sequence[Row]) -> str:
    child, parent = _named(rows, "child"), _named(rows, "parent")
    said = []
    if child and parent:
        share = child["params"] / parent["params"] if parent["params"] else 1.0
        values = " and ".join(f"{MEASURES[n][1].split(' (')[0]} {_shown(n, child[n])}" for n in measures)
        said.append(f"With {share:.1%} of the parent's parameters the child reaches {values}.")
    if tasks:
        lower = sum(row["child"] < row["parent"] for row in tasks)
        said.append(f"Of {len(tasks)} task metrics the child's is below the parent's in {lower}.")
    return " ".join(said)


def _baseline(rows: Sequence[Row], measures: Sequence[str]) -> str:
    child = _named(rows, "child")
    others = [row for row in rows if row["name"] in ("random", "uniform")]
    if not child or not others or not measures:
        return f"No other carving of the child's size was compared.{_neighbours(rows, measures)}"
    name = measures[0]
    higher = "higher is better" in MEASURES[name][1]
    said = []
    for row in others:
        gap = (child[name] - row[name]) * (1 if higher else -1)
        word = "better than" if gap > 0 else "no better than"
        said.append(f"{word} a {row['name']} carving of its size ({_shown(name, row[name])})")
    return f"By {name} the child is {' and '.join(said)}.{_neighbours(rows, measures)}"


def _neighbours(rows: Sequence[Row], measures: Sequence[str]) -> str:
    """Return what other children of the parent reach, as a sentence; empty where there are none."""
    known = ("child", "parent", "random", "uniform")
    others = [row for row in rows if row["name"] not in known]
    if not others or not measures:
        return ""
    told = ", ".join(f"{row['name']} {_shown(measures[0], row[measures[0]])}" for row in others)
    return f" Other children of the parent: {told}."


def _trust(document: Mapping[str, Any]) -> str:
    said = []
    if "tokens" in document:
        said.append(f"One text of {document['tokens']:,} tokens, no interval: another may say otherwise.")
        said.append("If the child was fitted to this text, the numbers flatter it.")
    if any(row.get("spread") for row in document.get("rows", [])):
        said.append("Random carvings show the range of their draws.")
    if document.get("tasks"):
        said.append("Tasks have standard errors where the harness gives them.")
    return " ".join(said)


def _bars(rows: Sequence[Row], name: str, narrow: bool = False) -> str:
    lines = []
    for row in rows:
        low, high = row.get("spread", {}).get(name, (None, None))
        colour = COLOURS.get(row["name"], "grey")
        lines.append(BarRow(row["name"], row[name], _shown(name, row[name]), colour, low, high))
    values = [value for bar in lines for value in (bar.value, bar.low, bar.high) if value is not None]
    made = axis([0.0, *values], MEASURES[name][1], wide=LINEAR)
    x = Axis(min(0.0, *values), made.high, made.name)
    return bars(lines, x, f"{MEASURES[name][0]} of child, parent and others", narrow=narrow)


def _table(rows: Sequence[Row], measures: Sequence[str]) -> str:
    def spread(row: Row, name: str) -> str:
        ends = row.get("spread", {}).get(name)
        return f"{_shown(name, ends[0])} to {_shown(name, ends[1])}" if ends else ""

    lines = (
        [
            row["name"],
            show_amount(row["params"]),
            *(Cell(_shown(n, row[n]), note=spread(row, n)) for n in measures),
        ]
        for row in rows
    )
    return table(["network", "parameters", *measures], lines, "evaluation")


def _tasks(tasks: Sequence[Row]) -> str:
    def measured(row: Row, who: str) -> Cell:
        error = row[f"{who}_stderr"]
        return Cell(f"{row[who]:.4f}", note="" if error is None else f"± {error:.4f}")

    lines = (
        [
            row["task"],
            row["metric"],
            str(row["samples"] or ""),
            measured(row, "child"),
            measured(row, "parent"),
        ]
        for row in tasks
    )
    return table(["task", "metric", "samples", "child", "parent"], lines, "tasks")
