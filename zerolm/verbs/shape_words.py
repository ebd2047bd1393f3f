"""Sentences about depth against width by shape_law: what a ratio costs, and how well that is known."""

from __future__ import annotations

from collections.abc import Iterator

from zerolm.scores.shape import (
    RATIOS,
    TOKENS_A_PARAMETER,
    ShapeEstimate,
    best_ratio,
    ratio_worth,
    tokens_a_parameter,
    worth,
)
from zerolm.solvers.result import SearchResult
from zerolm.verbs.search_words import COUNTING

SCORE = "shape_law"


def shape_lines(result: SearchResult) -> Iterator[str]:
    """Yield what the ratio of hidden to depth costs, and what the pick is worth beside others."""
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
