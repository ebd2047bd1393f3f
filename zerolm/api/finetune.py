"""``zerolm.finetune``."""

from __future__ import annotations

from collections.abc import Sequence
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from zerolm.api.configuration import absolute
from zerolm.api.document_report import DocumentReport
from zerolm.api.documented import documented
from zerolm.api.extras import needing_torch
from zerolm.commands.elastic import ELASTIC_FINETUNE
from zerolm.progress import Progress, silent
from zerolm.report.finetuning import finetuning_fragment, finetuning_page, measures_sentence

if TYPE_CHECKING:
    from zerolm.elastic.finetuning.request import Finetuned

Text = str | PathLike[str]


class FinetuningReport(DocumentReport):
    """A fine-tuned model: its measures on rows that it was not trained on, beside the baseline."""

    command: ClassVar[str] = ELASTIC_FINETUNE.name

    @property
    def measures(self) -> dict[str, dict[str, float]]:
        """Return the measures ``before``, ``after``, of the ``baseline``, and of a ``teacher``."""
        return dict(self.document["measures"])

    @property
    def written(self) -> list[str]:
        return ["the model", *super().written]

    def lines(self) -> list[str]:
        rows = self.document["rows"]
        head = f"{self.document['task']}: {rows['train']:,} rows, judged on {rows['validation']:,} others"
        return [head, *(measures_sentence(self.document, when) for when in ("after", "baseline"))]

    def rows(self) -> list[dict[str, Any]]:
        return [{"network": when, **values} for when, values in self.measures.items()]

    def page(self) -> str:
        return finetuning_page(self.document, self.run_yaml)

    def fragment(self) -> str:
        return finetuning_fragment(self.document)


@documented(ELASTIC_FINETUNE)
def finetune(
    model: Text,
    out: Text | None = None,
    *,
    data: Text,
    validation: Text | None = None,
    task: str = "classification",
    columns: str | Sequence[str] | None = None,
    teacher: Text | None = None,
    distillation: str = "relational",
    epochs: int = 3,
    batch: int = 32,
    length: int = 128,
    rate: float = 5e-5,
    precision: str = "auto",
    seed: int = 0,
    force: bool = False,
    progress: Progress = silent,
) -> FinetuningReport:
    """Return how a model was fine-tuned, which is written with the head of its task.

    It may be a path of a supernet or any encoder or decoder of transformers. A run that was killed goes on
    when it is started again. Raises ``ValueError``, in one line, for what cannot be done, and
    ``TrainingFailed`` where the loss is not finite.
    """
    own = ELASTIC_FINETUNE.values({name: value for name, value in locals().items() if name != "progress"})
    kept = {name: absolute(own[name]) for name in ("model", "teacher", "data", "validation")}
    ran = {name: value for name, value in (own | kept).items() if name not in ("out", "force")}
    configuration = {name: value for name, value in ran.items() if value is not None}
    with needing_torch("fine-tuning trains networks", "train"):
        import zerolm.elastic.model  # noqa: F401 - makes paths known to transformers
        from zerolm.elastic.finetuning.finetune import finetune as tune
        from zerolm.elastic.finetuning.request import FinetuneRequest, TaskData
        from zerolm.training.request import Execution

        def finish(folder: Path, tuned: Finetuned) -> None:
            FinetuningReport.of(tuned.to_json(), configuration).write_into(folder)

        request = FinetuneRequest(
            TaskData(own["task"], own["data"], own["validation"], tuple(own["columns"] or ())),
            own["epochs"],
            own["batch"],
            own["length"],
            own["rate"],
            own["distillation"],
            own["seed"],
            Execution(own["precision"]),
        )
        tuned = tune(
            own["model"],
            request,
            own["out"],
            teacher=own["teacher"],
            force=own["force"],
            finish=finish,
            progress=progress,
        )
    return FinetuningReport.of(tuned.to_json(), configuration)
