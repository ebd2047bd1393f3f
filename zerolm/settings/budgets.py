"""Settings that are budgets: one for each cost, so that a new cost is a new setting of all who have them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import make_dataclass
from typing import Any

from zerolm.cost_columns import COLUMNS, FURTHER, LATENCY
from zerolm.settings.request import setting, values_of
from zerolm.settings.setting import KindName


def budgets(
    sides: Sequence[str],
    kind: KindName = "integer",
    *,
    costs: Sequence[str] = tuple(COLUMNS),
    shares: str = "",
    latency: bool = False,
) -> Any:
    """Return a type whose fields are budgets: of each of the costs at most (``max``), or at least (``min``).

    ``shares`` ends the help of one that may be a share; ``latency`` adds the cost that a machine measures.
    """
    fields: list[tuple[str, Any, Any]] = []
    for side in sides:
        word = {"max": "most", "min": "least"}[side]
        for cost in costs:
            help_ = f"{COLUMNS[cost].meaning} at {word}{shares}"
            fields.append((f"{side}_{cost}", Any, setting(kind, None, help_, low=0, metavar="AMOUNT")))
        if latency:
            help_ = f"{FURTHER[LATENCY].meaning} at {word}; its blocks are timed first"
            budget = setting("integer", None, help_, low=1, high=1 << 50, metavar="AMOUNT")
            fields.append((f"{side}_{LATENCY}", Any, budget))
    return make_dataclass("Budgets", fields, frozen=True)


def limits(budgets: Any) -> dict[str, Any]:
    """Return the budgets that are given, by name."""
    return {name: value for name, value in values_of(budgets).items() if value is not None}
