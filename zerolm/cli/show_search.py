"""The terminal's view of a search."""

from __future__ import annotations

import json

from zerolm.api.search import SearchReport
from zerolm.costs import COSTS
from zerolm.report.phrases import show_cost, show_count, show_score
from zerolm.solvers.result import Choice
from zerolm.spaces import shape_text


def show(result: SearchReport) -> None:
    """Print the pick, then the best; shapes come last in a line, for they may be long."""
    pick, best = result.pick, result.best[0]
    print(result)
    more = "" if result.certificate.counts == "exact" else "at least "
    print(
        f"{more}{show_count(result.plateau.ties.value)} with the best score, "
        f"{more}{show_count(result.plateau.near_ties.value)} within 1 % of it\n"
    )
    heads = ["params", "body", "MACs", "KV cache", "weights"]
    heads += ["expected"] if pick.expected else []
    print(f"{'':>4} {result.question.score:>13} " + " ".join(f"{head:>8}" for head in heads) + "  shape")
    for rank, choice in enumerate(result.best, 1):
        print(f"{rank:>4} {show_score(choice.score):>13} {_line(choice)}")
    if result.baselines:
        print("what the baselines choose within the same budgets:")
    for names, choice in same_choices(result):
        change = 100 * (choice.score - best.score) / abs(best.score or 1.0)
        print(f"{'':>4} {change:>+12.2f}% {_line(choice)}  by {', '.join(names)}")
    for binding in result.bounds.binding:
        cost = binding.bound[4:] if binding.kind == "budget" else ""
        wider = show_cost(cost, int(binding.relaxed_to)) if cost else f"{binding.relaxed_to:g}"
        print(f"binding: {binding.bound}; at {wider} the best score would be {100 * binding.gain:+.2f} %")


def same_choices(result: SearchReport) -> list[tuple[list[str], Choice]]:
    """Return the baselines' choices, each once with the names of all that made it."""
    groups: dict[str, tuple[list[str], Choice]] = {}
    for baseline in result.baselines:
        key = json.dumps(baseline.choice.architecture.choices)
        groups.setdefault(key, ([], baseline.choice))[0].append(baseline.name)
    return list(groups.values())


def _line(choice: Choice) -> str:
    costs = " ".join(f"{show_cost(cost, choice.costs[cost]):>8}" for cost in COSTS)
    expected = f" {choice.expected.mean:>8.4g}" if choice.expected else ""
    return f"{costs}{expected}  {shape_text(choice.architecture)}"
