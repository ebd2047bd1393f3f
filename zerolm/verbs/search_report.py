"""The result of ``zerolm search``: the pick, what counting would pick, how far that is proven."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, Final

from zerolm.cost_columns import COLUMNS, LATENCY, column_of, cost_label, shown_costs
from zerolm.io.files import write_json
from zerolm.pretraining import Allocation, TrainingPlan, chinchilla, deepseek, train_flops
from zerolm.scores.shape import (
    RATIOS,
    TOKENS_A_PARAMETER,
    ShapeEstimate,
    best_ratio,
    off_ratio,
    ratio_worth,
    tokens_a_parameter,
    worth,
)
from zerolm.show.sheet import NOTEBOOK, PAGE, TERMINAL, Cell, Heading, Row, Sheet, pairs
from zerolm.show.text import sentence, show_amount, show_cost, show_count, show_score
from zerolm.solvers.result import Binding, Choice, LatencyTable, Reference, SearchResult, VocabularyChoice
from zerolm.spaces import SearchSpace, shape_text
from zerolm.spaces.document import to_document
from zerolm.verbs.report import Report, load
from zerolm.verbs.search_charts import FLAT, candidacies, front, landscape

Places = Mapping[str, int]
"""The number of the record of each architecture, by its identity."""
COUNTING: Final = ("params", "body_params")
"""Baselines that count parameters."""
SHAPE_LAW: Final = "shape_law"
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
UNTRAINED: Final = (
    "The score has seen no training: train several of the best, not one. zerolm bench run --all compares "
    "scores with counting parameters."
)
FITTED: Final = "A score fitted to few labels ranks what lies near them: train several of the best, not one."
CORNERS: Final = (
    "The score reads shapes at random initialisation, not data, not training; left alone it runs into the "
    "corners of a space, which is why the bounds above matter."
)
SAMPLED: Final = (
    "The score was fitted to the labels alone: expect little of it beyond their range. Only some of the "
    "space was looked at, and of equal shapes only one choice of what the shape leaves open."
)
ANY_ALPHA: Final = (
    "A fixed alpha suits no two spaces: on published results the useful one runs from 0 to 1.1."
)


@dataclass(frozen=True, repr=False, eq=False)
class SearchReport(SearchResult, Report):
    """The best architectures within the budgets, and how far that is proven."""

    command: ClassVar[str] = "search"

    @property
    def remarks(self) -> list[str]:
        warnings = [*(self.calibration or {}).get("warnings", ()), *shape_warnings(self), *unbounded(self)]
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
        rows = []
        for choice in self.best:
            expected = {"expected": choice.expected.mean} if choice.expected else {}
            shape = {"shape": shape_text(choice.architecture), **choice.architecture.choices}
            rows.append({"score": choice.score, **choice.costs, **expected, **shape})
        return rows

    def lines(self) -> list[str]:
        return [
            f"pick: {shape_text(self.pick.architecture)}",
            f"      {costs(self)}",
            *(f"      {name}: {text}" for name, text in facts(self)),
            certificate_sentence(self),
        ]

    def heading(self) -> Heading:
        query = self.question
        budgets = {name: show_cost(name[4:], value) for name, value in query.budgets.items()}
        settings = {**query.options, **budgets, **query.conditions}
        return Heading(
            f"The pick: {shape_text(self.pick.architecture)}",
            ", ".join([f"Score {query.score}", *(f"{name} {value}" for name, value in settings.items())]),
            " ".join(map(sentence, [costs(self), *self.remarks])),
            trust=f"{certificate_sentence(self)} {self.caution()}",
        )

    def caution(self) -> str:
        """Return how far a score is to be trusted, as a sentence."""
        return FITTED if self.calibration else UNTRAINED

    def blindness(self) -> Iterator[str]:
        """Yield the limits of the score."""
        if self.calibration and self.calibration["method"] in ("stack", "gp", "blend"):
            yield SAMPLED
            return
        yield CORNERS
        if spots := self.space.blind_spots():
            yield f"Nor does it see {spots}."
        if "alpha" in self.question.options:
            yield ANY_ALPHA

    def sheets(self) -> list[Sheet]:
        entries = candidacies(self)
        places = {entry.choice.architecture.identity: place for place, entry in enumerate(entries)}
        cost, plan = cost_label(self.front.cost), self.question.training
        points = f"Each point is the best score that its {cost} bought. Pick one to see its layers and files."
        kind = "the best score" if self.front.complete else "an upper bound of the best score"
        kind = kind if self.certificate.optimal else "the best score seen"
        flat = f"Each point is {kind} at one depth and width, from {FLAT:g} % on."
        return [
            pairs("More of the pick", facts(self), on=(PAGE,)),
            Sheet(
                f"Score against {cost}", charts=[front(self, entries)], notes=[points], on=(PAGE, NOTEBOOK)
            ),
            *(
                [Sheet("How flat the optimum is", charts=[landscape(self)], notes=[flat], on=(PAGE,))]
                if len(self.plateau.landscape) > 1
                else []
            ),
            *([ridge(self)] if self.question.score == SHAPE_LAW else []),
            *([training(self, plan)] if plan else []),
            best(self, places),
            *([beside(self, self.baseline, places)] if self.baseline else []),
            *([by_vocabulary(self)] if self.vocabularies else []),
            *([by_baseline(self, places)] if self.baselines else []),
            bounds(self),
            *([latencies(self.latency)] if self.latency else []),
            Sheet("What this score cannot see", sentences=list(self.blindness()), on=(PAGE,)),
        ]


def costs(result: SearchResult) -> str:
    costs = result.pick.costs
    return ", ".join(f"{cost_label(name)} {show_cost(name, costs[name])}" for name in result.cost_names)


def difference(result: SearchResult, choice: Choice, other: Choice | None = None) -> float:
    """Return by how many per cent the score of a choice differs from that of another, or of the pick."""
    score = (other or result.pick).score
    return 100 * (choice.score - score) / abs(score or 1.0)


def facts(result: SearchResult) -> Iterator[tuple[str, str]]:
    """Yield what is known of the pick beyond its costs, by name."""
    about, pick, label, table = result.calibration, result.pick, result.best_label, result.latency
    below, plateau = difference(result, pick, result.best[0]), result.plateau
    if below <= -0.005:
        least = "the smallest KV cache, then the fewest MACs" if pick.costs["kv_bytes"] else "the fewest MACs"
        yield "score against the best", f"{below:.2f} %; of all within 1 % it has {least}"
    more = "" if result.certificate.counts == "exact" else "at least "
    ties, near = (more + show_count(count.value) for count in (plateau.ties, plateau.near_ties))
    yield "ties", f"{ties} with the best score, {near} within 1 % of it"
    if reference := result.baseline:
        yield f"score against {reference.name}", f"{difference(result, pick, reference.choice):+.2f} %"
        if reference.exclusions:
            yield f"{reference.name} is outside the space", ", ".join(reference.exclusions)
    if about:
        yield "score", f"fitted to {about['labels']} trained architectures ({about['method']})"
        if pick.expected:
            yield f"expected {about['metric']}", str(pick.expected)
        best = "none" if label is None else (
            f"{shape_text(label.choice.architecture)} ({about['metric']} {label.result:.4g}, score "
            f"{show_score(label.choice.score)})"
        )  # fmt: skip
        yield "best of the labels within the budgets", best
    if table:
        limit = result.question.budgets.get(f"max_{LATENCY}")
        whole = "not measured" if table.whole is None else f"{table.whole:,} us measured"
        beyond = limit is not None and table.whole is not None and table.whole > limit
        more = f", beyond the limit of {limit:,} us" if beyond else ""
        yield "latency", f"{pick.costs[LATENCY]:,} us by its parts, as a whole {whole}{more}"
    if plan := result.question.training:
        each, flops = plan.tokens / pick.costs["params"], train_flops(pick.costs["macs"], plan.tokens)
        law = f", the best by the law of {plan.law}" if plan.law else ""
        text = f"{show_amount(plan.tokens)} tokens{law}, {each:.3g} a parameter, {flops:.3g} operations"
        yield "training", text
    if result.question.score == SHAPE_LAW:
        yield from _shape_facts(result)


def _shape_facts(result: SearchResult) -> Iterator[tuple[str, str]]:
    """Yield the cost of the ratio of hidden to depth, and the pick's equivalent size compared with others."""
    tokens, pick = result.question.options.get("train_tokens"), result.pick.architecture
    best, cost = best_ratio(pick, tokens), show_loss(ratio_worth(pick, tokens))
    near = f"best about {best.value:.3g} ({best.low:.3g} to {best.high:.3g})"
    yield "hidden / depth", f"{pick.mean_width / pick.depth:.3g}, {near}: costs {cost} of the parameters"
    others = {f"the choice of {one.name}": one.choice for one in result.baselines if one.name in COUNTING}
    if result.baseline:
        others = {result.baseline.name: result.baseline.choice}
    for name, choice in others.items():
        if choice.architecture.choices != pick.choices:
            more = worth(pick, choice.architecture, tokens)
            gain = _percent(more.value - 1, more.low - 1, more.high - 1)
            yield f"as good as {name}", f"with {gain} more parameters"


def show_loss(share: ShapeEstimate) -> str:
    """Return the difference of a share of the parameters from all of them."""
    return _percent(1 - share.value, 1 - share.high, 1 - share.low)


def _percent(value: float, low: float, high: float) -> str:
    return f"{100 * value:.1f} % (95 %: {100 * low:.1f} to {100 * high:.1f})"


def shape_warnings(result: SearchResult) -> Iterator[str]:
    """Yield where the pick or its training lies beyond what ``shape_law`` was fitted to."""
    tokens, pick = result.question.options.get("train_tokens"), result.pick.architecture
    values = [("hidden / depth", pick.mean_width / pick.depth, RATIOS)]
    if tokens is not None:
        values.append(("tokens a parameter", tokens_a_parameter(pick, tokens), TOKENS_A_PARAMETER))
    for name, value, (low, high) in values if result.question.score == SHAPE_LAW else ():
        if not low <= value <= high:
            yield f"{name} {value:.3g} is beyond {low:g} to {high:,g}, which shape_law was fitted to"


def unbounded(result: SearchResult) -> Iterator[str]:
    """Yield that no budget limits the size of a pick whose score is not fitted to labels."""
    question = result.question
    if not question.budgets and question.baseline is None and result.calibration is None:
        params = show_amount(result.pick.costs["params"])
        yield f"no budget limits the size: the pick has {params} parameters; give one, as --max-params 125M"


def certificate_sentence(result: SearchResult) -> str:
    """Return the proven statement; for latencies it holds for the measured ones."""
    certificate, gap, method = result.certificate, result.certificate.gap, result.certificate.method
    size = f"{show_count(result.space.size())} architectures of {result.space.name}"
    if certificate.optimal:
        text = (
            f"Proven: of the {size} none within the budgets scores higher than the first of the list "
            f"({method}, {certificate.seconds:.2f} s)."
        )
    elif gap is not None:
        text = (
            f"Of the {size} none within the budgets scores more than {100 * gap:.3g} % above the first of "
            f"the list ({method})."
        )
    elif method == "exhaustive":
        text = f"Every shape of the {size} was looked at, each in one order of layers."
    else:
        text = f"Nothing is proven: {method} looked at a sample of the {size}."
    if result.latency and gap is not None:
        text += " Latencies are taken as they were measured on this machine; another run may measure others."
    return text


def searched(folder: Path) -> SearchReport:
    """Return the result that ``search --out`` wrote into a folder; ``ValueError`` where it holds no result of
    search."""
    report = load(folder)
    if not isinstance(report, SearchReport):
        raise ValueError(f"{str(folder)!r} holds no result of search, but of {report.command}")
    return report


def write_architecture(space: SearchSpace, choice: Choice, folder: Path) -> None:
    """Write ``architecture.json``, and ``config.json`` where a stock class builds it, into a new folder."""
    folder.mkdir()
    write_json(folder / "architecture.json", to_document(space, choice.architecture))
    stock = space.config(choice.architecture)
    if stock is not None:
        write_json(folder / "config.json", stock)


def best(result: SearchResult, places: Places) -> Sheet:
    title = f"The best {len(result.best)} shapes" if len(result.best) > 1 else "The best shape"
    return _choices(result, places, title, "rank", {str(i): one for i, one in enumerate(result.best, 1)})


def beside(result: SearchResult, reference: Reference, places: Places) -> Sheet:
    """Return the pick and the model that it was to better, and what the pick has of it."""
    pick, model = result.pick, reference.choice
    networks = {"pick": pick, reference.name: model}
    sheet = _choices(result, places, f"Compared with {reference.name}", "network", networks)
    shares = [f"{100 * pick.costs[cost] / (model.costs[cost] or 1):.4g} %" for cost in result.cost_names]
    change = f"{difference(result, pick, model):+.2f} %"
    expected = [""] * bool(pick.expected)
    return replace(sheet, rows=[*sheet.rows, ["pick against it", "", change, *shares, *expected]])


def by_baseline(result: SearchResult, places: Places) -> Sheet:
    """Return the networks that the baselines choose, with their scores against that of the pick."""
    title, chosen = "What the baselines choose within the same budgets", result.baselines
    sheet = _choices(result, places, title, "chosen by", {one.name: one.choice for one in chosen})
    changes = [f"{difference(result, one.choice):+.2f} %" for one in chosen]
    rows = [[*row[:2], change, *row[3:]] for row, change in zip(sheet.rows, changes, strict=True)]
    head: Row = [*sheet.head[:2], f"{result.question.score} against the pick", *sheet.head[3:]]
    return replace(sheet, head=head, rows=rows, kind="baselines")


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
    result: SearchResult, places: Places, title: str, first: str, named: Mapping[str, Choice]
) -> Sheet:
    """Return architectures with scores and costs, what labels expect of them, and their records' numbers."""
    about = result.calibration
    expected = [f"expected {about['metric']} (90 %)"] if about and result.pick.expected else []
    heads = [column_of(name).head for name in result.cost_names]
    head: Row = [first, Cell("shape", "shape"), result.question.score, *heads, *expected]
    rows: list[Row] = []
    for name, choice in named.items():
        record = places[choice.architecture.identity]
        shape = Cell(shape_text(choice.architecture), "shape", record=record)
        costs = [show_cost(cost, choice.costs[cost]) for cost in result.cost_names]
        value = choice.expected
        interval = Cell(f"{value.mean:.4g}", note=f"({value.interval})") if value else "-"
        row: list[Cell | str] = [name, shape, show_score(choice.score), *costs]
        rows.append([*row, interval] if expected else row)
    return Sheet(title, head, rows, kind="choices", on=(PAGE, TERMINAL, NOTEBOOK))


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
    note = "Operations of serving are not counted: train longer if the model will be served a lot."
    return Sheet("How long to train", head, rows, notes=[note])
