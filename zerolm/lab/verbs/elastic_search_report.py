"""The result of ``zerolm lab elastic search``: the best paths of a supernet."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar, Final

from zerolm.lab.supernets.request import SUPERNET_LOSS
from zerolm.verbs.search_report import SearchReport

SHARED: Final = (
    "The score is a loss with weights that all paths share: train several of the best alone, not one."
)


@dataclass(frozen=True, repr=False, eq=False)
class SupernetSearchReport(SearchReport):
    """The best paths of a supernet within the budgets, and how far that is proven."""

    command: ClassVar[str] = "lab elastic search"

    def caution(self) -> str:
        return SHARED if self.question.score == SUPERNET_LOSS else super().caution()

    def blindness(self) -> Iterator[str]:
        return iter([SHARED]) if self.question.score == SUPERNET_LOSS else super().blindness()
