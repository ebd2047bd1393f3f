"""Charts of a search: the front with a record of each architecture, and how flat the optimum is."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

from zerolm.architecture import Architecture
from zerolm.cost_columns import cost_label
from zerolm.costs import CostModel
from zerolm.scores import SCORES
from zerolm.show.charts import (
    LINEAR,
    Axis,
    Band,
    Dots,
    Key,
    LayerSizes,
    Limit,
    Line,
    Linked,
    Mark,
    Pair,
    Plot,
    Record,
    Records,
    Sign,
    axis,
)
from zerolm.show.strip import quoted
from zerolm.show.text import show_cost, show_score
from zerolm.solvers.result import Choice, SearchResult
from zerolm.spaces import SPACES, shape_text
from zerolm.spaces.document import from_document, to_document
from zerolm.spaces.subnetworks import heads_of

FRONT_POINTS: Final = 150
"""Points of the front that can be picked, evenly spread; the line is drawn of all."""
DOTTED: Final = 200
"""Points of a front that are drawn one by one; of more the line says it all."""
FLAT: Final = 70.0
"""Per cent of the best score, below which the landscape is not drawn."""
SPREAD: Final = 100.0
"""A front that spreads less is drawn on linear axes, which show more of its better end."""
HEAD_CHOICES: Final = ("heads", "n_head", "num_heads", "num_operation_heads")
"""What spaces call the number of heads."""
WRITTEN: Final = "architecture.json"
CHOSEN: Final = "chosen by "


@dataclass(frozen=True, slots=True)
class Candidacy:
    """An architecture that a page shows, and its parts there: pick, best 3, chosen by params."""

    choice: Choice
    roles: list[str]

    @property
    def words(self) -> str:
        """Return its parts in one line, the baselines together."""
        chosen = [role.removeprefix(CHOSEN) for role in self.roles if role.startswith(CHOSEN)]
        others = [role for role in self.roles if not role.startswith(CHOSEN)]
        return ", ".join([*others, *([CHOSEN + ", ".join(chosen)] if chosen else [])])


def candidacies(result: SearchResult) -> list[Candidacy]:
    """Return every architecture that can be picked once, the pick first."""
    points = result.front.points
    count = min(len(points), FRONT_POINTS)
    front = [points[place * (len(points) - 1) // max(count - 1, 1)] for place in range(count)]
    named = [
        ("pick", result.pick),
        *([(f"baseline {result.baseline.name}", result.baseline.choice)] if result.baseline else []),
        *((f"best {rank}", choice) for rank, choice in enumerate(result.best, 1)),
        *((CHOSEN + baseline.name, baseline.choice) for baseline in result.baselines),
        *(("front", choice) for choice in front),
    ]
    entries: dict[str, Candidacy] = {}
    for role, choice in named:
        entries.setdefault(choice.architecture.identity, Candidacy(choice, [])).roles.append(role)
    return list(entries.values())


def front(result: SearchResult, entries: Sequence[Candidacy]) -> Linked:
    """Return the best score that each cost buys, with the pick, the best, the baselines, and all records."""
    label = cost_label(result.front.cost)
    plot = Plot(
        f"The best {result.question.score} that each {label} buys, with the pick",
        *_axes(result),
        _marks(result),
        _keys(result),
        340,
        points=[_point(result, entry.choice) for entry in entries],
    )
    return Linked(
        [plot],
        [shape_text(entry.choice.architecture) for entry in entries],
        f"Architectures by {label}",
        [
            ("", [entry.words for entry in entries]),
            (result.question.score, [show_score(entry.choice.score) for entry in entries]),
        ],
        records(result, entries),
    )


def _point(result: SearchResult, choice: Choice) -> Pair:
    return choice.costs[result.front.cost], choice.score


def _axes(result: SearchResult) -> tuple[Axis, Axis]:
    cost = result.front.cost
    drawn = [*result.front.points, *result.best, result.pick, *(b.choice for b in result.baselines)]
    drawn += [result.baseline.choice] if result.baseline else []
    limit = result.question.budgets.get(f"max_{cost}")
    x = axis(
        [choice.costs[cost] for choice in drawn] + ([limit] if limit else []),
        cost_label(cost),
        wide=SPREAD,
        form=lambda value: show_cost(cost, round(value)),
    )
    return x, axis([choice.score for choice in drawn], f"score ({result.question.score})", wide=SPREAD)


def _marks(result: SearchResult) -> list[Mark]:
    best, reference = result.best[0].score, result.baseline
    marks: list[Mark] = [Band(best - 0.01 * abs(best), best, "orange")]
    points = [_point(result, choice) for choice in result.front.points]
    if points:
        marks.append(Line(points, "blue", step=True))
        marks += [Dots(points, "blue", 5)] if len(points) <= DOTTED else []
    limit = result.question.budgets.get(f"max_{result.front.cost}")
    if limit is not None:
        marks.append(Limit(limit, "budget"))
    marks += [Sign("cross", _point(result, b.choice), "ink", CHOSEN + b.name) for b in result.baselines]
    marks += [Sign("dot", _point(result, choice), "green") for choice in result.best]
    if reference:
        marks.append(Sign("dot", _point(result, reference.choice), "ink", reference.name))
    return [*marks, Sign("star", _point(result, result.pick), "orange", "pick")]


def _keys(result: SearchResult) -> list[Key]:
    return [
        ("star", "orange", "pick"),
        *([("dot", "ink", result.baseline.name)] if result.baseline else []),
        ("dot", "green", f"best {len(result.best)}"),
        ("bar", "blue", "front"),
        *([("cross", "ink", "chosen by baselines")] if result.baselines else []),
        ("band", "orange", "within 1 % of the best"),
    ]


def landscape(result: SearchResult) -> Linked:
    """Return the best score at each depth and width, in per cent of the best."""
    best, pick = result.best[0].score, result.pick

    def share(score: float) -> float:
        return 100.0 * (1.0 + (score - best) / abs(best)) if best else 100.0

    peaks = [peak for peak in result.plateau.landscape if share(peak.score) >= FLAT]
    points = [(float(peak.depth), share(peak.score)) for peak in peaks]
    here = (float(pick.architecture.depth), share(pick.score))
    low = min([99.0, here[1], *(y for _, y in points)])
    plot = Plot(
        "The best score at each depth and width, in percent of the best",
        axis([*(x for x, _ in points), here[0]], "layers", wide=LINEAR),
        Axis(low - 1, 101.0, "best score at a depth and width, % of the best"),
        [
            Band(99.0, 100.0, "orange"),
            Dots(points, "blue", 8, 0.75),
            Sign("star", here, "orange", "pick"),
        ],
        [
            ("star", "orange", "pick"),
            ("dot", "blue", "one depth and width"),
            ("band", "orange", "within 1 % of the best"),
        ],
        280,
        points=points,
        columns=[("% of the best", [f"{y:.2f}" for _, y in points])],
    )
    names = [f"{peak.depth} layers of width {peak.width:.6g}" for peak in peaks]
    return Linked([plot], names, "Depths and widths")


def records(result: SearchResult, entries: Sequence[Candidacy]) -> Records:
    """Return the records of a page; the file of one is empty where no stock class builds it."""
    before, after = rebuilding(result)
    rows = []
    for entry in entries:
        architecture = entry.choice.architecture
        stock = result.space.config(architecture)
        rows.append(
            Record(
                entry.words,
                shape_text(architecture),
                [value for _, value in _values(result, entry.choice)],
                layer_sizes(architecture),
                choices_text(entry.choice),
                [] if stock is None else json.dumps(stock, indent=2).splitlines(),
            )
        )
    names, caption = [name for name, _ in _values(result, result.pick)], "Its file, and its scores and costs:"
    return Records("The architecture that is picked", names, before, after, caption, "config.json", rows)


def _values(result: SearchResult, choice: Choice) -> list[tuple[str, str]]:
    """Return score and costs of an architecture, and what labels expect of it, with their names."""
    rows = [(result.question.score, show_score(choice.score))]
    rows += [(cost_label(name), show_cost(name, choice.costs[name])) for name in result.cost_names]
    if result.calibration and result.pick.expected:
        text = str(choice.expected) if choice.expected else "not computed"
        rows.append((f"expected {result.calibration['metric']}", text))
    return rows


def choices_text(choice: Choice) -> str:
    """Return the choices of an architecture as the command of its record takes them."""
    return json.dumps(choice.architecture.choices, separators=(",", ":"))


def rebuilding(result: SearchResult) -> tuple[str, str]:
    """Return the command that writes an architecture's file and scores it, before and behind its choices."""
    document = {"space": result.space.name, "settings": _settings(result), "architecture": 0}
    head = json.dumps(document, separators=(",", ":"))
    query, usual = result.question, asdict(CostModel())
    flags = [f"--score {query.score}"] if query.score in SCORES else []
    conditions = {name: value for name, value in query.conditions.items() if usual.get(name) != value}
    for name, value in {**query.options, **conditions}.items():
        flags.append(f"--{name.replace('_', '-')} {shlex.quote(str(value))}")
    tail = " ".join(["zerolm score", WRITTEN, *flags])
    return f"printf %s '{quoted(head[:-2])}", f"}}' > {WRITTEN} && {tail}"


def _settings(result: SearchResult) -> Mapping[str, Any]:
    """Return the settings that are not the space's own, all of them where those read the pick otherwise."""
    space, pick = result.space, result.pick.architecture
    try:
        usual = list(type(space)().settings.items())
        few = dict(item for item in space.settings.items() if item not in usual)
        read = from_document({**to_document(space, pick), "settings": few})
    except (TypeError, ValueError):
        return space.settings
    return few if read == pick else space.settings


def layer_sizes(architecture: Architecture) -> list[LayerSizes]:
    sizes = []
    for layer, heads in zip(architecture.layers, head_counts(architecture), strict=True):
        inner = (m.rows if m.cols == layer.width else m.cols for m in layer.matrices if m.role == "ffn")
        ffn = max(inner, default=0)
        sizes.append(LayerSizes(layer.width, layer.query_width, layer.kv_width, heads, ffn))
    return sizes


def head_counts(architecture: Architecture) -> list[int]:
    """Return the heads of each layer from the choices; 0 where they lack them."""
    if architecture.space in SPACES and SPACES[architecture.space].is_of_one_parent:
        return heads_of(architecture)[0]
    choices, depth = architecture.choices, architecture.depth
    layers = choices.get("encoder_layers", choices.get("layers"))
    layers = layers if isinstance(layers, list) and len(layers) == depth else [choices] * depth
    counts = []
    for place, layer in enumerate(layers):
        heads: Any = next((layer[name] for name in HEAD_CHOICES if name in layer), 0)
        if isinstance(heads, list):
            stages = choices.get("depth")
            if len(heads) != depth and isinstance(stages, list) and len(stages) == len(heads):
                heads = [count for count, repeat in zip(heads, stages, strict=True) for _ in range(repeat)]
            heads = heads[place] if len(heads) == depth else 0
        queries = architecture.layers[place].query_width
        counts.append(heads if isinstance(heads, int) and heads and queries % heads == 0 else 0)
    return counts
