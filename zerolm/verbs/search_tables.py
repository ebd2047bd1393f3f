"""Tables of a search: the best, the pick compared with a model, by vocabulary, what baselines choose,
bounds."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from zerolm.cost_columns import COLUMNS, LATENCY, column_of, cost_label, shown_costs
from zerolm.show.sheet import NOTEBOOK, PAGE, Cell, Row, Sheet
from zerolm.show.text import show_cost, show_score
from zerolm.solvers.result import Binding, Choice, LatencyTable, Reference, SearchResult, VocabularyChoice
from zerolm.spaces import shape_text
from zerolm.verbs.search_charts import identity
from zerolm.verbs.search_words import COUNTING, difference, expected_range

Places = Mapping[str, int]
"""The number of the record of each architecture, by its ``identity``."""
RELAXED: Final = (
    "Each bound alone, everything else as it is: ranges opened whole, any other 10 % wider (at least one "
    "step)."
)
SUMMED: Final = (
    "The latency of an architecture is the sum of its layers and of embedding and head. Layers of equal "
    "shapes do the same work: one of them was timed."
)


def best(result: SearchResult, places: Places) -> Sheet:
    """Return the best architectures."""
    ranked = ((str(rank), choice) for rank, choice in enumerate(result.best, 1))
    title = f"The best {len(result.best)} shapes" if len(result.best) > 1 else "The best shape"
    return _choices(result, places, title, "rank", ranked)


def beside(result: SearchResult, reference: Reference, places: Places) -> Sheet:
    """Return the pick and the model that it was to better."""
    networks = (("pick", result.pick), (reference.name, reference.choice))
    return _choices(result, places, f"Beside {reference.name}", "network", networks)


def in_short(result: SearchResult) -> Sheet:
    """Return the pick, the baseline model and the choices of counting side by side, for a notebook."""
    reference = [(result.baseline.name, result.baseline.choice)] if result.baseline else []
    counting = [(f"chosen by {b.name}", b.choice) for b in result.baselines if b.name in COUNTING]
    rows = [
        [name, *_cells(result, choice, show_score(choice.score))]
        for name, choice in [("pick", result.pick), *reference, *counting]
    ]
    return Sheet(head=_head(result, result.space.name, result.question.score), rows=rows, on=(NOTEBOOK,))


def by_baseline(result: SearchResult, places: Places) -> Sheet:
    """Return the networks that the baselines choose, each once, with its score against that of the pick."""
    choosers: dict[int, tuple[Choice, list[str]]] = {}
    for baseline in result.baselines:
        place = places[identity(baseline.choice)]
        choosers.setdefault(place, (baseline.choice, []))[1].append(baseline.name)
    rows = [
        [", ".join(names), *_cells(result, choice, f"{difference(result, choice):+.2f} %", place)]
        for place, (choice, names) in choosers.items()
    ]
    head = _head(result, "chosen by", f"{result.question.score} against the pick")
    return Sheet("What the baselines choose within the same budgets", head, rows, kind="baselines")


def by_vocabulary(result: SearchResult) -> Sheet:
    """Return the best with every vocabulary that was listed."""
    names = shown_costs(COLUMNS, (one.costs for one in result.vocabularies if one.costs))
    heads = [COLUMNS[name].head for name in names]
    first = result.vocabularies[0].vocab
    return Sheet(
        "By vocabulary, for the same text",
        ["vocabulary", Cell("the best", "shape"), "bytes/token", "context", result.question.score, *heads],
        [_vocabulary(one, names) for one in result.vocabularies],
        notes=[
            f"Budgets and context were asked for tokens of the vocabulary {first}; those of another are for "
            "the same text, and above are those of the chosen one."
        ],
        kind="vocabularies",
    )


def _vocabulary(one: VocabularyChoice, names: tuple[str, ...]) -> Row:
    shape, values = "nothing within the budgets", [""] * (1 + len(names))
    if one.score is not None and one.costs is not None:
        costs = [show_cost(name, one.costs[name]) for name in names]
        shape, values = one.shape, [show_score(one.score), *costs]
    text = [f"{one.bytes_per_token:.3f}", str(one.context)]
    return [str(one.vocab), Cell(shape, "shape"), *text, *values]


def _choices(
    result: SearchResult, places: Places, title: str, first: str, named: Iterable[tuple[str, Choice]]
) -> Sheet:
    """Return named architectures with their scores and costs, and what labels expect of them."""
    rows = [
        [name, *_cells(result, choice, show_score(choice.score), places[identity(choice)])]
        for name, choice in named
    ]
    head = _head(result, first, result.question.score)
    return Sheet(title, head, rows, kind="choices")


def _head(result: SearchResult, first: str, score: str) -> Row:
    about = result.calibration
    expected = [f"expected {about['metric']} (90 %)"] if about and result.pick.expected else []
    heads = [column_of(name).head for name in result.cost_names]
    return [first, Cell("shape", "shape"), score, *heads, *expected]


def _cells(result: SearchResult, choice: Choice, score: str, record: int | None = None) -> list[Cell | str]:
    """Return shape, score, costs and what labels expect, the shape with the number of its record."""
    shape = Cell(shape_text(choice.architecture), "shape", record=record)
    costs = [show_cost(name, choice.costs[name]) for name in result.cost_names]
    expected: list[Cell | str] = []
    if result.pick.expected:
        value = choice.expected
        expected = [Cell(f"{value.mean:.4g}", note=f"({expected_range(value)})") if value else "-"]
    return [shape, score, *costs, *expected]


def bounds(result: SearchResult) -> Sheet:
    """Return which bounds hold the best score down, and which cost nothing."""
    title, test = "Bounds that cost score", result.bounds
    if not test.tested:
        text = "Not tested: that takes a score that adds up over layers, and a proven optimum."
        return Sheet(title, sentences=[text])
    free = [f"Relaxed, these cost nothing: {', '.join(test.free)}."] if test.free else []
    free += [
        f"No architecture of the space has {name} {', '.join(map(str, values))}."
        for name, values in result.space.unused().items()
    ]
    if not test.binding:
        none = "None: no budget and no bound on shapes holds the best score down."
        return Sheet(title, sentences=[none, *free])
    rows: list[Row] = [
        [one.bound, one.kind, _relaxed(one), one.better, Cell(one.words, "shape")] for one in test.binding
    ]
    head: Row = ["bound", "kind", "relaxed to", "best score", Cell("best shape then", "shape")]
    return Sheet(title, head, rows, free, [RELAXED], kind="bounds")


def _relaxed(bound: Binding) -> str:
    wider = bound.relaxed_to
    if isinstance(wider, str):
        return wider
    return show_cost(bound.bound[4:], int(wider)) if bound.kind == "budget" else f"{wider:g}"


def latencies(table: LatencyTable) -> Sheet:
    """Return the table that the latency of every path adds up from."""
    parts = [("embedding and head", table.ends)]
    for row in table.layers:
        name = ", ".join(f"{name} {value}" for name, value in row.items() if name != LATENCY)
        parts.append((name, row[LATENCY]))
    rows = [[part, show_cost(LATENCY, value)] for part, value in parts]
    head = ["part", cost_label(LATENCY)]
    return Sheet("Latencies of the parts", head, rows, notes=[SUMMED], kind="latencies", on=(PAGE,))
