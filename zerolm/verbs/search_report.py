"""The result of ``zerolm search``: the pick, what counting would pick, how far that is proven."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, Final

from zerolm.cost_columns import COLUMNS, LATENCY, column_of, cost_label, shown_costs
from zerolm.io.files import write_json
from zerolm.pretraining import Allocation, TrainingPlan, chinchilla, deepseek, train_flops
from zerolm.scores.shape import best_ratio, off_ratio
from zerolm.show.sheet import NOTEBOOK, PAGE, TERMINAL, Cell, Heading, Row, Sheet, pairs
from zerolm.show.text import sentence, show_amount, show_cost, show_score
from zerolm.solvers.choice import Choice, Reference
from zerolm.solvers.result import Binding, LatencyTable, SearchResult, VocabularyChoice
from zerolm.spaces import SearchSpace, shape_text
from zerolm.spaces.document import to_document
from zerolm.verbs import search_words as words
from zerolm.verbs.report import Report
from zerolm.verbs.search_charts import FLAT, candidacies, front, identity, landscape
from zerolm.verbs.search_words import COUNTING, SHAPE_LAW, difference, expected_range, show_loss

Places = Mapping[str, int]
"""The number of the record of each architecture, by its ``identity``."""
TIMES: Final = (0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 10.0)
"""Ratios to the best hidden / depth for which costs are shown."""
RELAXED: Final = (
    "Each bound alone, everything else as it is: ranges opened whole, any other 10 % wider (at least one "
    "step)."
)
SUMMED: Final = (
    "The latency of an architecture is the sum of its layers and of embedding and head. Layers of equal "
    "shapes do the same work: one of them was timed."
)


@dataclass(frozen=True, repr=False, eq=False)
class SearchReport(SearchResult, Report):
    """The best architectures within the budgets, and how far that is proven."""

    command: ClassVar[str] = "search"

    @property
    def remarks(self) -> list[str]:
        warnings = [*(self.calibration or {}).get("warnings", ()), *words.shape_warnings(self)]
        return [f"warning: {warning}" for warning in warnings]

    @property
    def written(self) -> list[str]:
        stock = self.space.config(self.pick.architecture) is not None
        kind = "config.json" if stock else f"architecture.json ({self.space.unstocked()})"
        return [*super().written, f"pick/{kind} and the best {len(self.best)}"]

    def write_more(self, folder: Path) -> None:
        """Write a folder with the configuration of each architecture."""
        choices = {"pick": self.pick} | {f"{i:02}": choice for i, choice in enumerate(self.best, 1)}
        for name, choice in choices.items():
            write_architecture(self.space, choice, folder / name)

    def rows(self) -> list[dict[str, Any]]:
        return [_row(choice) for choice in self.best]

    def lines(self) -> list[str]:
        baseline = words.baseline_sentence(self)
        return [
            f"pick: {shape_text(self.pick.architecture)}",
            f"      {words.costs(self)}",
            *(f"      {name}: {text}" for name, text in words.facts(self)),
            *([baseline] if baseline else []),
            words.certificate_sentence(self),
        ]

    def heading(self) -> Heading:
        comparisons = (words.baseline_sentence(self), words.against_counting(self))
        return Heading(
            f"The pick: {shape_text(self.pick.architecture)}",
            words.question(self),
            " ".join([sentence(words.costs(self)), words.reason(self), *map(sentence, self.remarks)]),
            " ".join(filter(None, comparisons)),
            f"{words.certificate_sentence(self)} {words.caution(self)}",
        )

    def sheets(self) -> list[Sheet]:
        entries, facts = candidacies(self), list(words.facts(self))
        places = {identity(entry.choice): place for place, entry in enumerate(entries)}
        cost, plan = cost_label(self.front.cost), self.question.training
        counting = [words.against_counting(self)] if self.baselines else []
        points = f"Each point is the best score that its {cost} bought. Pick one to see its layers and files."
        kind = "the best score" if self.front.complete else "an upper bound of the best score"
        kind = kind if self.certificate.optimal else "the best score seen"
        flat = f"Each point is {kind} at one depth and width, from {FLAT:g} % on; {words.ties(self)}."
        blind = Sheet("What this score cannot see", sentences=[words.blindness(self)], on=(PAGE,))
        return [
            Sheet(sentences=[*counting, words.ties(self)], on=(TERMINAL,)),
            *([pairs("More of the pick", facts, on=(PAGE,))] if facts else []),
            in_short(self),
            Sheet(
                f"Score against {cost}", charts=[front(self, entries)], notes=[points], on=(PAGE, NOTEBOOK)
            ),
            Sheet("How flat the optimum is", charts=[landscape(self)], notes=[flat], on=(PAGE,)),
            *([ridge(self)] if self.question.score == SHAPE_LAW else []),
            *([training(self, plan)] if plan else []),
            best(self, places),
            *([beside(self, self.baseline, places)] if self.baseline else []),
            *([by_vocabulary(self)] if self.vocabularies else []),
            *([by_baseline(self, places)] if self.baselines else []),
            bounds(self),
            *([latencies(self.latency)] if self.latency else []),
            blind,
        ]


def searched(folder: Path) -> SearchReport:
    """Return the result that ``search --out`` wrote into a folder; ``ValueError`` where it holds no result of
    search."""
    from zerolm.verbs.load import load

    report = load(folder)
    if not isinstance(report, SearchReport):
        raise ValueError(f"{str(folder)!r} holds no result of search, but of {report.command}")
    return report


def _row(choice: Choice) -> dict[str, Any]:
    expected = {"expected": choice.expected.mean} if choice.expected else {}
    shape = {"shape": shape_text(choice.architecture), **choice.architecture.choices}
    return {"score": choice.score, **choice.costs, **expected, **shape}


def write_architecture(space: SearchSpace, choice: Choice, folder: Path) -> None:
    """Write ``architecture.json``, and ``config.json`` where a stock class builds it, into a new folder."""
    folder.mkdir()
    write_json(folder / "architecture.json", to_document(space, choice.architecture))
    stock = space.config(choice.architecture)
    if stock is not None:
        write_json(folder / "config.json", stock)


def best(result: SearchResult, places: Places) -> Sheet:
    """Return the best architectures."""
    ranked = ((str(rank), choice) for rank, choice in enumerate(result.best, 1))
    title = f"The best {len(result.best)} shapes" if len(result.best) > 1 else "The best shape"
    return _choices(result, places, title, "rank", ranked)


def beside(result: SearchResult, reference: Reference, places: Places) -> Sheet:
    """Return the pick and the model that it was to better, and what the pick has of it."""
    networks = (("pick", result.pick), (reference.name, reference.choice))
    sheet = _choices(result, places, f"Beside {reference.name}", "network", networks)
    pick, model = result.pick, reference.choice
    shares = [f"{100 * pick.costs[cost] / (model.costs[cost] or 1):.4g} %" for cost in result.cost_names]
    change = f"{difference(result, pick, model):+.2f} %"
    expected = [""] * bool(pick.expected)
    return replace(sheet, rows=[*sheet.rows, ["pick against it", "", change, *shares, *expected]])


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
    limited = any(name.endswith(("macs", "kv_bytes")) for name in result.question.budgets)
    unheld = "No limit of MACs or KV cache holds the length of the text against a small vocabulary."
    return Sheet(
        "By vocabulary, for the same text",
        ["vocabulary", Cell("the best", "shape"), "bytes/token", "context", result.question.score, *heads],
        [_vocabulary(one, names) for one in result.vocabularies],
        [] if limited else [unheld],
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
    run = (
        f"{table.batch} x {table.tokens} tokens, float32, threads: {table.threads}, fastest of {table.rounds}"
    )
    head, title = ["part", cost_label(LATENCY)], "Latencies of the parts"
    return Sheet(title, head, rows, notes=[SUMMED], lead=run, kind="latencies", on=(PAGE,))


def ridge(result: SearchResult) -> Sheet:
    """Return the hidden / depth of networks of the pick's size on the ridge and off it, with its cost."""
    tokens, pick = result.question.options.get("train_tokens"), result.pick.architecture
    best = best_ratio(pick, tokens).value
    rows = [[f"{times:g} x", f"{times * best:.3g}", show_loss(off_ratio(times, tokens))] for times in TIMES]
    note = "Costs are the share of the parameters that a network on the ridge could do without."
    return Sheet("Depth against width", ["of the best", "hidden / depth", "costs"], rows, [note], on=(PAGE,))


def training(result: SearchResult, plan: TrainingPlan) -> Sheet:
    """Return how published laws divide the operations of training the pick into MACs and tokens."""
    macs = result.pick.costs["macs"]
    flops = train_flops(macs, plan.tokens)
    here = Allocation("the pick", "6 x MACs a token x tokens", macs, plan.tokens)
    rows: list[Row] = [
        [one.law, show_amount(round(one.macs)), show_amount(round(one.tokens)), Cell(one.source, "shape")]
        for one in (here, chinchilla(flops), deepseek(flops))
    ]
    head: Row = ["operations divided by", "MACs a token", "tokens", Cell("source", "shape")]
    note = "What is served often is trained for longer: its operations of use are not counted here."
    return Sheet("How long to train", head, rows, notes=[note])
