"""``zerolm bench run``: every score on trained architectures, beside counting parameters."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from zerolm.progress import Progress, silent
from zerolm.settings.request import Request, part, setting
from zerolm.verbs.benchmarks import Benchmarks
from zerolm.verbs.report import run_of
from zerolm.verbs.shared import needing_torch

if TYPE_CHECKING:
    from zerolm.comparison.bench import More
    from zerolm.verbs.bench_report import BenchReport
    from zerolm.zero_cost.job import Measured

OF_PROXIES = ("text", "jobs", "store")
"""Settings that say nothing where no proxy is named."""


@dataclass(frozen=True, kw_only=True)
class BenchSettings(Request):
    """Return how well every score ranks trained architectures, and whether better than counting parameters.

    ``names`` are benchmarks of the data folders or of the package, or files; with ``proxies`` networks are
    built, and these stand beside the scores. Options of scores are keywords, too: one value or a list
    (``alpha=[0.5, 1.1]``).
    Raises ``ValueError`` for what makes no sense, and for a benchmark that cannot be compared; with ``all``
    it is left out.
    """

    name: ClassVar[str] = "bench run"
    examples = (
        ("zerolm bench run gpt2_wt103", "200 language models, which come with zerolm"),
        ("zerolm bench run --all --out comparison", "all at hand, with a page and tables"),
        ("zerolm bench run labels.csv --alpha 0.5 --alpha 1.1", "your own trained models"),
        ("zerolm bench run pit_vit --proxies snip,zico", "two proxies of real networks beside the scores"),
    )
    notes = (
        "Each score is compared with the parameter count by tau-b with the trained results, with bootstrap "
        "intervals; *pairs* is the share of equal-sized pairs ordered correctly. Every option of a score "
        "is a flag too and may be repeated."
    )
    owners = ("scores",)
    is_repeated = True
    benchmarks: Benchmarks = part(Benchmarks)
    proxies: tuple[str, ...] | None = setting(
        "names",
        None,
        "proxies to compare as well, from `zerolm proxies ls`",
        group="Proxies beside the scores",
    )
    text: str | None = setting(
        "path", None, "text for the proxies' tokens; default random", metavar="FILE|random"
    )
    jobs: int | None = setting("integer", None, "networks computed in parallel; default 1", low=1, high=1024)
    store: str | None = setting("path", None, "SQLite file for proxy values; default: one in the cache")

    def run(self, progress: Progress = silent) -> BenchReport:
        from zerolm.comparison.bench import bench
        from zerolm.comparison.results import Comparison
        from zerolm.scores import all_variants
        from zerolm.scores.options import score_options
        from zerolm.verbs.bench_report import BenchReport
        from zerolm.verbs.comparison_words import tokens_of

        options = score_options(self.further)
        names, repeatable = self.benchmarks.chosen()
        problems: list[str] = []
        measured: list[Measured] = []
        comparison = bench(
            names,
            data=self.benchmarks.data,
            metric=self.benchmarks.metric,
            options=options,
            more=self._beside(measured, progress),
            unusable=self.benchmarks.noting(problems),
            progress=progress,
        )
        if measured:
            pairs = zip(comparison.sections, measured, strict=True)
            sections = [replace(one, left_out=one.left_out | run.left_out) for one, run in pairs]
            comparison = Comparison(sections, tokens_of(measured[0].source))
        problems += [f"{name} is left out: {reason}" for name, reason in all_variants(options)[1].items()]
        store = None if self.store is None else str(Path(self.store).absolute())
        run = run_of(self, **repeatable, **options, store=store)
        return BenchReport(comparison, tuple(problems), run=run)

    def _beside(self, measured: list[Measured], progress: Progress) -> More:
        """Return what computes the proxies beside the scores; its results go to ``measured``."""
        if self.proxies is None:
            for name in OF_PROXIES:
                if getattr(self, name) is not None:
                    raise ValueError(f"--{name} is of networks that are built: give --proxies too")
            return lambda *_: {}
        with needing_torch():
            from zerolm.zero_cost.measure import measuring
            from zerolm.zero_cost.request import ProxyRequest
        store = None if self.store is None else Path(self.store)
        request = ProxyRequest(self.proxies, self.text or "random", jobs=self.jobs or 1, store=store)
        return measuring(request, measured, progress)
