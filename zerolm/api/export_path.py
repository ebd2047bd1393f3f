"""``zerolm.export_path``."""

from __future__ import annotations

from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final

from zerolm.api.configuration import absolute
from zerolm.api.document_report import DocumentReport
from zerolm.api.documented import documented
from zerolm.api.elastic_requests import aim_of, training_of
from zerolm.api.extras import needing_torch
from zerolm.commands.elastic import ELASTIC_EXPORT
from zerolm.io.files import parse_json, read_text
from zerolm.progress import Progress, silent
from zerolm.report.exported_path import exported_fragment, exported_page, heads_sentence, losses_sentence
from zerolm.report.phrases import show_amount

if TYPE_CHECKING:
    from zerolm.elastic.export import Exported

Amount = int | str
Text = str | PathLike[str]
MOST: Final = 16 << 20
PICK: Final = "pick/architecture.json"


class PathReport(DocumentReport):
    """A model that was handed over: its layers, its costs, its losses on text held out."""

    command: ClassVar[str] = ELASTIC_EXPORT.name

    @property
    def losses(self) -> dict[str, float]:
        """Return the losses ``before`` and, where it was trained, ``after``, in nats."""
        return dict(self.document["losses"])

    @property
    def written(self) -> list[str]:
        return ["the model", *super().written]

    def lines(self) -> list[str]:
        costs = self.document["costs"]
        return [
            f"{show_amount(costs['params'])} parameters: {self.document['words']}",
            losses_sentence(self.document),
            heads_sentence(self.document),
        ]

    def rows(self) -> list[dict[str, Any]]:
        return [dict(layer) for layer in self.document["layers"]]

    def page(self) -> str:
        return exported_page(self.document, self.run_yaml)

    def fragment(self) -> str:
        return exported_fragment(self.document)


@documented(ELASTIC_EXPORT)
def export_path(
    supernet: Text,
    out: Text | None = None,
    *,
    path: Text,
    scratch: bool = False,
    heads: str = "keep",
    unbiased: bool = False,
    tokens: Amount | None = None,
    text: Text | None = None,
    teacher: Text | None = None,
    distillation: str = "relational",
    teacher_only: bool = False,
    predictions: float | None = None,
    batch: int = 32,
    length: int = 128,
    rate: float = 1e-3,
    precision: str = "auto",
    seed: int = 0,
    force: bool = False,
    progress: Progress = silent,
) -> PathReport:
    """Return what a path of a supernet is as a model of its own, written and opened again.

    A run that was killed while it trained goes on when it is started again. Raises ``ValueError``, in one
    line, for what cannot be done, and ``TrainingFailed`` where the loss is not finite.
    """
    own = ELASTIC_EXPORT.values({name: value for name, value in locals().items() if name != "progress"})
    kept: dict[str, Any] = {name: absolute(own[name]) for name in ("supernet", "path", "teacher", "text")}
    ran = {name: value for name, value in (own | kept).items() if name not in ("out", "force")}
    configuration = {name: value for name, value in ran.items() if value is not None}
    choices = choices_in(Path(own["path"]))
    with needing_torch("supernets are networks", "train"):
        from zerolm.elastic.export import ExportRequest, export

        def finish(folder: Path, exported: Exported) -> None:
            PathReport.of(exported.to_json(), configuration).write_into(folder)

        request = ExportRequest(
            choices,
            "scratch" if own["scratch"] else "supernet",
            own["heads"],
            own["unbiased"],
            None if own["tokens"] is None else training_of(own),
            kept.get("text"),
            aim_of(own),
            kept["teacher"],
            seed=own["seed"],
        )
        exported = export(
            Path(own["supernet"]),
            request,
            Path(own["out"]),
            force=own["force"],
            finish=finish,
            progress=progress,
        )
    return PathReport.of(exported.to_json(), configuration)


def choices_in(place: Path) -> dict[str, Any]:
    """Return the choices of an architecture's JSON, or of the pick of a search's folder."""
    file = place / PICK if place.is_dir() else place
    try:
        document = parse_json(read_text(file, MOST))
    except (OSError, ValueError, RecursionError) as error:
        raise ValueError(f"the path in {str(file)!r} cannot be read: {error}") from None
    choices = document.get("architecture", document) if isinstance(document, dict) else None
    if not isinstance(choices, dict):
        raise ValueError(f"{str(file)!r} holds no architecture")
    return choices
