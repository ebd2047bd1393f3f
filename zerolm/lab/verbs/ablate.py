"""``zerolm lab ablate``: what ZeroLM's score hangs on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from zerolm.progress import Progress, silent
from zerolm.settings.request import Request, part
from zerolm.verbs.report import run_of
from zerolm.verbs.shared import Benchmarks

if TYPE_CHECKING:
    from zerolm.lab.verbs.ablate_report import AblationReport


@dataclass(frozen=True, kw_only=True)
class AblateSettings(Request):
    """Return ablations of ZeroLM's score: matrices that count, initialisation, seed and borrowed alphas.

    ``names`` are benchmarks of the data folders, or files. Raises ``ValueError`` for one that cannot be
    compared; with ``all`` it is left out.
    """

    name: ClassVar[str] = "lab ablate"
    examples = (
        ("zerolm lab ablate gpt2_wt103 pit_vit", "two benchmarks, and each other's best alpha"),
        ("zerolm lab ablate --all --out ablation", "all at hand, with a page"),
    )
    notes = "Each row is the change of tau-b from the published form, with a paired bootstrap interval."
    benchmarks: Benchmarks = part(Benchmarks)

    def run(self, progress: Progress = silent) -> AblationReport:
        from zerolm.lab.ablation.ablate import ablate
        from zerolm.lab.verbs.ablate_report import AblationReport

        names, repeatable = self.benchmarks.chosen()
        problems: list[str] = []
        sections = ablate(
            names,
            data=self.benchmarks.data,
            metric=self.benchmarks.metric,
            unusable=self.benchmarks.noting(problems),
            progress=progress,
        )
        return AblationReport(sections, tuple(problems), run=run_of(self, **repeatable))
