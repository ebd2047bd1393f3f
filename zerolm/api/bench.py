"""``zerolm.bench``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self

from zerolm.api.benchmark_names import benchmarks, left_out
from zerolm.api.comparison_files import FILES, by_truth, read_tables, write_tables
from zerolm.api.configuration import absolute
from zerolm.api.documented import documented
from zerolm.api.extras import needing_torch
from zerolm.api.options import score_options
from zerolm.api.report import Report
from zerolm.commands.bench import BENCH
from zerolm.comparison.ablate import ablated
from zerolm.comparison.ablation import Ablation
from zerolm.comparison.bench import More
from zerolm.comparison.bench import bench as compare
from zerolm.comparison.results import Comparison, Section
from zerolm.comparison.subjects import Subject
from zerolm.groundtruth.reader import views
from zerolm.progress import Progress, silent
from zerolm.report.comparison import comparison_fragment, comparison_page
from zerolm.report.facts import tokens_of
from zerolm.report.rows import label_free, row_of
from zerolm.scores import all_variants

if TYPE_CHECKING:
    from zerolm.proxies.job import Measured


@dataclass(frozen=True, repr=False, eq=False)
class BenchReport(Report):
    """How well scores rank trained architectures, on each benchmark in each view.

    ``problems`` say which benchmarks and scores are left out, and why.
    """

    comparison: Comparison
    problems: tuple[str, ...] = ()
    configuration: Mapping[str, Any] = field(default_factory=dict)
    progress: Progress = silent
    command: ClassVar[str] = BENCH.name

    @property
    def sections(self) -> list[Section]:
        """The benchmarks, each in each of its views, with the rows of its scores."""
        return self.comparison.sections

    @cached_property
    def ablation(self) -> Ablation:
        """Return the ablation of the same benchmarks; it is computed when it is first asked for."""
        firsts = [sections[0] for sections in by_truth(self.comparison)]
        subjects = [Subject(one.truth, one.metric, one.result, views(one.truth)) for one in firsts]
        return ablated(subjects, progress=self.progress)

    def to_json(self) -> dict[str, Any]:
        return self.comparison.to_json()

    def lines(self) -> list[str]:
        return [_line(section) for section in self.sections]

    def rows(self) -> list[dict[str, Any]]:
        return [row.to_json() for row in self.comparison.rows]

    @property
    def remarks(self) -> list[str]:
        absent = [
            f"{section.title}: {name} is left out: {reason}"
            for section in self.sections
            for name, reason in section.left_out.items()
        ]
        return [*self.problems, *absent]

    def page(self) -> str:
        return comparison_page(self.comparison, self.ablation, self.run_yaml)

    def fragment(self) -> str:
        return comparison_fragment(self.comparison)

    @property
    def written(self) -> list[str]:
        return [*super().written, *FILES]

    def write_more(self, folder: Path) -> None:
        """Write the tables as CSV, and the benchmarks."""
        write_tables(self.comparison, folder)

    @classmethod
    def from_folder(cls, folder: Path, document: dict[str, Any], configuration: dict[str, Any]) -> Self:
        return cls(read_tables(document, folder), configuration=configuration)


@documented(BENCH)
def bench(
    names: str | PathLike[str] | Sequence[str | PathLike[str]] | None = None,
    *,
    all: bool = False,
    data: str | PathLike[str] | None = None,
    metric: str | None = None,
    proxies: str | Sequence[str] | None = None,
    text: str | PathLike[str] | None = None,
    jobs: int | None = None,
    store: str | PathLike[str] | None = None,
    progress: Progress = silent,
    **options: Any,
) -> BenchReport:
    """Return how well every score ranks trained architectures, and whether better than counting parameters.

    ``names`` are benchmarks of the data folders or of the package, or files; with ``proxies`` networks are
    built, and these stand beside the scores. ``options`` are those of scores, one value or a list
    (``alpha=[0.5, 1.1]``).
    Raises ``ValueError`` for what makes no sense, and for a benchmark that cannot be compared; with ``all``
    it is left out.
    """
    own = BENCH.values({name: v for name, v in locals().items() if name not in ("options", "progress")})
    asked = score_options(options)
    chosen, ran = benchmarks(own)
    problems: list[str] = []
    measured: list[Measured] = []
    comparison = compare(
        chosen,
        data=own["data"],
        metric=own["metric"],
        options=asked,
        more=_beside(own, measured, progress),
        unusable=left_out(problems, own["all"]),
        progress=progress,
    )
    if measured:
        pairs = zip(comparison.sections, measured, strict=True)
        sections = [replace(one, left_out={**one.left_out, **run.left_out}) for one, run in pairs]
        comparison = Comparison(sections, tokens_of(measured[0].source))
    problems += [f"{name} is left out: {reason}" for name, reason in all_variants(asked)[1].items()]
    ran |= {"text": _text(own["text"]), "store": absolute(own["store"])}
    return BenchReport(comparison, tuple(problems), own | ran | asked, progress)


def _beside(own: Mapping[str, Any], measured: list[Measured], progress: Progress) -> More:
    """Return the proxies beside the scores, none unless they are named; results go to ``measured``."""
    if own["proxies"] is None:
        for name in ("text", "jobs", "store"):
            if own[name] is not None:
                raise ValueError(f"{name} is of networks that are built: name proxies too")
        return lambda *_: {}
    with needing_torch():
        from zerolm.proxies.measure import Request, measuring
    store = Path(own["store"]) if own["store"] is not None else None
    request = Request(own["proxies"], own["text"] or "random", jobs=own["jobs"] or 1, store=store)
    return measuring(request, measured, progress)


def _text(text: str | None) -> str | None:
    return text if text == "random" else absolute(text)


def _line(section: Section) -> str:
    """Return a benchmark in one line: the best score that saw no labels beside counting."""
    start = f"{section.title}: {section.metric}, {len(section.result)} architectures"
    best, body = next(iter(label_free(section)), None), row_of(section, "body_params")
    told = [row for row in (best, body) if row is not None and row.tau is not None]
    return "; ".join([start, *(f"{row.label} tau-b {row.tau:.3f}" for row in told)])
