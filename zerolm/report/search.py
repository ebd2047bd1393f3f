"""One self-contained page that shows a search: what was chosen, what it costs, how flat the optimum is."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Any

from zerolm.costs import COSTS
from zerolm.report.page import BLUE, GREEN, GREY, INK, ORANGE, Cell, page, table
from zerolm.report.phrases import (
    certificate_sentence,
    cost_label,
    expectation_lines,
    show_cost,
    show_count,
    show_expected,
    show_score,
)
from zerolm.solvers import SearchResult
from zerolm.solvers.result import Choice
from zerolm.spaces.words import shape_text


def report(result: SearchResult) -> str:
    """The page as HTML, with plotly and all data inside."""
    title = f"zerolm search {result.space.name}"
    body = [
        f"<h1>{escape(title)}</h1>",
        f'<p class="lead">{escape(_question(result))}</p>',
        _pick_card(result),
        f"<p>{escape(certificate_sentence(result))}</p>",
        f"<h2>Score against {escape(cost_label(result.front.cost))}</h2>",
        _plot(_front_figure(result), first=True),
        f'<p class="note">{escape(_front_note(result))}</p>',
        "<h2>How flat the optimum is</h2>",
        _plot(_flatness_figure(result)),
        f'<p class="note">{escape(_flatness_note(result))}</p>',
        f"<h2>The best {len(result.best)} shapes</h2>",
        _best_table(result),
    ]
    if result.baselines:
        body += ["<h2>What the baselines choose within the same budgets</h2>", _baseline_table(result)]
    body += ["<h2>Bounds that cost score</h2>", _binding_table(result)]
    body += ["<h2>What this score cannot see</h2>", f"<p>{escape(_blind(result))}</p>"]
    return page(title, body)


def _question(result: SearchResult) -> str:
    asked = result.question
    limits = ", ".join(f"{name} {show_cost(name[4:], value)}" for name, value in asked.budgets.items())
    options = "".join(f", {name} {value}" for name, value in asked.options.items())
    conditions = (
        f"costs at a context of {asked.conditions['context']}, batch {asked.conditions['batch']}, "
        f"{asked.conditions['bits']}-bit weights, {asked.conditions['kv_bits']}-bit cache"
    )
    return f"Score {asked.score}{options}; {limits or 'no budget'}; {conditions}."


def _pick_card(result: SearchResult) -> str:
    pick, best = result.pick, result.best[0]
    relative = 100.0 * (pick.score - best.score) / abs(best.score) if best.score else 0.0
    costs = "; ".join(f"{cost_label(name)} {show_cost(name, pick.costs[name])}" for name in COSTS)
    if relative >= -1e-7:
        why = "It is the best by score, and of all within 1 % of it the one with the smallest KV cache."
    else:
        why = (
            f"Its score is {-relative:.2f} % below the best; of all within 1 % it has the smallest KV cache, "
            "then the fewest MACs."
        )
    return (
        f'<div class="card"><p>Pick: <b class="big">{escape(shape_text(pick.architecture))}</b></p>'
        f"<p>{escape(costs)}</p>{_expectation(result)}<p>{escape(why)}</p></div>"
    )


def _expectation(result: SearchResult) -> str:
    warnings = result.calibration["warnings"] if result.calibration else []
    lines = [*expectation_lines(result), *(f"warning: {warning}" for warning in warnings)]
    return "".join(f"<p>{escape(line[0].upper() + line[1:])}.</p>" for line in lines)


def _hover(choice: Choice) -> str:
    return f"{shape_text(choice.architecture)}<br>score {show_score(choice.score)}"


def _points(choices: Sequence[Choice], cost: str, names: Sequence[str] = (), **look: Any) -> Any:
    import plotly.graph_objects as go

    names = names or [""] * len(choices)
    return go.Scatter(
        x=[choice.costs[cost] for choice in choices],
        y=[choice.score for choice in choices],
        hovertext=[name + _hover(choice) for name, choice in zip(names, choices, strict=True)],
        hoverinfo="text",
        **look,
    )


def _front_figure(result: SearchResult) -> Any:
    import plotly.graph_objects as go

    cost, figure = result.front.cost, go.Figure()
    figure.add_hrect(
        y0=result.best[0].score - 0.01 * abs(result.best[0].score),
        y1=result.best[0].score,
        fillcolor=ORANGE,
        opacity=0.13,
        line_width=0,
    )
    line = {"color": BLUE, "width": 2, "shape": "hv"}
    mode = "lines" if len(result.front.points) > 200 else "lines+markers"
    figure.add_trace(
        _points(result.front.points, cost, mode=mode, line=line, marker={"size": 5}, name="front")
    )
    limit = result.question.budgets.get(f"max_{cost}")
    if limit is not None:
        figure.add_vline(
            x=limit,
            line={"color": GREY, "dash": "dash"},
            annotation_text="budget",
            annotation_position="top left",
        )
    figure.add_trace(
        _points(
            [baseline.choice for baseline in result.baselines],
            cost,
            names=[f"chosen by {baseline.name}: " for baseline in result.baselines],
            mode="markers",
            marker={"symbol": "x-thin-open", "size": 11, "color": GREY, "line": {"width": 2}},
            name="what baselines choose",
        )
    )
    figure.add_trace(
        _points(
            result.best,
            cost,
            mode="markers",
            name=f"best {len(result.best)}",
            marker={"size": 9, "color": GREEN, "line": {"width": 1, "color": "white"}},
        )
    )
    figure.add_trace(
        _points(
            [result.pick],
            cost,
            mode="markers",
            name="pick",
            marker={"symbol": "star", "size": 17, "color": ORANGE, "line": {"width": 1, "color": "white"}},
        )
    )
    return _styled(figure, cost_label(cost), f"score ({result.question.score})")


def _flatness_figure(result: SearchResult) -> Any:
    import plotly.graph_objects as go

    best, figure = result.best[0].score, go.Figure()
    share = [
        100.0 * (1.0 + (p.score - best) / abs(best)) if best else 100.0 for p in result.plateau.landscape
    ]
    figure.add_hrect(y0=99, y1=100, fillcolor=ORANGE, opacity=0.13, line_width=0)
    colour = {
        "color": [peak.width for peak in result.plateau.landscape],
        "colorscale": "Viridis",
        "size": 9,
        "colorbar": {"title": "width"},
        "showscale": len({p.width for p in result.plateau.landscape}) > 1,
    }
    figure.add_trace(
        go.Scatter(
            x=[peak.depth for peak in result.plateau.landscape],
            y=share,
            mode="markers",
            marker=colour,
            hovertext=[
                f"{p.depth} layers of width {p.width:.6g}: {s:.2f} % of the best"
                for p, s in zip(result.plateau.landscape, share, strict=True)
            ],
            hoverinfo="text",
            showlegend=False,
        )
    )
    pick = result.pick
    figure.add_trace(
        go.Scatter(
            x=[pick.architecture.depth],
            y=[100.0 * (1.0 + (pick.score - best) / abs(best)) if best else 100.0],
            mode="markers",
            hovertext=[_hover(pick)],
            hoverinfo="text",
            name="pick",
            marker={"symbol": "star", "size": 17, "color": ORANGE, "line": {"width": 1, "color": "white"}},
            showlegend=False,
        )
    )
    figure.update_yaxes(range=[70.0, 101.0])
    return _styled(figure, "layers", "best score within budget, % of the best")


def _styled(figure: Any, x: str, y: str) -> Any:
    figure.update_layout(
        template="plotly_white",
        height=430,
        margin={"l": 70, "r": 30, "t": 25, "b": 55},
        font={"color": INK},
        legend={"x": 0.01, "y": 0.99, "bgcolor": "rgba(255,255,255,.7)"},
        xaxis_title=x,
        yaxis_title=y,
    )
    return figure


def _plot(figure: Any, first: bool = False) -> str:
    return str(figure.to_html(full_html=False, include_plotlyjs=first, config={"displaylogo": False}))


def _front_note(result: SearchResult) -> str:
    kind = "Every" if result.front.complete else "Each drawn"
    verb = "can buy" if result.certificate.optimal else "bought among the architectures looked at"
    return (
        f"{kind} point of the line is the best score that its {cost_label(result.front.cost)} {verb} "
        f"({len(result.front.points)} points). The band holds all within 1 % of the best. Crosses: what "
        "the baseline scores choose within the same budgets."
    )


def _flatness_note(result: SearchResult) -> str:
    kind = "the best" if result.front.complete else "an upper bound of the best"
    kind = kind if result.certificate.optimal else "the best that was seen"
    more = "" if result.certificate.counts == "exact" else "at least "
    near, ties = show_count(result.plateau.near_ties.value), show_count(result.plateau.ties.value)
    return (
        f"Each point is {kind} at one depth and width; those below 70 % are not drawn. Architectures within "
        f"1 % of the best score: {more}{near}; with that very score: {more}{ties} (orders of layers and "
        "unseen choices counted). The wider this plateau, the less the score says about depth against width."
    )


def _best_table(result: SearchResult) -> str:
    rows: list[list[Cell | str]] = [
        [
            str(rank),
            Cell(shape_text(choice.architecture), "shape"),
            show_score(choice.score),
            *(show_cost(name, choice.costs[name]) for name in COSTS),
            *([show_expected(choice.expected)] if choice.expected else []),
        ]
        for rank, choice in enumerate(result.best, 1)
    ]
    about = result.calibration
    expected = [f"expected {about['metric']}"] if about and result.pick.expected else []
    return table(["", Cell("shape", "shape"), "score", *map(cost_label, COSTS), *expected], rows)


def _baseline_table(result: SearchResult) -> str:
    best = result.best[0].score
    rows: list[list[Cell | str]] = [
        [
            b.name,
            Cell(shape_text(b.choice.architecture), "shape"),
            f"{100 * (b.choice.score - best) / abs(best or 1.0):+.2f} %",
            *(show_cost(name, b.choice.costs[name]) for name in COSTS),
        ]
        for b in result.baselines
    ]
    return table(
        ["baseline", Cell("its choice", "shape"), result.question.score, *map(cost_label, COSTS)], rows
    )


def _binding_table(result: SearchResult) -> str:
    if not result.bounds.tested:
        return "<p>Not tested: that takes a score that adds up over layers, and a proven optimum.</p>"
    if not result.bounds.binding:
        return "<p>None that was tested: no budget and no bound on shapes holds the best score down.</p>"
    rows = [
        [
            b.bound,
            b.kind,
            show_cost(b.bound[4:], int(b.relaxed_to)) if b.kind == "budget" else f"{b.relaxed_to:g}",
            f"{100 * b.gain:+.2f} %",
        ]
        for b in result.bounds.binding
    ]
    note = (
        '<p class="note">Each bound alone made 10 % wider (at least one step), everything else as it is.</p>'
    )
    return table(["bound", "kind", "widened to", "best score"], rows) + note


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
        f"above matter.{alpha} Train several of the best, not one."
    )
