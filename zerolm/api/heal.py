"""``zerolm.heal``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from zerolm.api.configuration import absolute
from zerolm.api.document_report import DocumentReport
from zerolm.api.documented import documented
from zerolm.api.extras import needing_torch
from zerolm.carving.request import Destination
from zerolm.commands.heal import HEAL
from zerolm.progress import Progress, silent
from zerolm.report.healing import healing_fragment, healing_page, measure_of, shown_loss
from zerolm.report.phrases import show_amount

if TYPE_CHECKING:
    from zerolm.healing.request import HealRequest
    from zerolm.healing.result import Healed

Amount = int | str
Text = str | PathLike[str]


class HealingReport(DocumentReport):
    """A healed child: its losses before and after on text that was held out, and how they fell."""

    command: ClassVar[str] = HEAL.name

    @property
    def losses(self) -> dict[str, dict[str, float]]:
        """Return ``perplexity`` and ``kl``, or ``cosine``, ``before``, ``after`` and of the ``parent``."""
        return dict(self.document["losses"])

    @property
    def curve(self) -> list[dict[str, float]]:
        """Return what was measured on the way: ``step``, ``tokens``, losses by name and measures."""
        return list(self.document["curve"])

    @property
    def verified(self) -> dict[str, Any]:
        """Return how far the written child differs from the trained network."""
        return dict(self.document["verified"])

    @property
    def remarks(self) -> list[str]:
        return [self.document["note"]] if self.document["note"] else []

    @property
    def written(self) -> list[str]:
        return ["the healed child", *super().written]

    def lines(self) -> list[str]:
        training, name = self.document["training"], measure_of(self.document)
        how = f"adapters of rank {training['lora']}" if training["lora"] else "all weights"
        first = (
            f"{self.document['family']}: {how}, {show_amount(training['tokens'])} tokens in "
            f"{training['steps']:,} steps by {' and '.join(training['losses'])}, rate {training['rate']:.3g}"
        )
        rows = [
            f"{who}: "
            + ", ".join(f"{key} {shown_loss(key, value)}" for key, value in self.losses[who].items())
            for who in ("before", "after", "parent")
        ]
        difference = f"{self.verified['difference']:.2g}"
        proof = f"verified: opened again, outputs within {difference} of the trained network's"
        held = f"on {training['held_out']} sequences that were not trained on, by {name}"
        return [first, *rows, held, proof]

    def rows(self) -> list[dict[str, Any]]:
        return [dict(row) for row in self.curve]

    def page(self) -> str:
        return healing_page(self.document, self.run_yaml)

    def fragment(self) -> str:
        return healing_fragment(self.document)


@documented(HEAL)
def heal(
    child: Text,
    out: Text | None = None,
    *,
    parent: Text,
    teacher: Text | None = None,
    top: int | None = None,
    text: Text | Sequence[Text],
    mix: Sequence[float] | None = None,
    tokens: Amount | None = None,
    for_: Amount | None = None,
    losses: str | Sequence[str] | None = None,
    temperature: float = 1.0,
    lora: int | None = None,
    rate: float | None = None,
    batch: int = 8,
    length: int = 256,
    precision: str = "auto",
    accumulate: int = 1,
    checkpointing: bool = False,
    compile: bool = False,
    seed: int = 0,
    format: str | None = None,
    force: bool = False,
    progress: Progress = silent,
) -> HealingReport:
    """Return what training made of a carved child, written, opened again and compared.

    It learns what its parent, or another ``teacher``, predicts. A run that was killed goes on when it is
    started again, to the same weights. Raises ``ValueError``, in one line, for what cannot be done, and
    ``TrainingFailed`` where the loss is not finite; nothing is written then.
    """
    own = HEAL.values({name: value for name, value in locals().items() if name != "progress"})
    kept: dict[str, Any] = {name: absolute(own[name]) for name in ("child", "parent", "teacher")}
    kept["text"] = [absolute(text) for text in own["text"]]
    ran = {name: value for name, value in (own | kept).items() if name not in ("out", "force")}
    configuration = {name: value for name, value in ran.items() if value is not None}
    with needing_torch("healing trains networks", "train"):
        from zerolm.healing.heal import heal as healing

        def finish(folder: Path, healed: Healed) -> None:
            HealingReport.of(healed.to_json(), configuration).write_into(folder)

        healed = healing(
            own["child"],
            own["parent"],
            request_of(own),
            Destination(Path(own["out"]), own["format"], own["force"], finish),
            teacher=own["teacher"],
            progress=progress,
        )
    return HealingReport.of(healed.to_json(), configuration)


def request_of(own: Mapping[str, Any]) -> HealRequest:
    """Return the request that the settings of the command make."""
    from zerolm.healing.request import Distillation, HealRequest, Texts
    from zerolm.training.request import Execution

    if isinstance(own["tokens"], str):
        raise ValueError(f"tokens must be a number, not the share {own['tokens']}")
    return HealRequest(
        Texts(own["text"], own["mix"], own["length"]),
        own["tokens"],
        own["for_"],
        Distillation(own["losses"], own["temperature"], own["top"]),
        own["lora"],
        own["rate"],
        own["batch"],
        own["seed"],
        Execution(own["precision"], own["accumulate"], own["checkpointing"], own["compile"]),
    )
