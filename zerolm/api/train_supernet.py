"""``zerolm.train_supernet``."""

from __future__ import annotations

from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from zerolm.api.configuration import absolute
from zerolm.api.document_report import DocumentReport
from zerolm.api.documented import documented
from zerolm.api.elastic_requests import aim_of, training_of
from zerolm.api.extras import needing_torch
from zerolm.commands.elastic import ELASTIC_TRAIN
from zerolm.progress import Progress, silent
from zerolm.report.phrases import show_amount
from zerolm.report.supernet import growth_sentence, loss_sentence, supernet_fragment, supernet_page
from zerolm.settings import setting_of
from zerolm.spaces import SPACES

if TYPE_CHECKING:
    from zerolm.elastic.train import TrainedSupernet

Amount = int | str
Text = str | PathLike[str]


class SupernetReport(DocumentReport):
    """A trained supernet: its loss on the way, and how its FFNs grew."""

    command: ClassVar[str] = ELASTIC_TRAIN.name

    @property
    def history(self) -> list[dict[str, Any]]:
        """Return ``widths``, ``scores`` (layers by kinds), ``diversity`` and ``mean_params`` by epoch."""
        return list(self.document["history"])

    @property
    def written(self) -> list[str]:
        return ["the supernet", *super().written]

    def lines(self) -> list[str]:
        training, kinds = self.document["training"], self.document["kinds"]
        return [
            f"{self.document['space']}: {self.document['depth']} layers by {len(kinds)} blocks, "
            f"{show_amount(training['tokens'])} tokens in {training['steps']:,} steps, "
            f"{training['seconds']:,.0f} s",
            loss_sentence(self.document),
            growth_sentence(self.document),
        ]

    def rows(self) -> list[dict[str, Any]]:
        return [dict(row) for row in self.document["log"]]

    def page(self) -> str:
        return supernet_page(self.document, self.run_yaml)

    def fragment(self) -> str:
        return supernet_fragment(self.document)


@documented(ELASTIC_TRAIN)
def train_supernet(
    space: str = "elastic",
    out: Text | None = None,
    *,
    text: Text,
    tokens: Amount,
    tokenizer: Text | None = None,
    words: int = 8192,
    teacher: Text | None = None,
    distillation: str = "relational",
    teacher_only: bool = False,
    predictions: float | None = None,
    epochs: int = 10,
    growth: int = 3,
    mean_params: Amount | None = None,
    eta: float | None = None,
    batch: int = 32,
    length: int = 128,
    rate: float = 1e-3,
    precision: str = "auto",
    seed: int = 0,
    force: bool = False,
    progress: Progress = silent,
    **settings: Any,
) -> SupernetReport:
    """Return how a supernet was trained, which is written into a folder.

    ``settings`` are those of the space (``depth=6``). A run that was killed goes on when it is started
    again, to the same weights. Raises ``ValueError``, in one line, for what cannot be done, and
    ``TrainingFailed`` where the loss is not finite.
    """
    given = {name: value for name, value in locals().items() if name not in ("progress", "settings")}
    own = ELASTIC_TRAIN.values(given)
    declared = SPACES[own["space"]].declared
    of_space = {
        name: setting_of(f"space {own['space']!r}", declared, name).parse(value)
        for name, value in settings.items()
        if value is not None
    }
    kept = {name: absolute(own[name]) for name in ("tokenizer", "teacher", "text")}
    ran = {name: value for name, value in (own | kept | of_space).items() if name not in ("out", "force")}
    configuration = {name: value for name, value in ran.items() if value is not None}
    with needing_torch("supernets are trained", "train"):
        from zerolm.elastic.learner import ETA, Growth
        from zerolm.elastic.train import SupernetRequest
        from zerolm.elastic.train import train_supernet as train

        def finish(folder: Path, done: TrainedSupernet) -> None:
            SupernetReport.of(done.to_json(), configuration).write_into(folder)

        request = SupernetRequest(
            str(kept["text"]),
            training_of(own),
            own["space"],
            of_space,
            Growth(
                own["epochs"],
                own["growth"],
                most=own["mean_params"],
                eta=ETA if own["eta"] is None else dict.fromkeys(ETA, own["eta"]),
                fixed=own["growth"] == 0,
            ),
            aim_of(own),
            kept["tokenizer"],
            own["words"],
            kept["teacher"],
        )
        done = train(request, Path(own["out"]), force=own["force"], finish=finish, progress=progress)
    return SupernetReport.of(done.to_json(), configuration)
