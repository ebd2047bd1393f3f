"""The terminal's view of a search."""

from __future__ import annotations

import json

from zerolm.api.search import SearchReport
from zerolm.cli.tables import show_table, show_text
from zerolm.report.phrases import against_counting, show_cost, show_count, show_score
from zerolm.solvers.result import Choice, VocabularyChoice
from zerolm.spaces import shape_text

HEADS = ("params", "body", "MACs", "KV cache", "weights")


def show(result: SearchReport) -> None:
    """Print the pick and what counting parameters chooses instead, then the baselines and the best."""
    pick, best = result.pick, result.best[0]
    for line in result.lines():
        show_text(line)
    if result.baselines:
        show_text(against_counting(result))
    more = "" if result.certificate.counts == "exact" else "at least "
    show_text(
        f"{more}{show_count(result.plateau.ties.value)} with the best score, "
        f"{more}{show_count(result.plateau.near_ties.value)} within 1 % of it"
    )
    heads = [
        *HEADS,
        *(["latency"] if result.latency else []),
        *(["expected"] if pick.expected else []),
        "shape",
    ]
    if result.baseline:
        print("\nbeside the baseline:")
        beside = [("pick", pick), (result.baseline.name, result.baseline.choice)]
        rows = [[name, show_score(choice.score), *_cells(result, choice)] for name, choice in beside]
        show_table(["", result.question.score, *heads], rows, remarks=True)
    if result.vocabularies:
        print("\nby vocabulary, for the same text:")
        show_table(
            ["vocabulary", "bytes/token", "context", result.question.score, *HEADS, "shape"],
            [_vocabulary_cells(one) for one in result.vocabularies],
            remarks=True,
        )
    if result.baselines:
        print("\nwhat the baselines choose within the same budgets:")
        rows = []
        for names, choice in same_choices(result):
            change = 100 * (choice.score - best.score) / abs(best.score or 1.0)
            *costs, shape = _cells(result, choice)
            rows.append([f"{change:+.2f}%", *costs, f"{shape}  by {', '.join(names)}"])
        show_table([result.question.score, *heads], rows, remarks=True)
    print("\nthe best:")
    cells = [
        [str(rank), show_score(choice.score), *_cells(result, choice)]
        for rank, choice in enumerate(result.best, 1)
    ]
    show_table(["", result.question.score, *heads], cells, remarks=True)
    for binding in result.bounds.binding:
        cost = binding.bound[4:] if binding.kind == "budget" else ""
        to = binding.relaxed_to
        wider = (
            f"opened to {to}"
            if isinstance(to, str)
            else f"at {show_cost(cost, int(to)) if cost else format(to, 'g')}"
        )
        words = f": {binding.words}" if binding.words else ""
        show_text(f"binding: {binding.bound}; {wider} the best score would be {binding.better}{words}")
    if result.bounds.free:
        show_text(f"costs nothing: {', '.join(result.bounds.free)}")
    for name, values in result.space.unused().items():
        show_text(f"no architecture of the space has {name} {', '.join(map(str, values))}")


def _vocabulary_cells(one: VocabularyChoice) -> list[str]:
    own = [str(one.vocab), f"{one.bytes_per_token:.3f}", str(one.context)]
    if one.score is None or one.costs is None:
        return [*own, "", *("" for _ in HEADS), "nothing within the budgets"]
    return [*own, show_score(one.score), *(show_cost(*cost) for cost in one.costs.items()), one.shape]


def same_choices(result: SearchReport) -> list[tuple[list[str], Choice]]:
    """Return the baselines' choices, each once with the names of all that made it."""
    groups: dict[str, tuple[list[str], Choice]] = {}
    for baseline in result.baselines:
        key = json.dumps(baseline.choice.architecture.choices)
        groups.setdefault(key, ([], baseline.choice))[0].append(baseline.name)
    return list(groups.values())


def _cells(result: SearchReport, choice: Choice) -> list[str]:
    expected = [f"{choice.expected.mean:.4g}"] if choice.expected else []
    costs = [show_cost(cost, choice.costs[cost]) for cost in result.cost_names]
    return [*costs, *expected, shape_text(choice.architecture)]
