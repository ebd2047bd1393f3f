"""The result of ``zerolm search``: the pick, what counting would pick, how far that is proven."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any, ClassVar, Final

from zerolm.cost_columns import cost_label
from zerolm.io.files import write_json
from zerolm.show.sheet import NOTEBOOK, PAGE, TERMINAL, Heading, Sheet
from zerolm.show.text import sentence, show_cost
from zerolm.solvers.result import Choice, SearchResult
from zerolm.spaces import SearchSpace, shape_text
from zerolm.spaces.document import to_document
from zerolm.verbs import search_tables as tables
from zerolm.verbs import search_words as words
from zerolm.verbs.report import Report
from zerolm.verbs.search_charts import FLAT, candidacies, front, identity, landscape
from zerolm.verbs.shape_words import SCORE, ridge, shape_lines, shape_warnings
from zerolm.verbs.training_words import training_lines, training_sheet

REMARKS: Final = (words.latency_lines, words.expectation_lines, training_lines, shape_lines)
"""Lines about the pick beneath its costs."""


@dataclass(frozen=True, repr=False, eq=False)
class SearchReport(SearchResult, Report):
    """The best architectures within the budgets, and how far that is proven."""

    command: ClassVar[str] = "search"

    @property
    def remarks(self) -> list[str]:
        return [f"warning: {warning}" for warning in self._warnings()]

    def _warnings(self) -> Sequence[str]:
        warnings: Sequence[str] = (self.calibration or {}).get("warnings", ())
        return [*warnings, *shape_warnings(self)]

    @property
    def written(self) -> list[str]:
        stock = self.space.config(self.pick.architecture) is not None
        kind = "config.json" if stock else f"architecture.json ({self.space.unstocked()})"
        return [*super().written, f"pick/{kind} and the best {len(self.best)}"]

    def write_more(self, folder: Path) -> None:
        """Write a folder with the configuration of each architecture."""
        choices = {"pick": self.pick} | {f"{i:02}": choice for i, choice in enumerate(self.best, 1)}
        for name, choice in choices.items():
            write_architecture(self.space, choice, folder / name)

    def rows(self) -> list[dict[str, Any]]:
        return [_row(choice) for choice in self.best]

    def lines(self) -> list[str]:
        pick = self.pick
        costs = ", ".join(
            f"{cost_label(cost)} {show_cost(cost, pick.costs[cost])}" for cost in self.cost_names
        )
        remarks = chain(*(lines(self) for lines in REMARKS))
        comparisons = (words.baseline_sentence(self), words.vocabularies_sentence(self))
        return [
            f"pick: {shape_text(pick.architecture)}",
            f"      {costs}",
            *(f"      {line}" for line in remarks),
            *filter(None, comparisons),
            words.certificate_sentence(self),
        ]

    def heading(self) -> Heading:
        warnings = (f"warning: {warning}" for warning in self._warnings())
        remarks = [*chain(*(lines(self) for lines in REMARKS)), *warnings]
        comparisons = (words.baseline_sentence, words.vocabularies_sentence, words.against_counting)
        return Heading(
            f"The pick: {shape_text(self.pick.architecture)}",
            words.question(self),
            " ".join([words.costs(self), words.reason(self), *map(sentence, remarks)]),
            " ".join(filter(None, (compare(self) for compare in comparisons))),
            f"{words.certificate_sentence(self)} {words.caution(self)}",
        )

    def sheets(self) -> list[Sheet]:
        entries = candidacies(self)
        places = {identity(entry.choice): place for place, entry in enumerate(entries)}
        charted = f"Score against {cost_label(self.front.cost)}"
        flatness = words.flatness_note(self, FLAT)
        counting = [words.against_counting(self)] if self.baselines else []
        return [
            Sheet(sentences=[*counting, words.ties(self)], on=(TERMINAL,)),
            tables.in_short(self),
            Sheet(
                charted, charts=[front(self, entries)], notes=[words.front_note(self)], on=(PAGE, NOTEBOOK)
            ),
            Sheet("How flat the optimum is", charts=[landscape(self)], notes=[flatness], on=(PAGE,)),
            *([ridge(self)] if self.question.score == SCORE else []),
            *([training_sheet(self, self.question.training)] if self.question.training else []),
            tables.best(self, places),
            *([tables.beside(self, self.baseline, places)] if self.baseline else []),
            *([tables.by_vocabulary(self)] if self.vocabularies else []),
            *([tables.by_baseline(self, places)] if self.baselines else []),
            tables.bounds(self),
            *([tables.latencies(self.latency)] if self.latency else []),
            Sheet("What this score cannot see", sentences=[words.blindness(self)], on=(PAGE,)),
        ]


def searched(folder: Path) -> SearchReport:
    """Return the result that ``search --out`` wrote into a folder; ``ValueError`` where it holds no result of
    search."""
    from zerolm.verbs.load import load

    report = load(folder)
    if not isinstance(report, SearchReport):
        raise ValueError(f"{str(folder)!r} holds no result of search, but of {report.command}")
    return report


def _row(choice: Choice) -> dict[str, Any]:
    expected = {"expected": choice.expected.mean} if choice.expected else {}
    shape = {"shape": shape_text(choice.architecture), **choice.architecture.choices}
    return {"score": choice.score, **choice.costs, **expected, **shape}


def write_architecture(space: SearchSpace, choice: Choice, folder: Path) -> None:
    """Write ``architecture.json``, and ``config.json`` where a stock class builds it, into a new folder."""
    folder.mkdir()
    write_json(folder / "architecture.json", to_document(space, choice.architecture))
    stock = space.config(choice.architecture)
    if stock is not None:
        write_json(folder / "config.json", stock)
