"""``zerolm.ablate``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path
from typing import Any, ClassVar, Self

from zerolm.api.benchmark_names import benchmarks, left_out
from zerolm.api.documented import documented
from zerolm.api.report import Report, checked
from zerolm.calibration.alpha import GRID
from zerolm.commands.bench import ABLATE
from zerolm.comparison.ablate import ablate as run_ablation
from zerolm.comparison.ablation import Ablation, AblationSection
from zerolm.groundtruth.truth import is_line
from zerolm.progress import Progress, silent
from zerolm.report.ablation import ablation_fragment, ablation_page, title
from zerolm.report.ablation_conclusions import conclusions, to_document


@dataclass(frozen=True, repr=False)
class AblationReport(Report):
    """The ablation of ZeroLM's score, for each benchmark in each view."""

    ablation: Ablation
    problems: tuple[str, ...] = ()
    configuration: Mapping[str, Any] = field(default_factory=dict)
    command: ClassVar[str] = ABLATE.name

    def to_json(self) -> dict[str, Any]:
        return to_document(self.ablation)

    def lines(self) -> list[str]:
        sections = self.ablation.sections
        best = [f"{title(section)}, best alpha {section.best_alpha:g}" for section in sections]
        return [*best, *conclusions(self.ablation).values()]

    @property
    def remarks(self) -> list[str]:
        return list(self.problems)

    def rows(self) -> list[dict[str, Any]]:
        return [
            {"benchmark": section.benchmark, "view": section.view, "part": part, **_row(effect)}
            for section in self.ablation.sections
            for part, effects in (
                ("matrices", section.matrices),
                ("initialisation", section.initialisations),
            )
            for effect in effects
        ]

    def page(self) -> str:
        return ablation_page(self.ablation, self.run_yaml)

    def fragment(self) -> str:
        return ablation_fragment(self.ablation)

    @classmethod
    def from_folder(cls, folder: Path, document: dict[str, Any], configuration: dict[str, Any]) -> Self:
        sections = checked(tuple[AblationSection, ...], document["sections"])
        for section in sections:
            effects = (*section.matrices, *section.initialisations)
            texts = [section.benchmark, section.view or "-", section.metric]
            texts += [name for effect in effects for name in (effect.variant, effect.score)]
            if len(section.curve) != len(GRID) or not all(map(is_line, texts)):
                raise ValueError("the curve of alphas or a name is not one")
        report = cls(Ablation(sections), configuration=configuration)
        report.to_json()
        return report


@documented(ABLATE)
def ablate(
    names: str | PathLike[str] | Sequence[str | PathLike[str]] | None = None,
    *,
    all: bool = False,
    data: str | PathLike[str] | None = None,
    metric: str | None = None,
    progress: Progress = silent,
) -> AblationReport:
    """Return what ZeroLM's score hangs on: matrices that count, initialisation, seed and borrowed alphas.

    ``names`` are benchmarks of the data folders, or files. Raises ``ValueError`` for one that cannot be
    compared; with ``all`` it is left out.
    """
    own = ABLATE.values({name: value for name, value in locals().items() if name != "progress"})
    chosen, ran = benchmarks(own)
    problems: list[str] = []
    ablation = run_ablation(
        chosen,
        data=own["data"],
        metric=own["metric"],
        unusable=left_out(problems, own["all"]),
        progress=progress,
    )
    return AblationReport(ablation, tuple(problems), own | ran)


def _row(effect: Any) -> dict[str, Any]:
    return {name: getattr(effect, name) for name in effect.__slots__}
