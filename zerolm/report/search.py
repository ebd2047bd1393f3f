"""The page of a search: what was picked, what counting would pick, what it costs, how flat the optimum is."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from html import escape
from typing import Any, Final

from zerolm.costs import LATENCY
from zerolm.report.chart import LINEAR, Axis, Frame, Plot, axis, legend, linked
from zerolm.report.evidence import record_of
from zerolm.report.page import Cell, Heading, note, page, paragraphs, section, table
from zerolm.report.phrases import (
    against_counting,
    baseline_sentence,
    certificate_sentence,
    cost_label,
    expectation_lines,
    latency_lines,
    show_cost,
    show_count,
    show_expected,
    show_score,
    vocabularies_sentence,
)
from zerolm.report.search_records import candidacies, detail, key
from zerolm.solvers import SearchResult
from zerolm.solvers.result import Binding, Choice, LatencyTable, Reference
from zerolm.spaces.words import shape_text

FLAT: Final = 70.0
"""Percent of the best score, below which the landscape is not drawn."""
SPREAD: Final = 100.0
"""A front that spreads less is drawn on linear axes, which show more of its better end."""


def search_page(result: SearchResult, configuration: Mapping[str, Any] | None = None) -> str:
    """Return the page as HTML, with all data inside; ``configuration`` is what ``run.yaml`` holds."""
    shown = candidacies(result)
    places = {key(entry.choice): place for place, entry in enumerate(shown)}
    warnings = result.calibration["warnings"] if result.calibration else []
    expected = [
        *latency_lines(result),
        *expectation_lines(result),
        *(f"warning: {warning}" for warning in warnings),
    ]
    heading = Heading(
        f"zerolm search {result.space.name}",
        f"The pick: {shape_text(result.pick.architecture)}",
        _question(result),
        " ".join([_costs(result), _why(result), *(f"{_capital(line)}." for line in expected)]),
        " ".join(
            filter(None, [baseline_sentence(result), vocabularies_sentence(result), against_counting(result)])
        ),
        f"{certificate_sentence(result)} {_limits(result)}",
    )
    picture = linked(
        _front(result),
        [Plot(_frame(result), [_point(result, entry.choice) for entry in shown])],
        [shape_text(entry.choice.architecture) for entry in shown],
        f"Architectures by {cost_label(result.front.cost)}",
        [
            ("", [entry.words for entry in shown]),
            (result.question.score, [show_score(entry.choice.score) for entry in shown]),
        ],
        detailed=True,
    )
    body = [
        section(
            f"Score against {cost_label(result.front.cost)}",
            f'<div class="beside"><div>{picture}{note(_front_note(result))}</div>',
            f"{detail(result, shown)}</div>",
        ),
        section("How flat the optimum is", _landscape(result), note(_flatness_note(result))),
        section(f"The best {len(result.best)} shapes", _best_table(result, places)),
    ]
    if result.baseline:
        body.append(section(f"Beside {result.baseline.name}", _beside_table(result, result.baseline, places)))
    if result.vocabularies:
        body.append(section("By vocabulary, for the same text", _vocabulary_table(result)))
    if result.baselines:
        body.append(
            section("What the baselines choose within the same budgets", _baseline_table(result, places))
        )
    body.append(section("Bounds that cost score", _binding_table(result)))
    if result.latency:
        body.append(section("Latencies of the parts", _latency_table(result.latency)))
    body.append(section("What this score cannot see", paragraphs([_blind(result)])))
    return page(heading, body, configuration)


def search_fragment(result: SearchResult) -> str:
    """Return a small table and the front as HTML without style or script, for a notebook."""
    chosen = {b.name: b.choice for b in result.baselines if b.name in ("params", "body_params")}
    beside = [(result.baseline.name, result.baseline.choice)] if result.baseline else []
    rows = [
        ("pick", result.pick),
        *beside,
        *((f"chosen by {name}", choice) for name, choice in chosen.items()),
    ]
    lines = ([name, *_cells(result, choice, show_score(choice.score))] for name, choice in rows)
    head = _head(result, result.space.name, "shape")
    return (
        f'<div style="max-width:720px">{table(head, lines)}<p>{escape(against_counting(result))}</p>'
        f"{_front(result, narrow=True)}</div>"
    )


def _capital(line: str) -> str:
    return line[:1].upper() + line[1:]


def _question(result: SearchResult) -> str:
    asked = result.question
    limits = ", ".join(f"{name} {show_cost(name[4:], value)}" for name, value in asked.budgets.items())
    options = "".join(f", {name} {value}" for name, value in asked.options.items())
    conditions = (
        f"costs at a context of {asked.conditions['context']}, batch {asked.conditions['batch']}, "
        f"{asked.conditions['bits']}-bit weights, {asked.conditions['kv_bits']}-bit cache"
    )
    return f"Score {asked.score}{options}; {limits or 'no budget'}; {conditions}."


def _costs(result: SearchResult) -> str:
    shown = {name: show_cost(name, result.pick.costs[name]) for name in result.cost_names}
    return (
        f"{shown['params']} parameters ({shown['body_params']} in the body), {shown['macs']} MACs a token, "
        f"{shown['kv_bytes']} of KV cache and {shown['weight_bytes']} of weights."
    )


def _why(result: SearchResult) -> str:
    pick, best = result.pick, result.best[0]
    relative = 100.0 * (pick.score - best.score) / abs(best.score) if best.score else 0.0
    if relative >= -1e-7 and not result.certificate.optimal:
        return "It is the best by score of all that were looked at."
    if relative >= -1e-7:
        return "It is the best by score, and of all within 1 % of it the one with the smallest KV cache."
    return (
        f"Its score is {-relative:.2f} % below the best; of all within 1 % it has the smallest KV cache, "
        "then the fewest MACs."
    )


def _limits(result: SearchResult) -> str:
    if result.calibration:
        return "A score fitted to few labels ranks what lies near them: train several of the best, not one."
    return f"{record_of(result.question.score)} It has seen no training: train several of the best, not one."


def _point(result: SearchResult, choice: Choice) -> tuple[float, float]:
    return choice.costs[result.front.cost], choice.score


def _frame(result: SearchResult) -> Frame:
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
    y = axis([choice.score for choice in drawn], f"score ({result.question.score})", wide=SPREAD)
    return Frame(x, y, 340)


def _front(result: SearchResult, narrow: bool = False) -> str:
    frame, best = _frame(result), result.best[0].score
    marks = [frame.band(best - 0.01 * abs(best), best, "orange")]
    points = [_point(result, choice) for choice in result.front.points]
    if points:
        marks.append(frame.line(points, "blue", step=True))
        marks.append(frame.dots(points, "blue", size=5) if len(points) <= 200 else "")
    limit = result.question.budgets.get(f"max_{result.front.cost}")
    if limit is not None:
        marks.append(frame.limit(limit, "budget"))
    marks += [
        frame.mark("cross", _point(result, b.choice), "ink", f"chosen by {b.name}") for b in result.baselines
    ]
    marks += [frame.mark("dot", _point(result, choice), "green") for choice in result.best]
    keys = [("star", "orange", "pick")]
    if result.baseline:
        point = _point(result, result.baseline.choice)
        marks.append(frame.mark("dot", point, "ink", result.baseline.name))
        keys.append(("dot", "ink", result.baseline.name))
    marks.append(frame.mark("star", _point(result, result.pick), "orange", "pick"))
    keys += [
        ("dot", "green", f"best {len(result.best)}"),
        ("bar", "blue", "front"),
        ("cross", "ink", "chosen by baselines"),
        ("band", "orange", "within 1 % of the best"),
    ]
    label = f"The best {result.question.score} that each {cost_label(result.front.cost)} buys, with the pick"
    return legend(*keys) + frame.html(marks, label, narrow=narrow)


def _landscape(result: SearchResult) -> str:
    best, pick = result.best[0].score, result.pick

    def share(score: float) -> float:
        return 100.0 * (1.0 + (score - best) / abs(best)) if best else 100.0

    peaks = [peak for peak in result.plateau.landscape if share(peak.score) >= FLAT]
    points = [(float(peak.depth), share(peak.score)) for peak in peaks]
    here = (float(pick.architecture.depth), share(pick.score))
    x = axis([*(x for x, _ in points), here[0]], "layers", wide=LINEAR)
    low = min([99.0, here[1], *(y for _, y in points)])
    frame = Frame(x, Axis(low - 1, 101.0, "best score at a depth and width, % of the best"), 280)
    marks = [frame.band(99.0, 100.0, "orange"), frame.dots(points, "blue", size=8, opacity=0.75)]
    marks.append(frame.mark("star", here, "orange", "pick"))
    keys = legend(("star", "orange", "pick"), ("dot", "blue", "one depth and width"),
                  ("band", "orange", "within 1 % of the best"))  # fmt: skip
    drawn = keys + frame.html(marks, "The best score at each depth and width, in percent of the best")
    names = [f"{peak.depth} layers of width {peak.width:.6g}" for peak in peaks]
    columns = [("% of the best", [f"{y:.2f}" for _, y in points])]
    return linked(drawn, [Plot(frame, points, columns)], names, "Depths and widths")


def _front_note(result: SearchResult) -> str:
    kind = "Every" if result.front.complete else "Each drawn"
    verb = "can buy" if result.certificate.optimal else "bought among the architectures looked at"
    return (
        f"{kind} point of the line is the best score that its {cost_label(result.front.cost)} {verb} "
        f"({len(result.front.points)} points). Pick a point to see its layers, costs and files; arrow keys "
        "move along the points."
    )


def _flatness_note(result: SearchResult) -> str:
    kind = "the best" if result.front.complete else "an upper bound of the best"
    kind = kind if result.certificate.optimal else "the best that was seen"
    more = "" if result.certificate.counts == "exact" else "at least "
    near, ties = show_count(result.plateau.near_ties.value), show_count(result.plateau.ties.value)
    return (
        f"Each point is {kind} at one depth and width; those below {FLAT:g} % are not drawn. Architectures "
        f"within 1 % of the best score: {more}{near}; with that very score: {more}{ties} (orders of layers "
        "and unseen choices counted). The wider this plateau, the less the score says of depth against width."
    )


def _head(result: SearchResult, first: str, shape: str) -> list[Cell | str]:
    return [first, Cell(shape, "shape"), result.question.score, *map(cost_label, result.cost_names)]


def _cells(result: SearchResult, choice: Choice, score: str, record: int | None = None) -> list[Cell | str]:
    """Return shape, score and costs, the shape with the number of its record."""
    shape = Cell(shape_text(choice.architecture), "shape", record=record)
    return [shape, score, *(show_cost(name, choice.costs[name]) for name in result.cost_names)]


def _best_table(result: SearchResult, places: Mapping[str, int]) -> str:
    ranked = ((str(rank), choice) for rank, choice in enumerate(result.best, 1))
    return _choices_table(result, places, "rank", ranked)


def _beside_table(result: SearchResult, baseline: Reference, places: Mapping[str, int]) -> str:
    """Return the pick and the model that it was to better."""
    beside = (("pick", result.pick), (baseline.name, baseline.choice))
    return _choices_table(result, places, "beside", beside)


def _vocabulary_table(result: SearchResult) -> str:
    """Return the best with every vocabulary that was listed."""
    names = ("params", "macs", "kv_bytes")
    rows: list[list[Cell | str]] = []
    for one in result.vocabularies:
        shape, best = "nothing within the budgets", [""] * (1 + len(names))
        if one.score is not None and one.costs is not None:
            shape, costs = one.shape, one.costs
            best = [show_score(one.score), *(show_cost(name, costs[name]) for name in names)]
        told = [f"{one.bytes_per_token:.3f}", str(one.context)]
        rows.append([str(one.vocab), Cell(shape, "shape"), *best, *told])
    score, own = result.question.score, ["bytes a token", "context"]
    head: list[Cell | str] = ["vocabulary", Cell("the best", "shape"), score, *map(cost_label, names), *own]
    return table(head, rows, "vocabularies") + note(
        f"Budgets and context were asked for tokens of the vocabulary {result.vocabularies[0].vocab}; those "
        "of another are for the same text, and above are those of the chosen one."
    )


def _choices_table(
    result: SearchResult, places: Mapping[str, int], kind: str, named: Iterable[tuple[str, Choice]]
) -> str:
    """Return named architectures with their scores and costs, and what labels expect of them."""
    rows: Iterable[list[Cell | str]] = (
        [
            name,
            *_cells(result, choice, show_score(choice.score), places[key(choice)]),
            *([show_expected(choice.expected)] if choice.expected else []),
        ]
        for name, choice in named
    )
    about = result.calibration
    expected = [f"expected {about['metric']}"] if about and result.pick.expected else []
    return table([*_head(result, kind, "shape"), *expected], rows, "best" if kind == "rank" else kind)


def _baseline_table(result: SearchResult, places: Mapping[str, int]) -> str:
    best = result.best[0].score
    scale = abs(best or 1.0)
    rows = (
        [
            baseline.name,
            *_cells(result, choice, f"{100 * (choice.score - best) / scale:+.2f} %", places[key(choice)]),
        ]
        for baseline, choice in ((baseline, baseline.choice) for baseline in result.baselines)
    )
    return table(_head(result, "baseline", "its choice"), rows, "baselines")


def _binding_table(result: SearchResult) -> str:
    if not result.bounds.tested:
        return "<p>Not tested: that takes a score that adds up over layers, and a proven optimum.</p>"
    free = "".join(
        note(text)
        for text in (
            f"Relaxed, these cost nothing: {', '.join(result.bounds.free)}." if result.bounds.free else "",
            *(
                f"No architecture of the space has {name} {', '.join(map(str, values))}."
                for name, values in result.space.unused().items()
            ),
        )
        if text
    )
    if not result.bounds.binding:
        return "<p>None: no budget and no bound on shapes holds the best score down.</p>" + free
    binding = result.bounds.binding
    rows = [[b.bound, b.kind, _relaxed(b), b.better, b.words] for b in binding]
    return (
        table(["bound", "kind", "relaxed to", "best score", "best shape then"], rows, "bounds")
        + note(
            "Each bound alone, everything else as it is: ranges opened whole, any other 10 % wider (at least "
            "one step)."
        )
        + free
    )


def _relaxed(bound: Binding) -> str:
    to = bound.relaxed_to
    if isinstance(to, str):
        return to
    return show_cost(bound.bound[4:], int(to)) if bound.kind == "budget" else f"{to:g}"


def _latency_table(latency: LatencyTable) -> str:
    """Return the table that the latency of every path adds up from."""
    parts = [
        (", ".join(f"{name} {value}" for name, value in row.items() if name != LATENCY), row[LATENCY])
        for row in latency.layers
    ]
    rows = [
        (part, show_cost(LATENCY, value)) for part, value in [("embedding and head", latency.ends), *parts]
    ]
    return table(["part", cost_label(LATENCY)], rows, "latencies") + note(
        "The latency of an architecture is the sum of its layers and of embedding and head. Layers of equal "
        "shapes do the same work: one of them was timed."
    )


def _blind(result: SearchResult) -> str:
    spots = result.space.blind_spots()
    alpha = (
        " A fixed alpha suits no two spaces: on published results the useful one runs from 0 to 1.1."
        if "alpha" in result.question.options
        else ""
    )
    about = result.calibration
    if about and about["method"] in ("stack", "gp", "blend"):
        return (
            f"The score was fitted to {about['labels']} trained architectures and knows no others: expect "
            "little of it beyond their range, and train several of the best, not one. Only some of the space "
            "was looked at, and of equal shapes only one choice of what the shape leaves open."
        )
    return (
        f"The score reads shapes at random initialisation. It does not see {spots or 'anything but shapes'}, "
        "nor data, nor training; left alone it runs into the corners of a space, which is why the bounds "
        f"above matter.{alpha}"
    )
