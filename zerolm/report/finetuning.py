"""The page of a fine-tuning: its measures before and after, beside the baseline and the teacher."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from zerolm.report.loss_curve import loss_curve
from zerolm.report.page import Heading, page, pairs, section, table

ORDER: Final = ("baseline", "before", "after", "teacher")
Document = Mapping[str, Any]


def finetuning_page(document: Document, configuration: Mapping[str, Any] | None = None) -> str:
    """Return the page of what ``zerolm elastic finetune --json`` prints, with how to repeat the run."""
    rows, training = document["rows"], document["training"]
    name = str(document["model"]).rstrip("/").rsplit("/", 1)[-1]
    heading = Heading(
        "zerolm elastic finetune",
        f"{name} for {document['task']}",
        f"{rows['train']:,} rows, {training['epochs']} epochs"
        + (f", {training['distillation']} distillation from a teacher." if document["teacher"] else "."),
        measures_sentence(document, "after"),
        measures_sentence(document, "baseline"),
        f"Measured on {rows['validation']:,} rows that were not trained on; one run, no interval.",
    )
    body = [
        section("Measures", _table(document)),
        section("The loss on the way", _curve(document)),
        section("How it was trained", pairs(_making(document), "pairs wide")),
    ]
    return page(heading, body, configuration)


def finetuning_fragment(document: Document) -> str:
    """Return the measures, without style or script."""
    return f'<div style="max-width:640px">{_table(document)}</div>'


def measures_sentence(document: Document, when: str) -> str:
    """Return the measures of a network, or of the baseline, in a line."""
    told = ", ".join(f"{name} {value:.4g}" for name, value in document["measures"][when].items())
    who = "The commonest class, or the whole text, reaches" if when == "baseline" else "After training:"
    return f"{who} {told}."


def measure_rows(document: Document) -> tuple[list[str], list[list[str]]]:
    """Return the names of the measures, and a row of them of each network."""
    measures = document["measures"]
    names = list(measures["after"])
    shown = [when for when in ORDER if when in measures]
    return names, [
        [when, *(f"{measures[when][name]:.4g}" if name in measures[when] else "" for name in names)]
        for when in shown
    ]


def _table(document: Document) -> str:
    names, rows = measure_rows(document)
    return table(["network", *names], rows, "measures")


def _curve(document: Document) -> str:
    points = [(row["step"], row["loss"]) for row in document["curve"] if "loss" in row]
    return loss_curve(points, "loss on rows held out", "steps")


def _making(document: Document) -> list[tuple[str, str]]:
    told = {name: value for name, value in document["training"].items() if not isinstance(value, Mapping)}
    return [(name.replace("_", " "), str(value)) for name, value in told.items() if value is not None]
