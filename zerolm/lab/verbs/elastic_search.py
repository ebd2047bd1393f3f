"""``zerolm lab elastic search``: the best path of a trained supernet within budgets."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from zerolm.progress import Progress, silent
from zerolm.settings import REQUIRED
from zerolm.settings.request import Request, argument, part, setting
from zerolm.text.defaults import text_field
from zerolm.verbs.report import run_of
from zerolm.verbs.shared import Conditions, budgets, field_read, limits, needing_torch

if TYPE_CHECKING:
    from zerolm.lab.verbs.elastic_search_report import SupernetSearchReport


@dataclass(frozen=True, kw_only=True)
class SupernetSearchSettings(Request):
    """Return the best paths of a trained supernet within budgets.

    Raises ``Infeasible`` where no path keeps them, and ``ValueError`` for a value that makes no sense, in one
    line.
    """

    name: ClassVar[str] = "lab elastic search"
    examples = (
        ("zerolm lab elastic search supernet --max-params 15.7M --out best", "the paper's limit"),
        ("zerolm lab elastic search supernet --max-macs 10M --score w_pca", "without its training"),
        (
            "zerolm lab elastic search supernet --max-latency-us 3000 --context 128",
            "a limit for this machine",
        ),
    )
    supernet: str = argument("path", REQUIRED, "folder of a trained supernet", metavar="SUPERNET")
    budgets: Any = part(budgets(("max", "min"), latency=True), group="Budgets")
    conditions: Conditions = part(Conditions, group="Conditions of the costs")
    score: str = setting(
        "text",
        "supernet",
        "supernet (the path's loss on held-out text), v_pca, w_pca, or a closed form (geo, params, ...) "
        "with a proven best path",
        group="What to maximise",
    )
    text: str | None = setting(
        "path", None, "text to measure losses on; default: the training text", metavar="TEXT"
    )
    text_field: str | None = text_field()
    sequences: int = setting("integer", 32, "sequences to evaluate a path on", low=1, high=1 << 20)
    top: int = setting("integer", 10, "paths to list", group="Search", low=1, high=1000)
    method: str = setting(
        "text",
        "auto",
        "auto (evolution for the loss, an exact method otherwise), random, or exhaustive",
        metavar="NAME",
    )
    population: int = setting("integer", 50, "population size", low=2, high=1 << 20)
    generations: int = setting("integer", 40, "number of generations", low=1, high=1 << 20)
    seed: int = setting("integer", 0, "seed of random methods", low=0, high=2**32 - 1)

    def run(self, progress: Progress = silent) -> SupernetSearchReport:
        with (
            needing_torch("supernets are networks", "train"),
            field_read(self.text_field, self.text, has_another=True),
        ):
            from zerolm.io.files import cache_folder
            from zerolm.lab.supernets.search import ElasticSearch, search_supernet
            from zerolm.lab.verbs.elastic_search_report import SupernetSearchReport
            from zerolm.solvers.evolution import Evolution

            sizes = Evolution(self.population, self.generations)
            result = search_supernet(
                Path(self.supernet),
                ElasticSearch(self.score, limits(self.budgets), self.method, sizes, self.seed, self.top),
                source=self.text,
                sequences=self.sequences,
                store=cache_folder("paths"),
                costs=self.conditions.model(),
                progress=progress,
            )
        return SupernetSearchReport(**vars(result), run=run_of(self))
