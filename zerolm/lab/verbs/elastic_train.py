"""``zerolm lab elastic train``: train a supernet, whose FFNs grow where features are rich."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final

from zerolm.lab.supernets.request import Growth, StepRequest, Teaching
from zerolm.lab.supernets.result import TrainedSupernet
from zerolm.progress import Progress, silent
from zerolm.settings import REQUIRED, parsed
from zerolm.settings.request import Request, argument, part, setting
from zerolm.show.charts import Heat, curve
from zerolm.show.sheet import NOTEBOOK, PAGE, TERMINAL, Heading, Sheet, pairs
from zerolm.show.text import base_name, show_amount
from zerolm.text.defaults import text_field
from zerolm.verbs.report import Report, run_of
from zerolm.verbs.shared import field_read, needing_torch

if TYPE_CHECKING:
    from zerolm.lab.supernets.train import SupernetRequest

LABELS: Final = ("What was found", "How it grew", "How far to trust it")
MAPS: Final = 6
"""The most epochs that have a map each."""
RICHNESS: Final = (
    "Each number is the mean count of principal components that hold the share of the variance; "
    "0 is a block that was never drawn."
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
            from zerolm.lab.supernets.train import train_supernet

            def finish(folder: Path, trained: TrainedSupernet) -> None:
                self._report(trained, settings).write_into(folder)

            trained = train_supernet(
                self._request(settings), Path(self.out), force=self.force, finish=finish, progress=progress
            )
        return self._report(trained, settings)

    def _request(self, settings: dict[str, Any]) -> SupernetRequest:
        """Return the request of the training; its paths are absolute, so a run resumes from anywhere."""
        from zerolm.lab.supernets.train import SupernetRequest

        paths = self.configuration()
        return SupernetRequest(
            paths["text"],
            self.steps.training(self.tokens),
            self.space,
            settings,
            self.growing,
            replace(self.teaching, teacher=paths.get("teacher")),
            paths.get("tokenizer"),
            self.words,
        )

    def _report(self, trained: TrainedSupernet, settings: dict[str, Any]) -> SupernetReport:
        return SupernetReport(**vars(trained), run=run_of(self, **settings))


@dataclass(frozen=True, repr=False, eq=False)
class SupernetReport(TrainedSupernet, Report):
    """A trained supernet: how its loss fell, and how its FFNs grew by epoch.

    ``kinds`` are the blocks that each layer chooses from, with the projections that they share. ``log`` has
    the losses by ``tokens``.
    """

    command: ClassVar[str] = "lab elastic train"

    @property
    def written(self) -> list[str]:
        return ["the supernet", *super().written]

    @property
    def points(self) -> list[tuple[float, float]]:
        """Return the losses on text held out, by the tokens trained on."""
        return [(row["tokens"], row["held_out"]) for row in self.log if "held_out" in row]

    def lines(self) -> list[str]:
        training = self.training
        return [
            f"{self.space}: {self.depth} layers by {len(self.kinds)} blocks, "
            f"{show_amount(training.tokens)} tokens in {training.steps:,} steps, {training.seconds:,.0f} s",
            self._fall(),
            self._growth(),
        ]

    def _fall(self) -> str:
        if not self.points:
            return "The run was too short to be measured on the way."
        return (
            f"The loss on text held out went from {self.points[0][1]:.4f} to {self.points[-1][1]:.4f} nats."
        )

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
        return [
            self._loss(),
            self._last_widths(),
            self._maps("FFN widths in each epoch", [epoch.widths for epoch in self.history]),
            self._maps(
                "Principal components that the widths grew by",
                [epoch.scores for epoch in self.history],
                [RICHNESS],
            ),
            self._diversity(),
            pairs("How it was trained", self._making(), on=(PAGE,)),
        ]

    def _loss(self) -> Sheet:
        name = "loss on text held out, mean of a few paths, nats"
        charts = [curve(self.points, name)] if len(self.points) > 1 else []
        notes = [] if charts else ["The run was too short for a curve."]
        return Sheet("The loss on the way", charts=charts, notes=notes, on=(PAGE, NOTEBOOK))

    @property
    def _kinds(self) -> list[str]:
        """Return the names of the kinds: the block, and what it shares."""
        return [block if share == "none" else f"{block} {share}" for block, share in self.kinds]

    @property
    def _layers(self) -> list[str]:
        return [f"layer {place}" for place in range(1, self.depth + 1)]

    def _last_widths(self) -> Sheet:
        """Return the widths after the last epoch, for where there are no maps."""
        rows = [
            [name, *map(str, line)] for name, line in zip(self._layers, self.history[-1].widths, strict=True)
        ]
        head = ["FFN widths", *self._kinds]
        return Sheet("", head, rows, kind="widths", on=(TERMINAL, NOTEBOOK))

    def _maps(
        self, title: str, values: Sequence[Sequence[Sequence[float]]], notes: Sequence[str] = ()
    ) -> Sheet:
        """Return a map of layers by kinds for some of the epochs, the first and the last among them."""
        every = [value for epoch in values for line in epoch for value in line]
        ends = (min(every), max(every))
        if ends[0] == ends[1]:
            return Sheet(title, notes=[f"All are {ends[0]:.0f}."], on=(PAGE,))
        places = sorted({round(i * (len(values) - 1) / (MAPS - 1)) for i in range(MAPS)})
        charts = [
            Heat(
                f"epoch {self.history[place].epoch}",
                self._kinds,
                self._layers,
                values[place],
                [[f"{value:.0f}" for value in line] for line in values[place]],
                ends,
            )
            for place in places
        ]
        return Sheet(title, charts=charts, notes=notes, layout="maps", on=(PAGE,))

    def _diversity(self) -> Sheet:
        """Return a map of layers by epochs."""
        values = [[epoch.diversity[place] for epoch in self.history] for place in range(self.depth)]
        texts = [[f"{value:.2f}" for value in line] for line in values]
        columns = [f"epoch {epoch.epoch}" for epoch in self.history]
        note = "Mean cosine of two blocks' outputs for the same input; less is more diverse."
        chart = Heat("", columns, self._layers, values, texts, (0.0, 1.0))
        return Sheet("How alike the blocks of a layer are", charts=[chart], notes=[note], on=(PAGE,))

    def _making(self) -> list[tuple[str, str]]:
        names = {"text": base_name(self.text.source), "teacher": base_name(self.teacher or "none")}
        return [(name, str(value)) for name, value in (names | vars(self.training)).items()]

    def rows(self) -> list[dict[str, Any]]:
        return [dict(row) for row in self.log]
