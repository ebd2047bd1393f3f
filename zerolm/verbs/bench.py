"""``zerolm bench run``: every score on trained architectures, and ``bench ls``: which there are at hand."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from zerolm.progress import Progress, silent
from zerolm.settings.request import Request, part
from zerolm.show.sheet import Cell, Row, Sheet
from zerolm.verbs.report import Listing, run_of
from zerolm.verbs.shared import Benchmarks, data

if TYPE_CHECKING:
    from zerolm.comparison.bench import More
    from zerolm.comparison.results import Comparison
    from zerolm.verbs.bench_report import BenchReport


@dataclass(frozen=True, kw_only=True)
class BenchSettings(Request):
    """Return how well every score ranks trained architectures, and whether better than counting parameters.

    ``names`` are benchmarks of the data folders or of the package, or files. Options of scores are keywords,
    too: one value or a list (``alpha=[0.5, 1.1]``).
    Raises ``ValueError`` for what makes no sense, and for a benchmark that cannot be compared; with ``all``
    it is left out.
    """

    name: ClassVar[str] = "bench run"
    examples: ClassVar[tuple[tuple[str, str], ...]] = (
        ("zerolm bench run gpt2_wt103", "200 language models, which come with zerolm"),
        ("zerolm bench run --all --out comparison", "all at hand, with a page and tables"),
        ("zerolm bench run labels.csv --alpha 0.5 --alpha 1.1", "your own trained models"),
    )
    notes = (
        "Each score is compared with the parameter count by tau-b with the trained results, with bootstrap "
        "intervals. *pairs* is the share of equal-sized pairs ordered correctly. Every option of a score "
        "is a flag too and may be repeated."
    )
    owners = ("scores",)
    is_repeated = True
    benchmarks: Benchmarks = part(Benchmarks)

    def run(self, progress: Progress = silent) -> BenchReport:
        from zerolm.verbs.bench_report import BenchReport

        comparison, problems, repeatable = self.compared(progress)
        return BenchReport(comparison, problems, run=run_of(self, **repeatable))

    def compared(
        self, progress: Progress, more: More | None = None
    ) -> tuple[Comparison, tuple[str, ...], dict[str, Any]]:
        """Return the comparison, its problems, and the settings that repeat it; ``more`` adds scores."""
        from zerolm.comparison.bench import bench
        from zerolm.scores import all_variants
        from zerolm.scores.base import score_options

        options = score_options(self.further)
        names, repeatable = self.benchmarks.chosen()
        problems: list[str] = []
        comparison = bench(
            names,
            data=self.benchmarks.data,
            metric=self.benchmarks.metric,
            options=options,
            more=more or (lambda *_: {}),
            unusable=self.benchmarks.noting(problems),
            progress=progress,
        )
        problems += [f"{name} is left out: {reason}" for name, reason in all_variants(options)[1].items()]
        return comparison, tuple(problems), {**repeatable, **options}


@dataclass(frozen=True, kw_only=True)
class BenchListSettings(Request):
    """Return the benchmarks at hand: in the folders of ZEROLM_DATA, in the cache, and in the package.

    With ``data`` those of these folders alone. Raises ``ValueError`` where one is no folder.
    """

    name: ClassVar[str] = "bench ls"
    examples = (
        ("zerolm bench ls", "those of ZEROLM_DATA, of the cache, and of zerolm"),
        ("zerolm bench ls --data mine", "one folder alone"),
    )
    notes = (
        "A benchmark is a JSON or CSV file of trained architectures with results. Ten come with zerolm; a "
        "file of the same name in a ZEROLM_DATA folder or in the cache's folder benchmarks takes "
        "precedence."
    )
    writes_no_result = True
    takes_progress = False
    data: str | None = data(group="Benchmarks")

    def run(self, progress: Progress = silent) -> BenchmarksReport:
        from zerolm.groundtruth.reader import listing

        return BenchmarksReport([asdict(benchmark) for benchmark in listing(self.data)])


@dataclass(frozen=True, repr=False, eq=False)
class BenchmarksReport(Listing):
    """The benchmarks at hand."""

    things: ClassVar[str] = "benchmarks"

    def sheets(self) -> list[Sheet]:
        from zerolm.groundtruth.cache import SHIPPED

        rows: list[Row] = []
        for one in self.entries:
            if one["problem"]:
                rows.append([one["name"], "-", "-", "-", one["problem"]])
                continue
            is_shipped = Path(one["path"]).parent == SHIPPED
            where = one["source"] if is_shipped and one["source"] else one["path"]
            facts = [one["space"] or "-", str(one["count"]), one["licence"] or "-"]
            rows.append([one["name"], *facts, f"{', '.join(one['metrics'])}; {where}"])
        head: Row = ["benchmark", "space", "results", "licence", Cell("metrics; where from", "shape")]
        return [Sheet("Benchmarks", head, rows)]
