"""``zerolm eval``."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from zerolm.cli.progress import patient
from zerolm.report.phrases import show_amount

if TYPE_CHECKING:
    from zerolm.carving.evaluation.evaluate import Evaluated, EvaluatedRow
    from zerolm.carving.evaluation.tasks import Scored

HEADS: Final = {"perplexity": "perplexity", "kl": "KL", "cosine": "cosine"}
DIGITS: Final = {"perplexity": 2, "kl": 4, "cosine": 4}
TASKS: Final = "Of lm-evaluation-harness, by name or .yaml file (which may hold code), with commas between."


def evaluate(
    child: Annotated[Path, typer.Argument(help="The folder of a checkpoint.")],
    parent: Annotated[Path, typer.Option(metavar="DIR", help="What it is compared with.")],
    text: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Text that neither has been fitted to.")
    ] = None,
    sequences: Annotated[int, typer.Option(min=1, help="Sequences taken from the text.")] = 256,
    length: Annotated[int, typer.Option(min=2, help="Tokens of each.")] = 256,
    tasks: Annotated[str | None, typer.Option(metavar="TASKS", help=TASKS)] = None,
    limit: Annotated[int | None, typer.Option(min=1, help="Samples of each task at most.")] = None,
    json_output: Annotated[bool, typer.Option("--json", help="One JSON object.")] = False,
) -> None:
    """Show what a child has lost: perplexity and divergence from its parent, or the cosine of embeddings.

    Beside it stand random and uniform carvings of the parent of the same size. --tasks compares child and
    parent on tasks of lm-evaluation-harness, whose data come from the hub.
    """
    names = [name for name in map(str.strip, (tasks or "").split(",")) if name]
    if text is None and not names:
        raise ValueError("nothing says what to evaluate on: give --text FILE, --tasks TASKS, or both")
    if limit is not None and not names:
        raise ValueError("--limit is of samples of tasks: give --tasks TASKS too")
    progress, document = patient(), dict[str, Any]()
    judged = scored = known = None
    if names:
        from zerolm.carving.evaluation.tasks import Tasks

        known = Tasks.of(names, child, parent)
    if text is not None:
        from zerolm.carving.evaluation.evaluate import evaluate

        judged = evaluate(child, parent, text, sequences=sequences, length=length, progress=progress)
        document |= judged.to_json()
    if known:
        scored = known.compared(limit=limit, progress=progress)
        document["tasks"] = [asdict(row) for row in scored]
    if json_output:
        print(json.dumps(document))
        return
    if judged:
        show(judged)
    if scored:
        show_tasks(scored)


def show(evaluated: Evaluated) -> None:
    """Print a table of all rows, the spread of several draws behind their means."""
    print(f"{evaluated.sequences} sequences, {evaluated.tokens:,} tokens")
    columns = list(evaluated.rows[0].values)
    body = [
        [row.name, show_amount(row.params), *(_digits(key, row.values[key]) for key in columns), _spread(row)]
        for row in evaluated.rows
    ]
    show_table(["", "parameters", *(HEADS[key] for key in columns), ""], body)
    meaning = "cosine: of embeddings to the parent's, mean" if "cosine" in columns else "KL: nats a token"
    print(f"{meaning}\n{evaluated.note}")


def _digits(key: str, value: float) -> str:
    return f"{value:,.{DIGITS[key]}f}"


def _spread(row: EvaluatedRow) -> str:
    ranges = (" to ".join(_digits(key, end) for end in ends) for key, ends in row.spread.items())
    return f"({'; '.join(ranges)})" if row.spread else ""


def show_tasks(scored: list[Scored]) -> None:
    """Print a table of all metrics of child and parent, with standard errors."""
    body = [
        [
            f"{row.task} {row.metric}",
            str(row.samples or ""),
            _measured(row.child, row.child_stderr),
            _measured(row.parent, row.parent_stderr),
        ]
        for row in scored
    ]
    show_table(["", "samples", "child", "parent"], body)


def _measured(value: float, stderr: float | None) -> str:
    return f"{value:.4f}" if stderr is None else f"{value:.4f} +- {stderr:.4f}"


def show_table(head: list[str], body: list[list[str]]) -> None:
    """Print columns below their heads: names to the left, numbers to the right, remarks behind."""
    widths = [max(map(len, column)) for column in zip(head, *body, strict=True)]
    for line in (head, *body):
        cells = [cell.rjust(width) for cell, width in zip(line, widths, strict=True)]
        cells[0] = line[0].ljust(widths[0])
        if not head[-1]:
            cells[-1] = line[-1]
        print("  ".join(cells).rstrip())
