"""The terminal's view of an evaluation."""

from __future__ import annotations

from typing import Any, Final

from zerolm.api.evaluate import EvaluationReport
from zerolm.cli.tables import show_table, show_text
from zerolm.report.phrases import show_amount

HEADS: Final = {"perplexity": "perplexity", "kl": "KL", "cosine": "cosine"}
DIGITS: Final = {"perplexity": 2, "kl": 4, "cosine": 4}


def show(result: EvaluationReport) -> None:
    """Print a table of all networks, the spread of several draws behind their means, and one of tasks."""
    if result.networks:
        _show_networks(result)
    if result.tasks:
        _show_tasks(result.tasks)


def _show_networks(result: EvaluationReport) -> None:
    document, columns = result.document, result.measures
    print(f"{document['sequences']} sequences, {document['tokens']:,} tokens")
    body = [
        [row["name"], show_amount(row["params"]), *(_digits(key, row[key]) for key in columns), _spread(row)]
        for row in result.networks
    ]
    show_table(["", "parameters", *(HEADS[key] for key in columns), ""], body, remarks=True)
    meaning = "cosine: of embeddings to the parent's, mean" if "cosine" in columns else "KL: nats a token"
    show_text(meaning)
    show_text(document["note"])


def _digits(key: str, value: float) -> str:
    return f"{value:,.{DIGITS[key]}f}"


def _spread(row: dict[str, Any]) -> str:
    spread = row.get("spread", {})
    ranges = (" to ".join(_digits(key, end) for end in ends) for key, ends in spread.items())
    return f"({'; '.join(ranges)})" if spread else ""


def _show_tasks(rows: list[dict[str, Any]]) -> None:
    """Print a table of all metrics of child and parent, with standard errors."""
    body = [
        [
            f"{row['task']} {row['metric']}",
            str(row["samples"] or ""),
            _measured(row["child"], row["child_stderr"]),
            _measured(row["parent"], row["parent_stderr"]),
        ]
        for row in rows
    ]
    show_table(["", "samples", "child", "parent"], body)


def _measured(value: float, stderr: float | None) -> str:
    return f"{value:.4f}" if stderr is None else f"{value:.4f} +- {stderr:.4f}"
