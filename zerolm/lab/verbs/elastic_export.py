"""``zerolm lab elastic export``: a path of a supernet as a model of its own."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, Final

from zerolm.cost_columns import cost_label, shown_costs
from zerolm.lab.supernets.request import UNTRAINED, Exported, StepRequest, Teaching
from zerolm.lab.verbs.elastic_train import heat, loss_charts
from zerolm.progress import Progress, silent
from zerolm.settings import REQUIRED
from zerolm.settings.request import Request, argument, part, setting
from zerolm.show.sheet import NOTEBOOK, PAGE, TERMINAL, Heading, Sheet, pairs
from zerolm.show.text import show_amount, show_cost
from zerolm.text.defaults import text_field
from zerolm.verbs.report import Report, run_of
from zerolm.verbs.shared import field_read, needing_torch

PATH_BYTES: Final = 16 << 20
"""The most that is read of a file with a path."""
PICK: Final = "pick/architecture.json"


@dataclass(frozen=True, kw_only=True)
class ExportPathSettings(Request):
    """Export a path of a supernet as a model of its own, written and opened again.

    A run that was killed while it trained goes on when it is started again. Raises ``ValueError``, in one
    line, for what cannot be done, and ``TrainingFailed`` where the loss is not finite.
    """

    name: ClassVar[str] = "lab elastic export"
    examples = (
        ("zerolm lab elastic export supernet --path best --out model", "as it was trained in the supernet"),
        (
            "zerolm lab elastic export supernet --path best --heads fuse --scratch --tokens 200M --out model",
            "as the paper does: fused, and trained from scratch",
        ),
    )
    supernet: str = argument("path", REQUIRED, "folder of a trained supernet", metavar="SUPERNET")
    path: str = setting(
        "path",
        REQUIRED,
        "result of `lab elastic search`, or an architecture as JSON",
        group="The path",
        metavar="FILE",
    )
    scratch: bool = setting("flag", False, "start from random weights instead of the supernet's")
    heads: Any = setting(
        "text",
        "keep",
        "similar heads: keep, fuse (into fewer, wider ones), or remove",
        choices=("keep", "fuse", "remove"),
    )
    unbiased: bool = setting("flag", False, "compare heads by unbiased CKA over tokens")
    tokens: int | None = setting(
        "integer", None, "tokens to train the exported model on", group="Training", low=1, high=1 << 50
    )
    text: str | None = setting("path", None, "training text; default: the supernet's", metavar="TEXT")
    text_field: str | None = text_field()
    teaching: Teaching = part(Teaching)
    steps: StepRequest = part(StepRequest)
    out: str = setting("path", REQUIRED, "output folder", group="The model", by_place=True, metavar="DIR")
    force: bool = setting("flag", False, "replace the output folder and an unfinished run in it")

    def run(self, progress: Progress = silent) -> PathReport:
        choices = choices_in(Path(self.path))
        is_read = field_read(self.text_field, self.text, has_another=True)
        with needing_torch("supernets are networks", "train"), is_read:
            from zerolm.lab.supernets.export import ExportRequest, export
            from zerolm.training.processes import device_for
            from zerolm.training.request import Execution

            device_for(Execution(self.steps.compute))
            paths = self.configuration()  # absolute, so a run resumes from anywhere
            request = ExportRequest(
                choices,
                "scratch" if self.scratch else "supernet",
                self.heads,
                self.unbiased,
                None if self.tokens is None else self.steps.training(self.tokens),
                paths.get("text"),
                replace(self.teaching, teacher=paths.get("teacher")),
                seed=self.steps.seed,
            )

            def report(exported: Exported) -> PathReport:
                return PathReport(**vars(exported), run=run_of(self))

            def finish(folder: Path, exported: Exported) -> None:
                report(exported).write_into(folder)

            how: Any = {"force": self.force, "finish": finish, "progress": progress}
            return report(export(Path(self.supernet), request, Path(self.out), **how))


def choices_in(place: Path) -> dict[str, Any]:
    """Return the choices of an architecture's JSON, or of the pick of a search's folder."""
    from zerolm.io.files import parse_json, read_text

    file = place / PICK if place.is_dir() else place
    try:
        document = parse_json(read_text(file, PATH_BYTES))
    except (OSError, ValueError, RecursionError) as error:
        raise ValueError(f"the path in {str(file)!r} cannot be read: {error}") from None
    choices = document.get("architecture", document) if isinstance(document, dict) else None
    if not isinstance(choices, dict):
        raise ValueError(f"{str(file)!r} holds no architecture")
    return choices


@dataclass(frozen=True, repr=False, eq=False)
class PathReport(Exported, Report):
    """A model that was handed over: its layers in ``words`` too, its costs, its losses on text held out."""

    command: ClassVar[str] = "lab elastic export"

    def to_json(self) -> dict[str, Any]:
        return super().to_json() | {"layers": self.rows()}

    @property
    def written(self) -> list[str]:
        return ["the model", *super().written]

    def lines(self) -> list[str]:
        size = show_cost("params", self.costs["params"])
        return [f"{size} parameters: {self.words}", self._losses(), self._heads()]

    def _losses(self) -> str:
        parts = ", ".join(f"{name} {loss:.4f}" for name, loss in self.losses.items())
        untrained = ". Nothing was trained" if UNTRAINED in self.losses else ""
        return f"Loss on text held out, in nats: {parts}{untrained}."

    def _heads(self) -> str:
        counts = ", ".join(str(layer.heads) for layer in self.layers)
        return f"Heads of its layers, with --heads {self.heads}: {counts}."

    def heading(self) -> Heading:
        return Heading(
            f"{show_amount(self.costs['params'])} parameters in {len(self.layers)} layers",
            f"{self.words}.",
            self._losses(),
            self._heads(),
            "One run, no interval. The model was opened again and gives the network's logits.",
            labels=("What was found", "Its heads", "How far to trust it"),
        )

    def sheets(self) -> list[Sheet]:
        layers = [
            [str(place), layer.block, layer.share, str(layer.heads), f"{layer.ffn:,}"]
            for place, layer in enumerate(self.layers, 1)
        ]
        head = ["layer", "block", "shared", "heads", "FFN width"]
        shown = shown_costs(self.costs, [self.costs])
        costs = [(cost_label(name), show_cost(name, self.costs[name])) for name in shown]
        name = "loss on text held out, nats"
        losses = [[network, f"{loss:.4f}"] for network, loss in self.losses.items()]
        fall = loss_charts(self.log, name) if self.log else {}
        alike = []
        for place, matrix in enumerate(self.similarity, 1):
            names = [str(number) for number in range(1, len(matrix) + 1)]
            alike.append(heat(f"layer {place}", names, names, matrix, ".2f", (0.0, 1.0)))
        maps: Any = {"charts": alike, "layout": "maps"} if alike else {"notes": ["Heads were not compared."]}
        return [
            Sheet("Its layers", head, layers, kind="layers", on=(PAGE, TERMINAL, NOTEBOOK)),
            Sheet("Its losses", ["network", name], losses, kind="losses", on=(PAGE,), **fall),
            Sheet("How alike its heads were (CKA)", on=(PAGE,), **maps),
            pairs("Costs", costs, on=(PAGE,)),
        ]

    def rows(self) -> list[dict[str, Any]]:
        return [layer.to_json() for layer in self.layers]
