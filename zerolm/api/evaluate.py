"""``zerolm.evaluate``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from os import PathLike
from typing import Any, ClassVar

from zerolm.api.configuration import absolute
from zerolm.api.document_report import DocumentReport
from zerolm.api.documented import documented
from zerolm.api.extras import needing_torch
from zerolm.commands.evaluate import EVAL
from zerolm.progress import Progress, silent
from zerolm.report.evaluation import evaluation_fragment, evaluation_page
from zerolm.report.phrases import show_amount

Text = str | PathLike[str]


class EvaluationReport(DocumentReport):
    """The losses of a child on a text and on tasks, beside its parent and carvings of its size."""

    command: ClassVar[str] = EVAL.name

    @property
    def networks(self) -> list[dict[str, Any]]:
        """Return the child, the parent and other carvings with what each makes of the text."""
        return list(self.document.get("rows", ()))

    @property
    def tasks(self) -> list[dict[str, Any]]:
        """Return the metrics of the tasks, of child and parent."""
        return list(self.document.get("tasks", ()))

    @property
    def measures(self) -> list[str]:
        """Return the names of what is measured on the text, empty without one."""
        known = ("perplexity", "kl", "cosine")
        return [name for name in known if name in self.networks[0]] if self.networks else []

    def lines(self) -> list[str]:
        lines = []
        for row in self.networks:
            values = ", ".join(f"{name} {row[name]:.4g}" for name in self.measures)
            lines.append(f"{row['name']}: {show_amount(row['params'])} parameters, {values}")
        for row in self.tasks:
            values = f"child {row['child']:.4f}, parent {row['parent']:.4f}"
            lines.append(f"{row['task']} {row['metric']}: {values}")
        return lines

    def rows(self) -> list[dict[str, Any]]:
        if not self.networks:
            return self.tasks
        rows = []
        for network in self.networks:
            ends = {f"{name}_{end}": None for name in self.measures for end in ("low", "high")}
            for name, (low, high) in network.get("spread", {}).items():
                ends |= {f"{name}_low": low, f"{name}_high": high}
            rows.append({name: value for name, value in network.items() if name != "spread"} | ends)
        return rows

    def page(self) -> str:
        return evaluation_page(self.document, self.run_yaml)

    def fragment(self) -> str:
        return evaluation_fragment(self.document)


@documented(EVAL)
def evaluate(
    child: Text,
    *,
    parent: Text,
    beside: Text | Sequence[Text] | None = None,
    text: Text | None = None,
    sequences: int = 256,
    length: int = 256,
    tasks: str | Sequence[str] | None = None,
    limit: int | None = None,
    progress: Progress = silent,
) -> EvaluationReport:
    """Return what a child has lost beside its parent, and beside other carvings of its size.

    On a ``text`` these are perplexity and divergence from the parent (of encoders the cosine of embeddings),
    on ``tasks`` the metrics of lm-evaluation-harness. One of them must be given. Raises ``ValueError``, in
    one line, for what cannot be compared, and ``ModuleNotFoundError`` for an extra that is not installed.
    """
    own = EVAL.values({name: value for name, value in locals().items() if name != "progress"})
    if own["text"] is None and not own["tasks"]:
        raise ValueError("nothing says what to evaluate on: give --text FILE, --tasks TASKS, or both")
    if own["beside"] and own["text"] is None:
        raise ValueError("--beside compares on a text: give --text FILE too")
    if own["limit"] is not None and not own["tasks"]:
        raise ValueError("--limit is of samples of tasks: give --tasks TASKS too")
    with needing_torch("evaluating runs networks"):
        from zerolm.carving.evaluation import evaluate as comparing
        from zerolm.carving.evaluation.tasks import Tasks
    document: dict[str, Any] = {}
    known = Tasks.of(own["tasks"], own["child"], own["parent"]) if own["tasks"] else None
    if own["text"] is not None:
        taken = {name: own[name] for name in ("sequences", "length")}
        taken["beside"] = own["beside"] or ()
        judged = comparing.evaluate(own["child"], own["parent"], own["text"], **taken, progress=progress)
        document |= judged.to_json()
    if known is not None:
        scored = known.compared(limit=own["limit"], progress=progress)
        document["tasks"] = [asdict(row) for row in scored]
    ran = own | {name: absolute(own[name]) for name in ("child", "parent", "text")}
    ran["beside"] = [absolute(other) for other in own["beside"]] if own["beside"] else None
    ran["tasks"] = [absolute(task) for task in own["tasks"]] if own["tasks"] else None
    return EvaluationReport.of(document, {name: value for name, value in ran.items() if value is not None})
