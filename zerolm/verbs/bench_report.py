"""The result of ``zerolm bench run``: how well scores rank trained architectures."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Self

from zerolm.calibration.pool import doubt_of_direction
from zerolm.comparison.document import from_document
from zerolm.comparison.results import Comparison, Section, label_free, row_of
from zerolm.show.sheet import NOTEBOOK, PAGE, Heading, Sheet
from zerolm.show.text import sentence, show_number
from zerolm.verbs.comparison_charts import unit
from zerolm.verbs.comparison_sheets import (
    FILES,
    UNSEEN,
    against_sheet,
    meanings,
    overview,
    section_sheet,
    write_tables,
)
from zerolm.verbs.report import Report


@dataclass(frozen=True, repr=False, eq=False)
class BenchReport(Report):
    """How well scores rank trained architectures, on each benchmark in each view.

    ``problems`` say which benchmarks and scores are left out, and why.
    """

    command: ClassVar[str] = "bench run"
    comparison: Comparison
    problems: tuple[str, ...] = ()

    @property
    def sections(self) -> list[Section]:
        return self.comparison.sections

    def to_json(self) -> dict[str, Any]:
        return self.comparison.to_json()

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> Self:
        return cls(from_document(document))

    def lines(self) -> list[str]:
        return [*map(_line, self.sections), *filter(None, [sentence(self.comparison.note)])]

    @property
    def remarks(self) -> list[str]:
        absent = [
            f"{section.title}: {name} is left out: {reason}"
            for section in self.sections
            for name, reason in section.left_out.items()
        ]
        return [*self.problems, *absent, *filter(None, map(_reversed, self.sections))]

    def heading(self) -> Heading:
        counts = {section.truth.name: len(section.result) for section in self.sections}
        names = f"{len(counts)} benchmarks" if len(counts) > 1 else next(iter(counts), "nothing")
        count = len(self.sections)
        views = f"{count} view{'s' * (count > 1)} of {len(counts)} benchmark{'s' * (len(counts) > 1)}"
        return Heading(
            f"Do scores rank {names} better than counting parameters?",
            f"{sum(counts.values())} trained architectures, {views}.",
            self.finding(),
            trust=UNSEEN,
        )

    def sheets(self) -> list[Sheet]:
        is_alone = len(self.sections) == 1
        return [
            overview(self.comparison, (PAGE,) if is_alone else (PAGE, NOTEBOOK)),
            *([] if is_alone else [against_sheet(self.comparison)]),
            *(
                section_sheet(section, number, on=(NOTEBOOK,) if is_alone else ())
                for number, section in enumerate(self.sections, 1)
            ),
            meanings(),
        ]

    def rows(self) -> list[dict[str, Any]]:
        return [row.to_json() for row in self.comparison.rows]

    @property
    def written(self) -> list[str]:
        return [*super().written, *FILES]

    def write_more(self, folder: Path) -> None:
        write_tables(self.comparison, folder)


def _line(section: Section) -> str:
    """Return a benchmark in one line: the best score that saw no labels, and counting."""
    start = f"{section.title}: {unit(section)}, {len(section.result)} architectures"
    best, body = next(iter(label_free(section)), None), row_of(section, "body_params")
    rows = [row for row in (best, body) if row is not None and row.tau is not None]
    return "; ".join([start, *(f"{row.label} tau-b {show_number(row.tau)}" for row in rows)])


def _reversed(section: Section) -> str:
    """Return a warning where larger networks have the worse results: the direction may be wrong."""
    sizes = [row for name in ("params", "body_params") if (row := row_of(section, name)) is not None]
    if not sizes or any(row.tau_high is None or row.tau_high >= 0 for row in sizes):
        return ""
    is_higher_better = section.truth.is_higher_better(section.metric)
    doubt = doubt_of_direction(section.metric, higher_is_better=is_higher_better)
    return f"warning: {section.title}: {doubt}"
