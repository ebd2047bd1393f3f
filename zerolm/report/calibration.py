"""The page of a calibration: how it ranks hidden labels beside geo and counting, and how sure it is."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from html import escape
from typing import Any, Final

from zerolm.report.bars import BarRow, bars
from zerolm.report.chart import LINEAR, Axis, axis
from zerolm.report.page import Cell, Heading, page, pairs, paragraphs, section, table

TAU: Final = "tau-b on hidden labels"
NAMES: Final = {"geo": "geo", "body_params": "counting body parameters"}


def calibration_page(document: Mapping[str, Any], configuration: Mapping[str, Any] | None = None) -> str:
    """Return the page of what ``zerolm calibrate --json`` prints; ``configuration`` is of ``run.yaml``."""
    judged = document["judged"] or {}
    count = len(document["labels"])
    better = "higher" if document["higher_is_better"] else "lower"
    heading = Heading(
        "zerolm calibrate",
        f"{count} labels of {document['space']} {_verdict(judged)}",
        f"{document['metric']} ({better} is better), method {document['method']}"
        + (f", chosen by {document['requested']}" if document["requested"] != document["method"] else ""),
        _found(judged),
        _baseline(judged),
        _trust(document, judged),
    )
    body = [section("How it ranks labels that it did not see", _taus(judged) or "<p>Too few labels.</p>")]
    if judged.get("coverage") is not None:
        body.append(section("Its 90 % intervals", _coverage(judged), pairs(_widths(document, judged))))
    body.append(section("What it consists of", _parts(document)))
    return page(heading, body, configuration)


def calibration_fragment(document: Mapping[str, Any]) -> str:
    """Return how it ranks hidden labels, without style or script."""
    judged = document["judged"] or {}
    said = f"{len(document['labels'])} labels of {document['space']}: {_found(judged)} {_baseline(judged)}"
    return f'<div style="max-width:640px"><p>{escape(said)}</p>{_taus(judged, narrow=True)}</div>'


def _verdict(judged: Mapping[str, Any]) -> str:
    if judged.get("tau") is None:
        return "are too few to judge a calibration"
    unbeaten = [NAMES.get(name, name) for name in _unbeaten(judged)]
    return f"do not beat {' and '.join(unbeaten)}" if unbeaten else "beat geo and counting parameters"


def _unbeaten(judged: Mapping[str, Any]) -> list[str]:
    tau, rivals = judged.get("tau"), judged.get("baselines", {})
    return [name for name, other in rivals.items() if tau is not None and other is not None and other >= tau]


def _found(judged: Mapping[str, Any]) -> str:
    if judged.get("tau") is None:
        return "There are too few labels, or they are too alike, to judge it on hidden ones."
    deviation = judged["deviation"]
    spread = f", with a deviation of {deviation:.3f} a fold" if deviation is not None else ""
    return f"It ranks hidden labels with a tau-b of {judged['tau']:.3f}{spread}."


def _baseline(judged: Mapping[str, Any]) -> str:
    known = {name: tau for name, tau in judged.get("baselines", {}).items() if tau is not None}
    if not known:
        return "No baseline is defined on these labels."
    values = ", ".join(f"{NAMES.get(name, name)} {tau:.3f}" for name, tau in known.items())
    unbeaten = [NAMES.get(name, name) for name in _unbeaten(judged)]
    end = f" It does not beat {' and '.join(unbeaten)}." if unbeaten else ""
    return f"On the same hidden labels: {values}.{end}"


def _trust(document: Mapping[str, Any], judged: Mapping[str, Any]) -> str:
    said = []
    if judged.get("folds"):
        said.append(f"Means over {judged['folds']} folds; the choice of the method is made anew in each.")
    said.append("Labels are hidden at random: of larger networks than these it knows less.")
    return " ".join([*said, *(f"Warning: {text}." for text in document["warnings"])])


def _taus(judged: Mapping[str, Any], narrow: bool = False) -> str:
    tau, deviation = judged.get("tau"), judged.get("deviation")
    if tau is None:
        return ""
    ends = (None, None) if deviation is None else (tau - deviation, tau + deviation)
    rows = [BarRow("this calibration", tau, f"{tau:.3f}", "blue", *ends)]
    rows += [
        BarRow(NAMES.get(name, name), other, "-" if other is None else f"{other:.3f}", "grey")
        for name, other in judged["baselines"].items()
    ]
    values = [value for bar in rows for value in (bar.value, bar.low, bar.high) if value is not None]
    x = Axis(min(0.0, *values), max(1.0, *values), f"{TAU}, one deviation of a fold")
    return bars(rows, x, TAU, narrow=narrow)


def _coverage(judged: Mapping[str, Any]) -> str:
    share = 100 * judged["coverage"]
    x = Axis(
        0.0, 100.0, "% of hidden results within their interval (orange: 90 %)", form=lambda v: f"{v:g} %"
    )
    return bars([BarRow("within", share, f"{share:.0f} %")], x, "Coverage", [(90.0, "orange")])


def _widths(document: Mapping[str, Any], judged: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    if judged.get("width") is not None:
        yield f"mean width, {document['metric']}", f"{judged['width']:.3g}"
    if judged.get("label_width") is not None:
        yield "width from the labels alone", f"{judged['label_width']:.3g}"


def _parts(document: Mapping[str, Any]) -> str:
    parts = []
    if document["alpha"] is not None:
        parts.append(paragraphs([f"alpha {document['alpha']:g}"]))
    for title, shares in (("weight", document["weights"]), ("share", document["features"])):
        shown = {name: share for name, share in (shares or {}).items() if share >= 0.005}
        if shown:
            x = axis([0.0, *shown.values()], title, wide=LINEAR)
            rows = [BarRow(name, share, f"{share:.0%}") for name, share in shown.items()]
            heading = "Weights of the methods" if title == "weight" else "Shares of what the predictor sees"
            parts.append(f"<h3>{heading}</h3>{bars(rows, Axis(0.0, x.high, title), heading)}")
    if document["dictionary"]:
        lines: Iterator[list[Cell | str]] = (
            [Cell(one["entry"], "shape"), f"{one['weight']:.4g}"] for one in document["dictionary"]
        )
        parts.append(f"<h3>Dictionary</h3>{table([Cell('entry', 'shape'), 'weight'], lines, 'dictionary')}")
    return "".join(parts) or "<p>Nothing but labels.</p>"
