"""What ``llama_small`` says of shapes: scores at equal size, responses of the loss, how far they carry."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Final

import numpy as np
from llama_small import LENGTH, LONGER
from llama_small_law import (
    FORMS,
    RATIO,
    Law,
    Measured,
    by_size,
    margin,
    measured,
    seed_deviation,
    shape_numbers,
    two_errors,
)
from llama_small_plan import SIZES
from timing import table

from zerolm.architecture import Floats
from zerolm.costs import CostModel
from zerolm.groundtruth.reader import locate, quality, read, views
from zerolm.scores import SCORES, ClosedForm, make_score
from zerolm.spaces import shape_text
from zerolm.statistics import kendall, noise_ceiling, ordered_pairs, pairs_of_similar_cost
from zerolm.statistics.pairs import pairs_within_groups

LINES: Final = {
    "depth": "depth",
    "ratio at depth": RATIO,
    "ratio at hidden": RATIO,
    "groups": "heads a KV head",
    "head size": "head size",
}
"""What each line of the cross varies, and the number that tells it."""
ALPHAS: Final = (0.5, 1.0, 2.0)
PRACTICE: Final = 3
RATIO_STEPS: Final = (0.5, 1, 1.5, 2, 3, 4, 6, 8)
NEAR: Final = 0.05
"""Gemstones of total parameters within this share are paired."""


def show_findings() -> None:
    shapes = measured()
    show_agreement(shapes)
    show_lines(shapes)
    show_equal_compute(shapes)
    show_responses(shapes)
    show_longer(shapes)
    show_worth(shapes)
    show_wish(shapes)
    show_carried(shapes)


def show_agreement(shapes: Sequence[Measured]) -> None:
    """Print tau-b of every closed form within each size, and of laws fitted to the other sizes."""
    print("## Scores at equal size\n")
    sizes = by_size(shapes)
    deviation = seed_deviation(shapes)
    print(
        "tau-b with the mean loss over seeds. A law is a parabola in the logarithms of depth, or of what "
        "stands for it, and of FFN / attention, with a line in that of heads a KV head, and a level a size: "
        "for each size it is fitted to the other sizes alone. One has a line in the share of the embedding, "
        "too, which is larger the wider a network is. The ceiling is that of the noise of seeds: runs of one "
        f"network deviate from their mean by {deviation:.4f} nats.\n"
    )
    rows = [
        [name, *(f"{tau:+.3f}" for tau in taus), f"{np.mean(taus):+.3f}"]
        for name, taus in _agreement([(ones, _means(ones)) for ones in sizes.values()])
    ]
    rows.sort(key=lambda row: -float(row[-1]))
    for form in FORMS if len(sizes) > 1 else ():
        taus = []
        for size, ones in sizes.items():
            law = Law.fitted([one for one in shapes if one.planned.size != size], form)
            taus.append(_tau([-law.penalty(one.numbers) for one in ones], _means(ones)))
        rows.append([form.name, *(f"{tau:+.3f}" for tau in taus), f"{np.mean(taus):+.3f}"])
    ceilings = [_ceiling(ones) for ones in sizes.values()]
    rows.append(["ceiling", *("" if c is None else f"{c:.3f}" for c in ceilings), ""])
    table(["score", *sizes, "mean"], rows)


def show_lines(shapes: Sequence[Measured]) -> None:
    """Print tau-b of every closed form along the lines of ratio and of depth alone."""
    print("## Along one line\n")
    print(
        "tau-b along a line of the cross and its base: the ratio of FFN to attention at one depth, and depth "
        "at one ratio. A score that sees the one need not see the other.\n"
    )
    along = {
        f"{size}, {line}": [one for one in ones if one.planned.line in ("base", line)]
        for line in ("ratio at depth", "depth")
        for size, ones in by_size(shapes).items()
    }
    rows = [
        [name, *("none" if np.isnan(tau) else f"{tau:+.2f}" for tau in taus)]
        for name, taus in _agreement([(ones, _means(ones)) for ones in along.values()])
    ]
    rows.append(["networks", *(str(len(ones)) for ones in along.values())])
    table(["score", *along], rows)
    print()


def show_equal_compute(shapes: Sequence[Measured]) -> None:
    """Print tau-b of every closed form at equal tokens and at equal operations, before the rate falls."""
    print("## Equal tokens or equal operations\n")
    print(
        "Equal bodies are not equal work: a wider network has a dearer head, a deeper one more attention. "
        "tau-b with the losses after half of the tokens, before the rate falls, and with those after as many "
        "operations as the cheapest of the size has done by then (forward and backward, half of the context "
        "attended to, the loss between two counts of tokens by their logarithm).\n"
    )
    sizes = by_size(shapes)
    after = {
        f"{size}, {equal}": (ones, losses)
        for size, ones in sizes.items()
        for equal, losses in (("tokens", _at_equal_tokens(ones)), ("operations", _at_equal_operations(ones)))
    }
    rows = [[name, *(f"{tau:+.3f}" for tau in taus)] for name, taus in _agreement(list(after.values()))]
    table(["score", *after], rows)


def _half(shape: Measured) -> int:
    """Return the count of tokens at which the rate begins to fall."""
    return min(shape.counts, key=lambda count: abs(count - shape.counts[-1] / 2))


def _at_equal_tokens(shapes: Sequence[Measured]) -> list[float]:
    return [one.mean_after(_half(one)) for one in shapes]


def _at_equal_operations(shapes: Sequence[Measured]) -> list[float]:
    least = min(one.macs * _half(one) for one in shapes)
    return [one.mean_after(least / one.macs) for one in shapes]


def _agreement(
    columns: Sequence[tuple[Sequence[Measured], Sequence[float]]],
) -> list[tuple[str, list[float]]]:
    """Return every closed form with its tau-b in columns of networks and their losses."""
    return [
        (name, [_tau([score.of(o.planned.architecture) for o in ones], losses) for ones, losses in columns])
        for name, score in closed_forms().items()
    ]


def _means(shapes: Sequence[Measured]) -> list[float]:
    return [one.mean for one in shapes]


def closed_forms() -> dict[str, ClosedForm]:
    """Return every closed form; zerolm with several weights of attention against FFN."""
    costs = CostModel(context=LENGTH)
    scores = {
        entry.name: make_score(entry.name, costs) for entry in SCORES.entries() if entry.name != "zerolm"
    }
    scores |= {f"zerolm, alpha {alpha:g}": make_score("zerolm", costs, alpha=alpha) for alpha in ALPHAS}
    return {name: score for name, score in scores.items() if isinstance(score, ClosedForm)}


def _tau(scores: Sequence[float], losses: Sequence[float]) -> float:
    return float(kendall(np.array([scores]), -np.array(losses))[0])


def _ceiling(shapes: Sequence[Measured]) -> float | None:
    losses = np.concatenate([one.losses[:, -1] for one in shapes])
    places = np.repeat(np.arange(len(shapes)), [len(one.losses) for one in shapes])
    ceiling = noise_ceiling(-losses, places)
    return None if ceiling is None else ceiling.tau


def show_responses(shapes: Sequence[Measured]) -> None:
    """Print along every line how much more than the base a shape loses, at each count of tokens."""
    print("## Responses\n")
    print(
        "Nats more than the base of the size, after so much of the tokens; ± is two standard errors of the "
        "last, by the seeds' pooled deviation.\n"
    )
    rows: list[list[str]] = []
    for size, ones in by_size(shapes).items():
        deviation = seed_deviation(ones)
        base = next((one for one in ones if one.planned.line == "base"), None)
        if base is None:
            continue
        for line, number in LINES.items():
            along = sorted((o for o in ones if o.planned.line == line), key=lambda o: o.numbers[number])
            for one in along:
                more = one.losses.mean(axis=0) - base.losses.mean(axis=0)
                error = two_errors(deviation, len(one.losses), len(base.losses))
                rows.append([
                    size, line, shape_text(one.planned.architecture), f"{one.numbers[number]:.3g}",
                    f"{base.numbers[number]:.3g}", *(f"{loss:+.4f}" for loss in more), margin(error),
                ])  # fmt: skip
    heads = [f"{count / shapes[0].counts[-1]:.0%}" for count in shapes[0].counts] if shapes else []
    table(["size", "line", "architecture", "number", "of the base", *heads, ""], rows)
    print(
        "\nThe best by a law, fitted to each size and to all, with 95 % of draws of its residuals. Which "
        "ratio is best depends on what it leaves as it is: at one depth a smaller FFN is a wider network, at "
        "one width a deeper one. A best value outside of those trained is none.\n"
    )
    groups = by_size(shapes)
    if len(groups) > 1:
        groups["all"] = list(shapes)
    best = []
    for form in FORMS:
        for size, ones in groups.items():
            optima = [law.optima for law in Law.draws(ones, form)]
            shown = []
            for name in (form.coordinate, RATIO):
                trained = [one.numbers[name] for one in ones]
                within = [one[name] for one in optima if min(trained) <= one[name] <= max(trained)]
                shown.append(_interval(within, len(optima)))
            best.append([form.name, size, *shown])
    table(["", "fitted to", "best depth, or what stands for it", f"best {RATIO}"], best)


def _interval(values: Sequence[float], draws: int) -> str:
    """Return the median and 95 % of values in words, and how many of the draws gave none."""
    absent = f"{1 - len(values) / draws:.0%}" if draws else "100%"
    if absent == "100%":
        return "none"
    low, middle, high = np.percentile(values, [2.5, 50, 97.5])
    absent = "" if absent == "0%" else f", none in {absent}"
    return f"{middle:.3g} ({low:.3g} to {high:.3g}{absent})"


def show_longer(shapes: Sequence[Measured]) -> None:
    """Print how the order of depths turns with three times as many tokens."""
    longer, short = measured(LONGER), {one.planned.id: one for one in shapes}
    base = next((one for one in longer if one.planned.line == "base"), None)
    if base is None or base.planned.id not in short:
        return
    print("\n## With more tokens\n")
    size, tokens = base.planned.size, base.counts[-1]
    deviation = seed_deviation(by_size(shapes).get(size, ()))
    error = margin(two_errors(deviation, len(base.losses), min(len(one.losses) for one in longer)))
    print(
        f"The line of depth of {size} and one ratio again for {tokens:,} tokens, which is as many a body "
        "parameter as the smallest size has. Nats more than the base: at the end of the short run, by the "
        "mean of its seeds, and through the long one"
        f"{', of which a difference is off by ' + error if error else ''}.\n"
    )
    counts = base.counts
    apart = [i for i, count in enumerate(counts) if i + 1 == len(counts) or counts[i + 1] > 1.01 * count]
    rows = []
    for one in sorted(longer, key=lambda one: one.planned.architecture.depth):
        if one.planned.id not in short:
            continue
        before = short[one.planned.id].mean - short[base.planned.id].mean
        more = (one.losses.mean(axis=0) - base.losses.mean(axis=0))[apart]
        ratio = one.numbers[RATIO]
        shown = [f"{loss:+.4f}" for loss in (before, *more)]
        rows.append([shape_text(one.planned.architecture), f"{ratio:.2f}", *shown, f"{one.mean:.4f}"])
    heads = [f"{counts[i]:,}" for i in apart]
    table(["architecture", RATIO, "short", *heads, "loss"], rows)


def show_worth(shapes: Sequence[Measured]) -> None:
    """Print what a ratio of FFN to attention is worth in parameters of the body: by geo, and as measured."""
    if len(by_size(shapes)) < 2:
        return
    print("\n## What a ratio is worth\n")
    law, draws = Law.fitted(shapes), Law.draws(shapes)
    print(
        f"Parameters of the body that a network with FFNs {PRACTICE} times as large as attention, as people "
        "train them, would need to be as good, all else the same: by geo, which sees the ratio as sqrt r / "
        "(1 + r), and by the law of depth, over all sizes, with 95 % of draws. A doubling of the body is "
        f"worth {law.slope * np.log(2):.3f} nats, by the levels of the sizes.\n"
    )
    rows = []
    for ratio in RATIO_STEPS:
        worth = [_worth(one, ratio, one.slope) for one in draws]
        low, high = np.percentile(worth or [np.nan], [2.5, 97.5])
        by_geo = np.sqrt(ratio / PRACTICE) * (1 + PRACTICE) / (1 + ratio)
        value = _worth(law, ratio, law.slope)
        rows.append([f"{ratio:g}", f"{by_geo:.0%}", f"{value:.0%}", f"{low:.0%} to {high:.0%}"])
    table([RATIO, "geo", "law", "95 %"], rows)
    show_worth_by_size(by_size(shapes), law.slope)


def show_worth_by_size(sizes: dict[str, list[Measured]], slope: float) -> None:
    """Print what a ratio is worth at each size alone, and so by the tokens that a parameter sees."""
    print("\n## What a ratio is worth at each size\n")
    print(
        f"The average hides a sign that differs: FFNs as large as attention beside those {PRACTICE} times "
        "as large by the law of each size alone, whose parameters see different numbers of tokens.\n"
    )
    rows = []
    for size, ones in sizes.items():
        tokens = ones[0].counts[-1] / SIZES[size]
        low, high = np.percentile(
            [_worth(one, 1.0, slope) for one in Law.draws(ones)] or [np.nan], [2.5, 97.5]
        )
        value = _worth(Law.fitted(ones), 1.0, slope)
        rows.append([size, f"{tokens:.0f}", f"{value:.0%}", f"{low:.0%} to {high:.0%}"])
    table(["size", "tokens a parameter", "worth", "95 %"], rows)


def _worth(law: Law, ratio: float, slope: float) -> float:
    """Return how many times the body a network of the practised ratio needs to be as good."""
    square, line = np.log(ratio) ** 2 - np.log(PRACTICE) ** 2, np.log(ratio / PRACTICE)
    return float(np.exp(-(law.weights[2] * line + law.weights[3] * square) / slope))


def show_wish(shapes: Sequence[Measured]) -> None:
    """Print what FFNs as large as attention, which geo wants, lose against those three times as large."""
    print("\n## Whether geo's wish holds\n")
    print(
        "The shape of each line whose FFN is nearest to its attention weights against the one nearest to "
        "three times as much: nats more that it loses, and how much geo prefers it.\n"
    )
    geo, rows = make_score("geo", CostModel(context=LENGTH)), []
    for size, ones in by_size(shapes).items():
        deviation = seed_deviation(ones)
        for line in ("ratio at depth", "ratio at hidden"):
            along = [one for one in ones if one.planned.line in (line, "base")]
            if len(along) < 2:
                continue
            even, large = (
                min(along, key=lambda one: abs(np.log(one.numbers[RATIO] / ratio))) for ratio in (1, 3)
            )
            if even is large:  # the others are not trained yet
                continue
            error = two_errors(deviation, len(even.losses), len(large.losses))
            wish = geo.of(even.planned.architecture) / geo.of(large.planned.architecture) - 1
            shown = (
                f"{shape_text(one.planned.architecture)} (r {one.numbers[RATIO]:.2f})"
                for one in (even, large)
            )
            rows.append(
                [size, line, *shown, f"{even.mean - large.mean:+.4f} {margin(error)}", f"{wish:+.1%}"]
            )
    table(["size", "line", "even", "three times", "nats", "geo"], rows)


def show_carried(shapes: Sequence[Measured]) -> None:
    """Print how the law of small shapes orders published ones of equal size."""
    print("\n## How far it carries\n")
    law, geo = Law.fitted(shapes), make_score("geo", CostModel())
    rows: list[list[str]] = []
    for name in ("decoder_pairs", "gemstones"):
        try:
            truth = read(locate(name, os.environ.get("ZEROLM_DATA")))
        except ValueError:  # its folder is not named
            continue
        architectures = views(truth)[0].architectures
        result = quality(truth, truth.metric or "loss")
        if name == "decoder_pairs":
            pairs = pairs_within_groups([entry.group for entry in truth.architectures])
        else:
            params = np.array([CostModel().of(one)["params"] for one in architectures])
            pairs = pairs_of_similar_cost(params, NEAR)
        columns: dict[str, Floats] = {
            law.form.name: np.array([-law.penalty(shape_numbers(one)) for one in architectures]),
            "geo": np.array([geo.of(one) for one in architectures]),
        }
        for score, values in columns.items():
            ordered = ordered_pairs(values, result, pairs)
            rows.append([name, score, f"{ordered.right} of {ordered.n}", str(ordered.tied)])
    table(["benchmark", "score", "pairs ordered rightly", "tied"], rows)
