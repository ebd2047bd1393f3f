"""``zerolm lab bench``: proxies of running networks on trained architectures, compared with every score."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from zerolm.progress import Progress, silent
from zerolm.settings import REQUIRED
from zerolm.settings.request import setting
from zerolm.verbs.bench import BenchSettings
from zerolm.verbs.report import run_of
from zerolm.verbs.shared import field_read, needing_torch

if TYPE_CHECKING:
    from zerolm.lab.verbs.proxies_report import ProxyBenchReport
    from zerolm.lab.zero_cost.job import Measured


@dataclass(frozen=True, kw_only=True)
class ProxyBenchSettings(BenchSettings):
    """Return how well proxies and every score rank trained architectures, compared with counting parameters.

    ``names`` are benchmarks of the data folders or of the package, or files; their networks are built and
    run. Options of scores are keywords, too: one value or a list (``alpha=[0.5, 1.1]``).
    Raises ``ValueError`` for what makes no sense, and for a benchmark that cannot be compared; with ``all``
    it is left out.
    """

    name: ClassVar[str] = "lab bench"
    examples: ClassVar[tuple[tuple[str, str], ...]] = (
        ("zerolm lab bench pit_vit --proxies snip,zico", "two proxies compared with the scores"),
    )
    completes: ClassVar[dict[str, str]] = {"proxies": "zerolm.lab.zero_cost:defined_names"}
    proxies: tuple[str, ...] = setting(
        "names", REQUIRED, "proxies to compare, from `zerolm lab proxies ls`", group="Proxies"
    )
    text: str = setting("path", "random", "file or folder for the proxies' tokens", metavar="TEXT|random")
    jobs: int = setting("integer", 1, "networks computed in parallel", low=1, high=1024)
    store: str | None = setting("path", None, "file for proxy values; default: one in the cache")

    def run(self, progress: Progress = silent) -> ProxyBenchReport:
        with field_read(None, self.text), needing_torch():
            from zerolm.comparison.results import Comparison
            from zerolm.lab.verbs.proxies_report import ProxyBenchReport
            from zerolm.lab.zero_cost.measure import ProxyRequest, measuring
            from zerolm.lab.zero_cost.result import tokens_of
        measured: list[Measured] = []
        store = None if self.store is None else Path(self.store)
        request = ProxyRequest(self.proxies, self.text, jobs=self.jobs, store=store)
        comparison, problems, repeatable = self.compared(progress, measuring(request, measured, progress))
        pairs = zip(comparison.sections, measured, strict=True)
        sections = [replace(section, left_out=section.left_out | run.left_out) for section, run in pairs]
        comparison = Comparison(sections, tokens_of(measured[0].source))
        place = None if store is None else str(store.absolute())
        return ProxyBenchReport(comparison, problems, run=run_of(self, **repeatable, store=place))
