"""``zerolm.search_supernet``."""

from __future__ import annotations

from collections.abc import Mapping
from os import PathLike
from pathlib import Path
from typing import Any, ClassVar, Final

from zerolm.api.configuration import absolute
from zerolm.api.documented import documented
from zerolm.api.extras import needing_torch
from zerolm.api.search import SearchReport
from zerolm.commands.costs import CONDITIONS
from zerolm.commands.elastic import ELASTIC_SEARCH
from zerolm.costs import CostModel
from zerolm.io.files import cache_folder
from zerolm.progress import Progress, silent

Amount = int | str
Text = str | PathLike[str]
BUDGETS: Final = tuple(setting.name for setting in ELASTIC_SEARCH.groups["Budgets"])


class SupernetSearchReport(SearchReport):
    """The best paths of a supernet within the budgets, and how far that is proven."""

    command: ClassVar[str] = ELASTIC_SEARCH.name


@documented(ELASTIC_SEARCH)
def search_supernet(
    supernet: Text,
    *,
    max_params: Amount | None = None,
    max_body_params: Amount | None = None,
    max_macs: Amount | None = None,
    max_kv_bytes: Amount | None = None,
    max_weight_bytes: Amount | None = None,
    max_latency_us: Amount | None = None,
    min_params: Amount | None = None,
    min_body_params: Amount | None = None,
    min_macs: Amount | None = None,
    min_kv_bytes: Amount | None = None,
    min_weight_bytes: Amount | None = None,
    min_latency_us: Amount | None = None,
    context: Amount = 1024,
    batch: int = 1,
    kv_bits: int = 16,
    bits: int = 16,
    group_size: int = 128,
    score: str = "supernet",
    text: Text | None = None,
    sequences: int = 32,
    top: int = 10,
    method: str = "auto",
    population: int = 50,
    generations: int = 40,
    seed: int = 0,
    progress: Progress = silent,
) -> SupernetSearchReport:
    """Return the best paths of a trained supernet within budgets.

    Raises ``Infeasible`` where no path keeps them, and ``ValueError`` for a value that makes no sense, in one
    line.
    """
    own = ELASTIC_SEARCH.values({name: value for name, value in locals().items() if name != "progress"})
    ran: Mapping[str, Any] = own | {"supernet": absolute(own["supernet"])}
    with needing_torch("supernets are networks", "train"):
        from zerolm.elastic.search import ElasticSearch
        from zerolm.elastic.search import search_supernet as search
        from zerolm.solvers.evolution import Evolution

        result = search(
            Path(own["supernet"]),
            ElasticSearch(
                own["score"],
                {name: own[name] for name in BUDGETS if own[name] is not None},
                own["method"],
                Evolution(own["population"], own["generations"]),
                own["seed"],
                own["top"],
            ),
            source=own["text"],
            sequences=own["sequences"],
            store=cache_folder("paths"),
            costs=CostModel(**{setting.name: own[setting.name] for setting in CONDITIONS}),
            progress=progress,
        )
    configuration = {name: value for name, value in ran.items() if value is not None}
    return SupernetSearchReport(**vars(result), configuration=configuration)
