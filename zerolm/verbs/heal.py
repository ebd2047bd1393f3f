"""``zerolm heal``: train a carved child to predict what its parent predicts."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Final

from zerolm.healing.request import HealRequest
from zerolm.healing.result import Healed
from zerolm.progress import Progress, silent
from zerolm.settings import REQUIRED
from zerolm.settings.request import Request, argument, part, setting
from zerolm.show.charts import Level, Linked, curve
from zerolm.show.sheet import NOTEBOOK, PAGE, TERMINAL, Heading, Sheet, pairs
from zerolm.show.text import base_name, sentence, show_amount
from zerolm.verbs.report import Report, run_of
from zerolm.verbs.shared import field_read, needing_torch

MEASURES: Final = {
    "kl": "KL to the parent in nats a token (lower is better)",
    "cosine": "cosine of embeddings to the parent's (higher is better)",
}
"""What a healing is judged by, of decoders and of encoders."""
FORMS: Final = {"perplexity": ",.2f", "kl": ".4f", "cosine": ".4f"}


@dataclass(frozen=True, kw_only=True)
class HealSettings(Request):
    """Return a carved child after distillation from its parent, written, opened again and compared.

    It learns what its parent, or another ``teacher``, predicts. A run that was killed goes on when it is
    started again, to the same weights. Raises ``ValueError``, in one line, for what cannot be done, and
    ``TrainingFailed`` where the loss is not finite; nothing is written then.
    """

    name: ClassVar[str] = "heal"
    examples = (
        ("zerolm heal child --parent PARENT --text TEXT --for 30m --out healed", "half an hour, tonight"),
        (
            "zerolm heal child --parent PARENT --text code/,prose.txt --mix 3,1 --tokens 20M --out healed",
            "a folder of code and a file, three to one",
        ),
    )
    notes = (
        "The end of each text is held out to measure the loss before and after. A killed run resumes from "
        "its last checkpoint when started again. `accelerate launch -m zerolm heal` uses all configured "
        "devices."
    )
    child: str = argument("path", REQUIRED, "folder of a carved checkpoint", metavar="CHILD")
    parent: str = setting(
        "path", REQUIRED, "checkpoint that the child was carved from", group="Learning from", metavar="DIR"
    )
    teacher: str | None = setting(
        "path",
        None,
        "another model with the same vocabulary to learn from; default: the parent",
        metavar="DIR",
    )
    request: HealRequest = part(HealRequest)
    format: str | None = setting(
        "text",
        None,
        "output format: hf, padded or gguf; default: the child's",
        group="The child",
        metavar="NAME",
    )
    out: str = setting("path", REQUIRED, "folder for the healed child", by_place=True, metavar="DIR")
    force: bool = setting("flag", False, "replace the output folder and an unfinished run in it")

    def run(self, progress: Progress = silent) -> HealingReport:
        from zerolm.checkpoints.folder import check_named

        check_named(self.child, self.parent, *filter(None, [self.teacher]))
        texts = self.request.texts
        is_read = field_read(texts.field, *texts.sources)
        with needing_torch("healing trains networks", "train"), is_read:
            from zerolm.carving.request import Destination
            from zerolm.healing.heal import heal

            def finish(folder: Path, healed: Healed) -> None:
                self._report(healed).write_into(folder)

            place = Destination(Path(self.out), self.format, self.force, finish)
            healed = heal(
                self.child, self.parent, self.request, place, teacher=self.teacher, progress=progress
            )
        return self._report(healed)

    def _report(self, healed: Healed) -> HealingReport:
        return HealingReport(**vars(healed), run=run_of(self))


@dataclass(frozen=True, repr=False, eq=False)
class HealingReport(Healed, Report):
    """The result of a healing, and how it is shown."""

    command: ClassVar[str] = "heal"

    @property
    def how(self) -> str:
        """Return the trained weights and the number of tokens, in words."""
        training = self.training
        weights = f"adapters of rank {training.lora}" if training.lora else "all weights"
        weights = f"the weights of each {training.only} alone" if training.only else weights
        return f"{weights}, {show_amount(training.tokens)} tokens in {training.steps:,} steps"

    @property
    def measure(self) -> str:
        """Return the measure that it is judged by: ``kl`` of decoders, ``cosine`` of encoders."""
        return next(name for name in MEASURES if name in self.losses["before"])

    @property
    def gains(self) -> str:
        """Return the measures before and after in a line."""
        before, after = self.losses["before"], self.losses["after"]
        parts = (
            f"{name} {_shown(name, loss)} to {_shown(name, after[name])}" for name, loss in before.items()
        )
        return f"{', '.join(parts)} on text held out, {show_amount(self.training.tokens)} tokens"

    @property
    def remarks(self) -> list[str]:
        return self.notes

    @property
    def written(self) -> list[str]:
        return ["the healed child", *super().written]

    def lines(self) -> list[str]:
        losses = " and ".join(self.training.losses)
        return [
            f"{self.family}: {self.how} by {losses}, rate {self.training.rate:.3g}",
            self.gains,
            *([f"verified: opened again, {self.verified.text('trained network')}"] if self.verified else []),
        ]

    def heading(self) -> Heading:
        name, training = self.measure, self.training
        before, after = (_shown(name, self.losses[who][name]) for who in ("before", "after"))
        return Heading(
            f"{'KL' if name == 'kl' else 'Cosine'} {before} before, {after} after",
            f"{self.how}, by {' and '.join(training.losses)}.",
            self.finding(),
            trust=f"{training.held_out} sequences of {training.length} tokens, one run, no interval: text of "
            f"another kind may say otherwise. {' '.join(map(sentence, self.notes))}".strip(),
        )

    def sheets(self) -> list[Sheet]:
        texts = [
            [
                base_name(one.source),
                *(f"{n:,}" for n in (one.tokens, one.trained_on, one.held_out)),
                one.sha256[:12],
            ]
            for one in self.texts
        ]
        head = ["text", "tokens", "trained on", "held out", "SHA-256"]
        curves = self.curves()
        missing = [] if curves else ["The run was too short for a curve."]
        return [
            Sheet("The loss on the way", charts=curves, notes=missing, on=(PAGE, NOTEBOOK)),
            self.losses_sheet(),
            Sheet("What it was trained on", head, texts, kind="texts", on=(PAGE,)),
            pairs("How it was trained", self._making(), on=(PAGE,)),
        ]

    def losses_sheet(self) -> Sheet:
        names = list(self.losses["before"])
        networks = {"before": "child, before", "after": "child, after", "parent": "parent"}
        rows = [
            [words, *(_shown(name, self.losses[who][name]) for name in names)]
            for who, words in networks.items()
        ]
        held_out = f"on {self.training.held_out} sequences that were not trained on"
        where = (PAGE, TERMINAL, NOTEBOOK)
        return Sheet("Before and after", ["network", *names], rows, [held_out], kind="losses", on=where)

    def curves(self) -> list[Linked]:
        """Return how the measure went on text that is held out; nothing of a short run."""
        name = self.measure
        points = [(row["tokens"], row[name]) for row in self.curve if name in row]
        if len(points) < 2:
            return []
        before = Level(points[0][1], "grey", "6 4")
        keys = [("dot", "blue", "held-out text"), ("dashes", "grey", "before healing")]
        return [curve(points, MEASURES[name], [before], keys)]

    def _making(self) -> list[tuple[str, str]]:
        training = self.training
        values = {
            **vars(training),
            "losses": ", ".join(training.losses),
            "bfloat16": "yes" if training.bfloat16 else "no",
        }
        rows = [(name.replace("_", " "), str(value)) for name, value in values.items() if value is not None]
        return [("teacher", base_name(self.teacher)), *rows]

    def rows(self) -> list[dict[str, Any]]:
        return [dict(row) for row in self.curve]


def _shown(name: str, value: float) -> str:
    return f"{value:{FORMS.get(name, '.4g')}}"
