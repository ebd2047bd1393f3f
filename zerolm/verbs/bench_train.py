"""``zerolm bench train``: architectures of a space, each trained the same way, as labels of your own."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final

from zerolm.progress import Progress, silent
from zerolm.settings import REQUIRED, parsed, shown
from zerolm.settings.compute import TrainedOn
from zerolm.settings.messages import plural
from zerolm.settings.request import Request, argument, part, setting
from zerolm.show.charts import Dots, Linked, Plot, axis
from zerolm.show.sheet import NOTEBOOK, PAGE, TERMINAL, Cell, Heading, Row, Sheet, pairs
from zerolm.show.text import sentence, show_amount, show_plain
from zerolm.text.defaults import text_field
from zerolm.training.request import DEPTH_RULES, check_one_batch
from zerolm.training.result import LabelledArchitecture, TrainedLabels
from zerolm.verbs.report import Report, run_of
from zerolm.verbs.shared import backend, budgets, field_read, limits, needing_torch

if TYPE_CHECKING:
    from zerolm.architecture import Architecture
    from zerolm.groundtruth.truth import GroundTruth
    from zerolm.spaces import SearchSpace
    from zerolm.training.labels import Label, LabelText
    from zerolm.training.request import TrainingRequest

LABEL_FILE: Final = "labels.json"
DRAWN: Final = 60
"""The number of architectures that are trained by default."""
TOKENS: Final = 3_000_000
FEW_TOKENS: Final = "Few tokens order architectures by how fast they learn; more may turn the order."
ONE_SEED: Final = " One seed each: how far another would change the order is not known."
BEST: Final = 20
"""The most architectures that a terminal shows."""


@dataclass(frozen=True, kw_only=True)
class TrainLabelsSettings(Request):
    """Return architectures of a space with the loss of each, all trained the same way on one text.

    Settings of the space are keywords as well (``hidden="64,96"``). Every finished architecture is kept in
    the cache, and is not trained again. Raises ``ValueError``, in one line, for what makes no sense, and
    ``TrainingFailed`` where fewer than two architectures could be trained.
    """

    name: ClassVar[str] = "bench train"
    owners = ("spaces",)
    examples = (
        (
            "zerolm bench train llama --count 60 --max-body-params 9M --text TEXT --out mine.json",
            "labels of one's own",
        ),
        ("zerolm calibrate --labels mine.json", "what they teach"),
        (
            "zerolm bench train llama --hidden 64:256:32 --text TEXT --seeds 3 --jobs 2 --out trained",
            "a smaller space, with the noise of seeds, two at a time, and a page",
        ),
    )
    notes = (
        "Every setting of the space is a flag too. A tokenizer of 2048 ids (or --vocab) is trained on the "
        "text. Finished architectures are cached: a killed run resumes, and a larger --count trains only "
        "the missing ones."
    )
    space: str | None = argument(
        "text", None, "space to sample architectures from; not with --rows", metavar="SPACE"
    )
    rows: str | None = setting(
        "path", None,
            "train the architectures of this benchmark file, or the pick, baseline and count-based pick of "
            "`search --out`, instead of sampling", group="Architectures",
    )  # fmt: skip
    count: int | None = setting(
        "integer", None, f"maximum architectures; default {DRAWN}, or all rows", low=2, high=1 << 20
    )
    sizes: Any = part(budgets(("max", "min"), costs=("params", "body_params")))
    text: str = setting(
        "path", REQUIRED, "training text: file, folder, or hub data set (owner/name)", group="Training",
        metavar="TEXT",
    )  # fmt: skip
    text_field: str | None = text_field()
    held_out: str | None = setting(
        "path", None, "text to evaluate on; default: the end of the training text", metavar="TEXT"
    )
    tokens: int | None = setting(
        "integer", None, f"training tokens per architecture; default {TOKENS:,}", low=1, high=1 << 50
    )
    tokens_per_param: float | None = setting(
        "number",
        None,
        "training tokens per parameter of the largest row, instead of --tokens",
        low=0,
        high=1e6,
    )
    batch: int = setting("integer", 8, "sequences per step", low=1, high=1 << 20)
    length: int = setting("integer", 256, "tokens per sequence", low=2, high=1 << 20)
    rate: float = setting(
        "number", 0.002, "learning rate at width 256; muP scales it to other widths", low=0, high=100
    )
    depth_rule: str = setting(
        "text", "none", "residual branches and rates by depth: over its root (sqrt, Depth-muP) or over it "
        "(linear, CompleteP), unchanged at 4 layers", choices=tuple(DEPTH_RULES),
    )  # fmt: skip
    compute: TrainedOn = part(TrainedOn)
    compile: bool = setting("flag", False, "torch.compile the layers first: half a minute per shape on a CPU")
    seed: int = setting("integer", 0, "seed of sampling, weights and data order", low=0, high=(1 << 30) - 1)
    seeds: int = setting(
        "integer", 1, "seeds for the repeated architectures", group="Noise", low=1, high=1000
    )
    repeated: int = setting("integer", 6, "architectures to repeat with all seeds", low=2, high=1 << 20)
    jobs: int = setting(
        "integer", 1, "architectures trained in parallel", group="How they run", low=1, high=1024
    )
    backend: Any = backend()
    out: str | None = setting(
        "path", None, "benchmark file to write (NAME.json), or a folder for it and a report",
        group="Result", by_place=True, metavar="FILE",
    )  # fmt: skip
    force: bool = setting("flag", False, "replace an earlier result")

    def run(self, progress: Progress = silent) -> LabelsReport:
        from zerolm.io.files import write_json
        from zerolm.io.folders import new_result

        truth = None if self.rows is None else _rows_of(Path(self.rows))
        space, settings = self._space(truth)
        with needing_torch("training runs networks", "train"), field_read(self.text_field, self.text):
            from zerolm.training.labels import LabelText
            from zerolm.training.processes import device_for
            from zerolm.training.trained_labels import trained_labels
        request = self._training(self._tokens(truth))
        device_for(request.execution)
        with new_result(self.out, self.force) as place:
            text = LabelText.of(self.text, space, settings, request, progress, self.held_out)
            named = self._architectures(truth, text.space)
            architectures = list(named.values())
            labels = self._labels(architectures, text, request, progress)
            title = Path(self.out if self.out and self.out.endswith(".json") else LABEL_FILE).stem
            trained = trained_labels(title, text, request, architectures, labels, list(named))
            report = LabelsReport(**vars(trained), run=run_of(self, **settings, space=space))
            if place is not None and place.suffix == ".json":
                write_json(place, report.benchmark)
            elif place is not None:
                report.write_into(place)
        return report

    def _space(self, truth: GroundTruth | None) -> tuple[str, dict[str, Any]]:
        """Return the space that is meant and its settings; ``ValueError`` where it is not clear."""
        from zerolm.groundtruth.reader import views
        from zerolm.spaces import SPACES

        name = self.space or (truth.space if truth else None)
        if name is None:
            raise ValueError("no space is named; `zerolm spaces` lists them")
        settings = parsed(f"space {name!r}", SPACES[name].declared, self.further)
        if truth is None:
            return name, settings
        if truth.space != name:
            raise ValueError(f"the rows in {self.rows!r} are of space {truth.space!r}, not of {name!r}")
        for budget in limits(self.sizes):
            raise ValueError(f"{budget} is for sampled architectures; the rows name theirs: leave it out")
        return name, {**views(truth)[0].settings, **settings}

    def _tokens(self, truth: GroundTruth | None) -> int:
        """Return the tokens to train on; ``ValueError`` where they are given twice, or not at all."""
        from zerolm.costs import CostModel
        from zerolm.groundtruth.reader import views

        if self.tokens_per_param is None:
            return self.tokens or TOKENS
        if self.tokens is not None:
            raise ValueError(
                "--tokens and --tokens-per-param both specify how long to train: give one of them"
            )
        if truth is None:
            raise ValueError("tokens_per_param goes by the largest of the rows: give --rows, or tokens")
        largest = max(CostModel().of(one)["params"] for one in views(truth)[0].architectures)
        return max(1, round(self.tokens_per_param * largest))

    def _training(self, tokens: int) -> TrainingRequest:
        from zerolm.training.request import Execution, Schedule, TrainingRequest

        check_one_batch(tokens, self.batch, self.length)
        return TrainingRequest(
            tokens,
            self.batch,
            self.length,
            Schedule(self.rate),
            seed=self.seed,
            execution=Execution(self.compute, compile=self.compile),
            checkpoints=8,
            measured=4,
            depth_rule=self.depth_rule,
        )

    def _architectures(self, truth: GroundTruth | None, space: SearchSpace) -> dict[str, Architecture]:
        """Return the architectures to train by their names, each once."""
        from zerolm.groundtruth.truth import thinned
        from zerolm.solvers.sampling import drawn

        if truth is None:
            some = drawn(space, self.count or DRAWN, self.seed, budgets=limits(self.sizes), distinct=True)
            return {str(number): one for number, one in enumerate(some, 1)}
        distinct: dict[str, tuple[list[str], Architecture]] = {}
        for entry in thinned(truth, self.count).architectures:
            one = space.read(entry.architecture)
            distinct.setdefault(one.identity, ([], one))[0].append(entry.id)
        if len(distinct) < 2:
            ((_, only),) = distinct.values()
            raise ValueError(f"the rows in {self.rows!r} are all the same architecture {shown(only.choices)}")
        chosen_by = truth.source.get("made_by") == SEARCHED
        return {
            " = ".join(names) if chosen_by else str(number): one
            for number, (names, one) in enumerate(distinct.values(), 1)
        }

    def _labels(
        self,
        architectures: Sequence[Architecture],
        text: LabelText,
        request: TrainingRequest,
        progress: Progress,
    ) -> list[list[Label]]:
        """Return the labels of each architecture: that of the first seed, then those of further ones."""
        from zerolm.training.labels import train_all

        count = len(architectures)
        again = spread(count, self.repeated) if self.seeds > 1 else []
        runs = [(i, 0) for i in range(count)]
        runs += [(i, further) for further in range(1, self.seeds) for i in again]
        labels = train_all(
            [(architectures[i], self.seed + further, f"architecture {i + 1}") for i, further in runs],
            text,
            request,
            jobs=self.jobs,
            backend=self.backend,
            progress=progress,
        )
        by_run = list(zip(runs, labels, strict=True))
        return [[label for (place, _), label in by_run if place == i] for i in range(count)]


SEARCHED: Final = "zerolm search"


def _rows_of(path: Path) -> GroundTruth:
    """Return the architectures of a benchmark file, or those that a search compared."""
    from zerolm.groundtruth.reader import read
    from zerolm.groundtruth.truth import check
    from zerolm.verbs.search_report import COUNTING, searched

    if not path.is_dir():
        return read(path)
    report = searched(path)
    choices = {"pick": report.pick}
    choices |= {report.baseline.name: report.baseline.choice} if report.baseline else {}
    choices |= {f"by {one.name}": one.choice for one in report.baselines if one.name in COUNTING}
    return check(
        {
            "name": path.name,
            "space": report.space.name,
            "settings": report.space.settings,
            "metric": None,
            "higher_is_better": None,
            "source": {"made_by": SEARCHED},
            "architectures": [
                {"id": name, "architecture": choice.architecture.choices, "results": {}}
                for name, choice in choices.items()
            ],
        }
    )


def spread(total: int, count: int) -> list[int]:
    """Return at most ``count`` of the places 0 to ``total`` - 1, evenly."""
    return [place * total // count for place in range(count)] if count < total else list(range(total))


@dataclass(frozen=True, repr=False, eq=False)
class LabelsReport(TrainedLabels, Report):
    """Architectures that were trained the same way, with the loss of each, and how they are shown."""

    command: ClassVar[str] = "bench train"
    rows_field: ClassVar[str] = "architectures"

    @property
    def remarks(self) -> list[str]:
        left_out = [f"left out: architecture {one.id}: {one.reason}" for one in self.left_out]
        uniform = math.log(self.benchmark["source"]["vocabulary"])
        worse = sum(one.loss > uniform for one in self.architectures)
        if not worse:
            return left_out
        count = plural(len(self.architectures), "architecture")
        return [
            *left_out,
            f"{worse} of {count} end above {uniform:.4f}, the loss of a uniform prediction: give a smaller "
            "--rate, or more --tokens",
        ]

    @property
    def written(self) -> list[str]:
        return [f"labels of {plural(len(self.architectures), 'architecture')}"]

    @property
    def ordered(self) -> list[LabelledArchitecture]:
        """Return the architectures, the lowest loss first."""
        return sorted(self.architectures, key=lambda one: (one.loss, one.id))

    @property
    def title(self) -> str:
        tokens = self.benchmark["source"]["tokens"]
        return f"{len(self.architectures)} architectures of {self.benchmark['space']}, {tokens:,} tokens each"

    def lines(self) -> list[str]:
        noise, agreement = self.noise, {name: tau for name, tau in self.agreement.items() if tau is not None}
        taus = ", ".join(f"{name.replace('_', ' ')} {tau:.3f}" for name, tau in agreement.items())
        ends = {"best": self.ordered[0], "worst": self.ordered[-1]}
        lines = [self.title, *(f"{end}: {one.shape}: loss {one.loss:.4f}" for end, one in ends.items())]
        lines += [f"tau-b with the losses: {taus}"] if taus else []
        if noise:
            runs = f"{noise.runs} runs of {noise.networks}"
            lines.append(f"noise: deviation {noise.deviation:.4f}, ceiling of tau-b {noise.tau:.3f} ({runs})")
        return lines

    def heading(self) -> Heading:
        task = self.benchmark["task"]
        return Heading(
            self.title,
            f"Trained the same way from scratch: {task}, loss on text held out.",
            " ".join(map(sentence, self.lines()[1:])),
            trust=f"{FEW_TOKENS}{ONE_SEED if self.noise is None else ''}",
        )

    def sheets(self) -> list[Sheet]:
        reasons = [(f"architecture {one.id}", one.reason) for one in self.left_out]
        return [
            Sheet("Loss against size", charts=[self._scatter()], on=(PAGE, NOTEBOOK)),
            self._table(len(self.architectures), (PAGE,)),
            self._table(BEST, (TERMINAL, NOTEBOOK)),
            *([pairs("Left out", reasons, on=(PAGE,))] if reasons else []),
            pairs("How they were trained", self._making(), on=(PAGE,)),
        ]

    def _scatter(self) -> Linked:
        ordered, name = self.ordered, "loss on text held out, nats a token"
        points = [(float(one.body_params), one.loss) for one in ordered]
        others = [(float(one.body_params), loss) for one in ordered for loss in one.repeats]
        plot = Plot(
            f"{name} against size",
            axis([x for x, _ in points], "parameters without embeddings and head"),
            axis([y for _, y in points + others], name),
            [*([Dots(others, "grey")] if others else []), Dots(points, "blue")],
            [("dot", "blue", "first seed"), *([("dot", "grey", "other seeds")] if others else [])],
            points=points,
            columns=[("loss", [f"{y:.4f}" for _, y in points])],
        )
        sizes = [f"{one.body_params:,}" for one in ordered]
        return Linked([plot], [one.shape for one in ordered], "Architectures", [("body parameters", sizes)])

    def _table(self, most: int, where: tuple[str, ...]) -> Sheet:
        rows: list[Row] = [
            [
                one.shape,
                show_amount(one.params),
                show_amount(one.body_params),
                Cell(f"{one.loss:.4f}", note=", ".join(f"{loss:.4f}" for loss in one.repeats)),
                f"{one.seconds:.0f}",
            ]
            for one in self.ordered
        ]
        head = ["architecture", "parameters", "body", "loss (other seeds)", "seconds"]
        more = [f"and {len(rows) - most} more"] if len(rows) > most else []
        return Sheet("All architectures", head, rows[:most], more, kind="labels", on=where)

    def _making(self) -> list[tuple[str, str]]:
        source = self.benchmark["source"]
        plain = {name: value for name, value in source.items() if isinstance(value, str | int | float)}
        text = {"text": self.run.configuration["text"]} if "text" in self.run.configuration else {}
        return [(name.replace("_", " "), show_plain(value)) for name, value in {**text, **plain}.items()]

    def rows(self) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = self.to_json()["rows"]
        return [{name: value for name, value in row.items() if name != "repeats"} for row in rows]

    def write_more(self, folder: Path) -> None:
        """Write what ``--labels`` of ``calibrate`` and ``search``, and ``bench run``, read."""
        from zerolm.io.files import write_json

        write_json(folder / LABEL_FILE, self.benchmark)
