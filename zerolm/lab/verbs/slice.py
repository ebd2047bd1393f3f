"""``zerolm lab slice``: sub-networks of one trained parent, each judged: labels that need no training."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Final, Self

from zerolm.lab.subnets.request import CutRequest, DrawRequest, JudgingRequest, Slices
from zerolm.progress import Progress, silent
from zerolm.settings import REQUIRED
from zerolm.settings.compute import RunningRequest
from zerolm.settings.request import Request, argument, part, setting
from zerolm.show.charts import Dots, Linked, Plot, axis
from zerolm.show.sheet import NOTEBOOK, PAGE, TERMINAL, Heading, Row, Sheet, pairs
from zerolm.show.text import sentence, show_amount, show_plain
from zerolm.verbs.bench_train import LABEL_FILE
from zerolm.verbs.report import Report, run_of
from zerolm.verbs.shared import backend, field_read, like, needing_torch, read_like

SHOWN: Final = 20
"""The most sub-networks that a terminal shows."""
TEXTS: Final = ("text", "data", "attacked", "calibration")
"""Settings that name what sub-networks are evaluated on, and calibrated."""


@dataclass(frozen=True, kw_only=True)
class SliceSettings(Request):
    """Return sub-networks of one trained parent, drawn within budgets, with what each reached.

    They are cut in memory and not trained. Raises ``ValueError``, in one line, for what makes no sense.
    """

    name: ClassVar[str] = "lab slice"
    examples = (
        (
            "zerolm lab slice PARENT --count 20 --max-macs 0.9x --text TEXT --out subnets.json",
            "labels in minutes, from one trained model",
        ),
        ("zerolm bench run subnets.json --metric kl", "what scores say of them"),
        (
            "zerolm lab slice CLASSIFIER --data ROWS.csv --attacked ATTACKED.csv --out classes.json",
            "a classifier, on clean texts and on attacked ones",
        ),
    )
    notes = (
        "Results: perplexity, bits_a_byte and kl on a text (distance for encoders); accuracy on labelled "
        "rows; accuracy_under_attack, attack_success_rate and accuracy_drop on attacked ones. --metric of "
        "`bench run`, `proxies`, `calibrate` and `search` selects one. A killed run resumes."
    )
    parent: str = argument("path", REQUIRED, "checkpoint folder or hub model (owner/name)", metavar="PARENT")
    like: str | None = like()
    draw: DrawRequest = part(DrawRequest, group="Which sub-networks")
    cutting: CutRequest = part(CutRequest, group="How they are cut")
    judging: JudgingRequest = part(JudgingRequest, group="What judges them")
    running: RunningRequest = part(RunningRequest, group="How they run")
    jobs: int = setting("integer", 1, "parallel processes", low=1, high=1024)
    backend: Any = backend()
    out: str | None = setting(
        "path", None, "benchmark file to write (NAME.json), or a folder for it and a report",
        group="Result", by_place=True, metavar="FILE",
    )  # fmt: skip
    force: bool = setting("flag", False, "replace an earlier result")

    def run(self, progress: Progress = silent) -> SlicesReport:
        from zerolm.checkpoints.folder import check_named
        from zerolm.io.files import write_json
        from zerolm.io.folders import new_result

        self.judging.check()
        check_named(self.parent)
        of_texts = field_read(self.judging.text_field, self.judging.text, self.cutting.calibration)
        how: Any = {"running": self.running, "jobs": self.jobs, "backend": self.backend}
        requests = (self.draw, self.cutting, self.judging)
        torch_there = needing_torch("judging runs networks")
        with of_texts, new_result(self.out, self.force) as place, read_like(self.like), torch_there:
            from zerolm.lab.subnets.judged import slices_of
            from zerolm.lab.subnets.slicing import slice_parent

            sliced = slice_parent(self.parent, *requests, progress=progress, **how)
            is_file = place is not None and place.suffix == ".json"
            title = Path(self.out if self.out and is_file else LABEL_FILE).stem
            report = SlicesReport(**vars(slices_of(title, sliced, *requests)), run=run_of(self))
            if place is not None and is_file:
                write_json(place, report.benchmark)
            elif place is not None:
                report.write_into(place)
        return report


@dataclass(frozen=True, repr=False, eq=False)
class SlicesReport(Slices, Report):
    """Sub-networks of one parent with their results, and how they are shown."""

    command: ClassVar[str] = "lab slice"
    rows_field: ClassVar[str] = "networks"

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> Self:
        from zerolm.groundtruth.truth import check

        report = super().from_json(document)
        check(report.benchmark)
        if not report.networks or report.metrics != list(report.networks[0].results):
            raise ValueError("rows: they do not have the results of the parent")
        return report

    @property
    def metrics(self) -> list[str]:
        """Return the names of the results."""
        return list(self.parent)

    @property
    def remarks(self) -> list[str]:
        return [f"left out: sub-network {one.id}: {one.reason}" for one in self.left_out]

    @property
    def written(self) -> list[str]:
        return [f"results of {len(self.networks)} sub-networks"]

    @property
    def title(self) -> str:
        """Return the number of sub-networks, and their parent."""
        source = self.benchmark["source"]
        return f"{len(self.networks)} sub-networks of {source['parent']}, cut by {source['criterion']}"

    def lines(self) -> list[str]:
        agree = {name: f"; tau-b of {words}" if words else "" for name, words in self._taus.items()}
        return [self.title, *(f"{name}: {self._range(name)}{agree[name]}" for name in self.metrics)]

    def _range(self, metric: str) -> str:
        """Return the range of a result, and the parent's."""
        values = [one.results[metric] for one in self.networks]
        return f"{min(values):.4g} to {max(values):.4g} (parent {self.parent[metric]:.4g})"

    @property
    def _taus(self) -> dict[str, str]:
        """Return how scores agree with each result; an empty text where none is defined."""
        return {
            metric: ", ".join(f"{name} {tau:.3f}" for name, tau in taus.items() if tau is not None)
            for metric, taus in self.agreement.items()
        }

    def heading(self) -> Heading:
        source, taus = self.benchmark["source"], self._taus
        took = "" if self.seconds is None else f" One took {self.seconds:.2g} s."
        return Heading(
            self.title,
            f"Cut in memory out of one trained model, repair {source['repair']}; nothing was trained.{took}",
            " ".join(sentence(f"{name}: {self._range(name)}") for name in self.metrics),
            " ".join(f"Tau-b with {name}: {words}." for name, words in taus.items() if words),
            "They measure one parent after cuts, not what networks of these shapes learn.",
        )

    def sheets(self) -> list[Sheet]:
        texts = {name: self.run.configuration.get(name) for name in TEXTS}
        facts = {name: text for name, text in texts.items() if text is not None} | self.benchmark["source"]
        making = [(name.replace("_", " "), show_plain(value)) for name, value in facts.items()]
        shapes = [one.shape for one in self.networks]
        sizes = [("body parameters", [f"{one.body_params:,}" for one in self.networks])]
        plots = Linked([self._plot(metric) for metric in self.metrics], shapes, "Sub-networks", sizes)
        return [
            Sheet("Results against size", charts=[plots], on=(PAGE, NOTEBOOK)),
            self._table(len(self.networks), (PAGE,)),
            self._table(SHOWN, (TERMINAL, NOTEBOOK)),
            pairs("How they came about", making, on=(PAGE,)),
        ]

    def _plot(self, metric: str) -> Plot:
        points = [(float(one.body_params), one.results[metric]) for one in self.networks]
        sizes, results = zip(*points, strict=True)
        x, y = axis(sizes, "parameters without embeddings and head"), axis(results, metric)
        marks, legend = [Dots(points, "blue")], [("dot", "blue", "sub-network")]
        columns = [(metric, [f"{result:.4g}" for result in results])]
        return Plot(f"{metric} against size", x, y, marks, legend, points=points, columns=columns)

    def _table(self, most: int, where: tuple[str, ...]) -> Sheet:
        """Return the sub-networks in the order of the first result, the best first."""
        sign = -1.0 if self.benchmark["higher_is_better"] else 1.0
        ordered = sorted(self.networks, key=lambda one: (sign * one.results[self.metrics[0]], one.id))
        rows: list[Row] = []
        for one in ordered[:most]:
            results = (f"{one.results[name]:.4g}" for name in self.metrics)
            rows.append([one.shape, show_amount(one.body_params), show_amount(one.macs), *results])
        more = [f"and {len(ordered) - most} more"] if len(ordered) > most else []
        head = ["sub-network", "body", "MACs", *self.metrics]
        return Sheet("All sub-networks", head, rows, more, kind="slices", on=where)

    def rows(self) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = self.to_json()["rows"]
        return [{**row, **row.pop("results")} for row in rows]

    def write_more(self, folder: Path) -> None:
        """Write what ``--labels`` of ``calibrate`` and ``search``, and ``bench run``, read."""
        from zerolm.io.files import write_json

        write_json(folder / LABEL_FILE, self.benchmark)
