"""The result of ``zerolm lab elastic search``: the best paths of a supernet."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from zerolm.verbs.search_report import SearchReport


@dataclass(frozen=True, repr=False, eq=False)
class SupernetSearchReport(SearchReport):
    """The best paths of a supernet within the budgets, and how far that is proven."""

    command: ClassVar[str] = "lab elastic search"
