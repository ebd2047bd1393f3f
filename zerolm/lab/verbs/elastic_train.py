"""``zerolm lab elastic train``: train a supernet, whose FFNs grow where features are rich."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, Final

from zerolm.lab.supernets.request import Growth, Row, StepRequest, Teaching, TrainedSupernet
from zerolm.progress import Progress, silent
from zerolm.settings import REQUIRED, parsed
from zerolm.settings.request import Request, argument, part, setting
from zerolm.show.charts import Heat, curve
from zerolm.show.sheet import NOTEBOOK, PAGE, TERMINAL, Heading, Sheet, pairs
from zerolm.show.text import base_name, show_amount
from zerolm.text.defaults import text_field
from zerolm.verbs.report import Report, run_of
from zerolm.verbs.shared import field_read, needing_torch

LABELS: Final = ("What was found", "How it grew", "How far to trust it")
MAPS: Final = 6
"""The most epochs that have a map each."""
RICHNESS: Final = (
    "Principal components that the widths grew by",
    "Each number is the mean count of principal components that hold the share of the variance; "
    "0 is a block that was never drawn.",
)


@dataclass(frozen=True, kw_only=True)
class TrainSupernetSettings(Request):
    """Return how a supernet was trained, which is written into a folder.

    Settings of the space are keywords as well (``depth=6``). A run that was killed goes on when it is started
    again, to the same weights. Raises ``ValueError``, in one line, for what cannot be done, and
    ``TrainingFailed`` where the loss is not finite.
    """

    name: ClassVar[str] = "lab elastic train"
    owners = ("spaces",)
    examples = (
        ("zerolm lab elastic train --text TEXT --tokens 200M --teacher PARENT --out supernet", "encoders"),
        (
            "zerolm lab elastic train elastic-causal --text TEXT --tokens 20M --depth 6 --hidden 256 "
            "--heads 8 --step 64 --out supernet",
            "a smaller supernet of decoders",
        ),
    )
    notes = (
        "Each step samples one path uniformly. A killed run resumes from its last checkpoint and ends with "
        "the same weights. Every setting of the space is a flag too."
    )
    space: str = argument(
        "text", "elastic", "elastic (encoders) or elastic-causal (decoders)", metavar="SPACE"
    )
    text: str = setting(
        "path", REQUIRED, "training text: file, folder, or hub data set (owner/name)", group="Text",
        metavar="TEXT",
    )  # fmt: skip
    text_field: str | None = text_field()
    tokens: int = setting("integer", REQUIRED, "training tokens over all epochs", low=1, high=1 << 50)
    tokenizer: str | None = setting(
        "path", None, "tokenizer folder; default: the teacher's, or one trained on the text",
        metavar="DIR",
    )  # fmt: skip
    words: int = setting("integer", 8192, "vocabulary size of a trained tokenizer", low=2, high=1 << 20)
    teaching: Teaching = part(Teaching, group="Learning from")
    growing: Growth = part(Growth, group="Growth")
    steps: StepRequest = part(StepRequest, group="Training")
    out: str = setting("path", REQUIRED, "output folder", group="The supernet", by_place=True, metavar="DIR")
    force: bool = setting("flag", False, "replace the output folder and an unfinished run in it")

    def run(self, progress: Progress = silent) -> SupernetReport:
        from zerolm.spaces import SPACES

        settings = parsed(f"space {self.space!r}", SPACES[self.space].declared, self.further)
        with needing_torch("supernets are trained", "train"), field_read(self.text_field, self.text):
            from zerolm.lab.supernets.train import SupernetRequest, train_supernet

            paths = self.configuration()  # absolute, so a run resumes from anywhere
            teaching = replace(self.teaching, teacher=paths.get("teacher"))
            training, read = self.steps.training(self.tokens), (paths.get("tokenizer"), self.words)
            request = SupernetRequest(
                paths["text"], training, self.space, settings, self.growing, teaching, *read
            )

            def report(trained: TrainedSupernet) -> SupernetReport:
                return SupernetReport(**vars(trained), run=run_of(self, **settings))

            def finish(folder: Path, trained: TrainedSupernet) -> None:
                report(trained).write_into(folder)

            how: Any = {"force": self.force, "finish": finish, "progress": progress}
            return report(train_supernet(request, Path(self.out), **how))


def loss_charts(log: Sequence[Row], name: str) -> dict[str, Any]:
    """Return how the loss on text held out fell by the tokens trained on, or a note that it cannot be
    drawn."""
    points = [(row["tokens"], row["held_out"]) for row in log if "held_out" in row]
    if len(points) > 1:
        return {"charts": [curve(points, name)]}
    return {"notes": ["The run was too short for a curve."]}


@dataclass(frozen=True, repr=False, eq=False)
class SupernetReport(TrainedSupernet, Report):
    """A trained supernet: how its loss fell, and how its FFNs grew by epoch."""

    command: ClassVar[str] = "lab elastic train"

    @property
    def written(self) -> list[str]:
        return ["the supernet", *super().written]

    def lines(self) -> list[str]:
        training = self.training
        return [
            f"{self.space}: {self.depth} layers by {len(self.kinds)} blocks, "
            f"{show_amount(training.tokens)} tokens in {training.steps:,} steps, {training.seconds:,.0f} s",
            self._fall(),
            self._growth(),
        ]

    def _fall(self) -> str:
        losses = [row["held_out"] for row in self.log if "held_out" in row]
        if not losses:
            return "The run was too short to be measured on the way."
        return f"The loss on text held out went from {losses[0]:.4f} to {losses[-1]:.4f} nats."

    def _growth(self) -> str:
        first, last = (show_amount(round(self.history[place].mean_params)) for place in (0, -1))
        return f"A random path has {last} parameters on average, {first} at first."

    def heading(self) -> Heading:
        how = f"{self.distillation} distillation" if self.distillation else "without a teacher"
        return Heading(
            f"A supernet of {self.depth} layers by {len(self.kinds)} blocks",
            f"{show_amount(self.training.tokens)} tokens in {self.training.epochs} epochs, {how}.",
            self._fall(),
            self._growth(),
            "One run, one seed. The loss is that of a few random paths with weights that all paths share, "
            "not of networks that are trained alone.",
            LABELS,
        )

    def sheets(self) -> list[Sheet]:
        kinds = [block if share == "none" else f"{block} {share}" for block, share in self.kinds]
        layers = [f"layer {place}" for place in range(1, self.depth + 1)]
        last = self.history[-1].widths
        widths = [[name, *map(str, line)] for name, line in zip(layers, last, strict=True)]
        alike = [[epoch.diversity[place] for epoch in self.history] for place in range(self.depth)]
        epochs = [f"epoch {epoch.epoch}" for epoch in self.history]
        sources = {"text": base_name(self.text.source), "teacher": base_name(self.teacher or "none")}
        name = "loss on text held out, mean of a few paths, nats"
        return [
            Sheet("The loss on the way", on=(PAGE, NOTEBOOK), **loss_charts(self.log, name)),
            Sheet("", ["FFN widths", *kinds], widths, kind="widths", on=(TERMINAL, NOTEBOOK)),
            self._maps("FFN widths in each epoch", [epoch.widths for epoch in self.history], kinds, layers),
            self._maps(RICHNESS[0], [epoch.scores for epoch in self.history], kinds, layers, RICHNESS[1:]),
            Sheet(
                "How alike the blocks of a layer are",
                charts=[heat("", epochs, layers, alike, ".2f", (0.0, 1.0))],
                notes=["Mean cosine of two blocks' outputs for the same input; less is more diverse."],
                on=(PAGE,),
            ),
            pairs(
                "How it was trained",
                [(name, str(value)) for name, value in (sources | vars(self.training)).items()],
                on=(PAGE,),
            ),
        ]

    def _maps(
        self,
        title: str,
        values: Sequence[Sequence[Sequence[float]]],
        kinds: list[str],
        layers: list[str],
        notes: Sequence[str] = (),
    ) -> Sheet:
        """Return a map of layers by kinds for some of the epochs, the first and the last among them."""
        every = [value for epoch in values for line in epoch for value in line]
        ends = (min(every), max(every))
        if ends[0] == ends[1]:
            return Sheet(title, notes=[f"All are {ends[0]:.0f}."], on=(PAGE,))
        places = sorted({round(i * (len(values) - 1) / (MAPS - 1)) for i in range(MAPS)})
        charts = [
            heat(f"epoch {self.history[place].epoch}", kinds, layers, values[place], ".0f", ends)
            for place in places
        ]
        return Sheet(title, charts=charts, notes=notes, layout="maps", on=(PAGE,))

    def rows(self) -> list[dict[str, Any]]:
        return [dict(row) for row in self.log]


def heat(
    title: str,
    columns: Sequence[str],
    rows: Sequence[str],
    values: Sequence[Sequence[float]],
    form: str,
    ends: tuple[float, float],
) -> Heat:
    """Return a map of values, each of which is written in its cell."""
    texts = [[f"{value:{form}}" for value in line] for line in values]
    return Heat(title, columns, rows, values, texts, ends)
