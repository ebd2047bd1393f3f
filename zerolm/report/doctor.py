"""The page of a doctor: which runtimes open a checkpoint, why not, and what to do."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from html import escape
from typing import Any, Final

from zerolm.report.page import Cell, Heading, page, pairs, section, table
from zerolm.report.phrases import show_amount

LABELS: Final = ("What opens it", "What does not", "How far to trust it")
KNOWN: Final = {"opened": "really opened", "rules": "by rules"}
Row = Mapping[str, Any]


def doctor_page(document: Mapping[str, Any], configuration: Mapping[str, Any] | None = None) -> str:
    """Return the page of what ``zerolm doctor --json`` prints; ``configuration`` is that of ``run.yaml``."""
    runtimes = document["runtimes"]
    opens, refuses, unknown = (_named(runtimes, verdict) for verdict in ("opens", "refuses", "unknown"))
    tried = [row["runtime"] for row in runtimes if row["known"] == "opened"]
    heading = Heading(
        "zerolm doctor",
        f"{len(opens)} of {len(runtimes)} runtimes open {_folder(document)}",
        f"{_kind(document)}; {document['folder']}",
        f"{', '.join(opens) or 'None of them'}.",
        _others(refuses, unknown),
        (f"Really opened here: {', '.join(tried)}. " if tried else "Nothing was opened here. ")
        + "The others go by rules: configuration, names and shapes; nothing was run, no weight was read.",
        LABELS,
    )
    advice = "".join(f"<li>{escape(line)}</li>" for line in document["advice"])
    body = [
        section("Runtimes", _table(runtimes)),
        *([section("Advice", f"<ul>{advice}</ul>")] if advice else []),
        section("The checkpoint", pairs(_facts(document), "pairs wide")),
    ]
    return page(heading, body, configuration)


def doctor_fragment(document: Mapping[str, Any]) -> str:
    """Return the table of runtimes, without style or script."""
    return f'<div style="max-width:820px">{_table(document["runtimes"])}</div>'


def _named(runtimes: Sequence[Row], verdict: str) -> list[str]:
    return [row["runtime"] for row in runtimes if row["verdict"] == verdict]


def _folder(document: Mapping[str, Any]) -> str:
    return str(document["folder"]).rstrip("/").rsplit("/", 1)[-1]


def _kind(document: Mapping[str, Any]) -> str:
    return ", ".join(document["architectures"]) or document["model_type"] or "No class is named"


def _others(refuses: Sequence[str], unknown: Sequence[str]) -> str:
    said = [f"{', '.join(refuses)} refuse{'s' * (len(refuses) == 1)} it."] if refuses else []
    said += [f"Not known: {', '.join(unknown)}."] if unknown else []
    return " ".join(said) or "Nothing that was examined."


def _table(runtimes: Sequence[Row]) -> str:
    rows = (
        [row["runtime"], Cell(row["verdict"], row["verdict"]), KNOWN.get(row["known"], row["known"]),
         Cell("; ".join(row["reasons"]), "shape")]
        for row in runtimes
    )  # fmt: skip
    return table(["runtime", "verdict", "known", Cell("why", "shape")], rows, "words")


def _facts(document: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    yield "model type", str(document["model_type"] or "not named")
    yield "tensors", f"{document['tensors']:,}"
    kinds = ", ".join(f"{count:,} {name}" for name, count in document["dtypes"].items())
    yield "weights", f"{document['weights']:,}" + (f" ({kinds})" if kinds else "")
    yield "size", show_amount(document["bytes"], size=True)
    if document["tied"] is not None:
        yield "head and embedding", "tied" if document["tied"] else "not tied"
    for name in ("tensor_parallel", "gguf", "pickles"):
        if document[name]:
            yield name.replace("_", " "), ", ".join(map(str, document[name]))
