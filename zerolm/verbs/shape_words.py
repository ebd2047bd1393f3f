"""Sentences about depth against width by shape_law: what a ratio costs, and how well that is known."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

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
from zerolm.show.sheet import PAGE, Row, Sheet
from zerolm.solvers.result import SearchResult
from zerolm.verbs.search_words import COUNTING

SCORE: Final = "shape_law"
TIMES: Final = (0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 10.0)
"""Ratios to the best hidden / depth for which costs are shown."""


def shape_lines(result: SearchResult) -> Iterator[str]:
    """Yield the cost of the ratio of hidden to depth, and the pick's equivalent size compared with others."""
    if result.question.score != SCORE:
        return
    tokens, pick = result.question.options.get("train_tokens"), result.pick.architecture
    best, lost = best_ratio(pick, tokens), ratio_worth(pick, tokens)
    cost = ShapeEstimate(1 - lost.value, 1 - lost.high, 1 - lost.low)
    yield (
        f"hidden / depth {pick.mean_width / pick.depth:.3g}, best about {best.value:.3g} ({best.low:.3g} to "
        f"{best.high:.3g}): costs {_percent(cost)} of the parameters"
    )
    others = {f"what {COUNTING[one.name].lower()} picks": one.choice for one in result.baselines
              if one.name in COUNTING}  # fmt: skip
    if result.baseline is not None:
        others = {result.baseline.name: result.baseline.choice}
    for name, choice in others.items():
        if choice.architecture.choices != pick.choices:
            more = worth(pick, choice.architecture, tokens)
            gain = ShapeEstimate(more.value - 1, more.low - 1, more.high - 1)
            yield f"as good as {name} with {_percent(gain)} more parameters"


def ridge(result: SearchResult) -> Sheet:
    """Return the hidden / depth of networks of the pick's size on the ridge and off it, with its cost."""
    tokens, pick = result.question.options.get("train_tokens"), result.pick.architecture
    best = best_ratio(pick, tokens).value
    rows: list[Row] = []
    for times in TIMES:
        at = off_ratio(times, tokens)
        cost = ShapeEstimate(1 - at.value, 1 - at.high, 1 - at.low)
        rows.append([f"{times:g} x", f"{times * best:.3g}", _percent(cost)])
    note = (
        f"The pick has {pick.mean_width / pick.depth:.3g}. Costs are shares of the parameters, by shape_law: "
        "a network off the ridge is as good as one on it with that share fewer."
    )
    return Sheet("Depth against width", ["of the best", "hidden / depth", "costs"], rows, [note], on=(PAGE,))


def shape_warnings(result: SearchResult) -> Iterator[str]:
    """Yield where the pick or its training lies beyond what the law was fitted to."""
    if result.question.score != SCORE:
        return
    tokens, pick = result.question.options.get("train_tokens"), result.pick.architecture
    low, high = RATIOS
    ratio = pick.mean_width / pick.depth
    if not low <= ratio <= high:
        yield f"hidden / depth {ratio:.3g} is beyond {low:g} to {high:g}, which shape_law was fitted to"
    if tokens is not None:
        low, high = TOKENS_A_PARAMETER
        each = tokens_a_parameter(pick, tokens)
        if not low <= each <= high:
            nearest = low if each < low else high
            yield (
                f"{each:.3g} tokens a parameter count as {nearest:,g}: shape_law knows {low:g} to {high:,g}"
            )


def _percent(share: ShapeEstimate) -> str:
    return f"{100 * share.value:.1f} % (95 %: {100 * share.low:.1f} to {100 * share.high:.1f})"
