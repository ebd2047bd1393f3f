"""Findings of a comparison: sentences, every word from a number."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence

from zerolm.comparison.results import Comparison, ScoreRow
from zerolm.comparison.standings import label_free, name_of, standings
from zerolm.verbs.comparison_words import place


def findings(comparison: Comparison) -> dict[str, str]:
    """Return the findings by what they are of, most important first; empty where nothing can be said."""
    parts = {
        "geo": _geo,
        "never_worse": _never_worse,
        "best": _best,
        "counts": _counts,
        "alpha": _alpha,
        "published": _published,
        "ceiling": _ceiling,
    }
    return {name: " ".join(part(comparison)) for name, part in parts.items()}


def _geo(comparison: Comparison) -> Iterator[str]:
    rows = standings(comparison).get(("geo", None))
    if not rows:
        return
    groups = {
        verdict: [place(section) for section, row in rows if row.verdict == verdict]
        for verdict in ("better", "unclear", "not better")
    }
    text = (
        f"geo ranks better than counting parameters in {_share(groups['better'], rows)}, the whole 95 % "
        "interval of its gain above zero."
    )
    if groups["unclear"]:
        text += f" Higher, but not shown to be: {', '.join(groups['unclear'])}."
    if groups["not better"]:
        text += f" Not higher: {', '.join(groups['not better'])}."
    yield text


def _never_worse(comparison: Comparison) -> Iterator[str]:
    free = {
        key: rows
        for key, rows in standings(comparison).items()
        if not any(row.baseline or row.saw_labels for _, row in rows)
    }
    if not free:
        return
    above = [
        name_of(key)
        for key, rows in free.items()
        if all(row.verdict in ("better", "unclear") for _, row in rows)
    ]
    level = [
        name_of(key)
        for key, rows in free.items()
        if all(row.tau is not None and (row.gain_high is None or row.gain_high >= 0) for _, row in rows)
    ]
    worst = {key: min(rows, key=lambda pair: _gain(pair[1])) for key, rows in free.items()}
    mildest = max(worst, key=lambda key: _gain(worst[key][1]))
    section, row = worst[mildest]
    text = (
        f"Label-free scores that are above counting parameters everywhere: {_listed(above)}; that are "
        f"nowhere shown to be worse than body parameters (no interval wholly below zero): {_listed(level)}."
    )
    if row.gain is not None:
        text += f" The mildest worst case is that of {name_of(mildest)}: {row.gain:+.3f} on {place(section)}."
    yield text


def _best(comparison: Comparison) -> Iterator[str]:
    firsts = [rows[0] for rows in map(label_free, comparison.sections) if rows]
    if firsts:
        counted = Counter(row.label for row in firsts).most_common()
        each = ", ".join(f"{label} on {count}" for label, count in counted)
        yield f"The best label-free score is {each}; which one it is shows only with the labels."


def _counts(comparison: Comparison) -> Iterator[str]:
    compared, reached = 0, []
    for section in comparison.sections:
        plain = [row for row in section.rows if row.baseline and row.tau is not None]
        free = label_free(section)
        if plain and free:
            compared += 1
            best = max(plain, key=lambda row: row.tau or 0.0)
            if (best.tau or 0.0) >= (free[0].tau or 0.0):
                reached.append(f"{place(section)}, {best.label} at {best.tau:.3f} against {free[0].tau:.3f}")
    if reached:
        count = f"{len(reached)} of {compared}"
        yield f"A baseline is at least as good as every label-free score in {count}: {'; '.join(reached)}."
    elif compared:
        yield "Everywhere some label-free score is above all baselines."


def _alpha(comparison: Comparison) -> Iterator[str]:
    best = [row.best_alpha for row in comparison.rows if row.saw_labels and row.best_alpha is not None]
    if not best:
        return
    levels = [{point.alpha for point in section.curve if point.level} for section in comparison.sections]
    shared = ", ".join(f"{alpha:g}" for alpha in sorted(set.intersection(*levels))) or "none"
    if len(comparison.sections) == 1:
        yield f"The best alpha of zerolm is {best[0]:g}; level with it: {shared}."
    else:
        span = f"{min(best):g} to {max(best):g}"
        yield f"The best alpha of zerolm runs from {span}; level with the best everywhere: {shared}."


def _published(comparison: Comparison) -> Iterator[str]:
    compared, above = 0, []
    for section in comparison.sections:
        free, published = label_free(section), section.published
        if published and published.tau is not None and free:
            compared += 1
            if (free[0].tau or 0.0) > published.tau:
                values = f"{free[0].label} at {free[0].tau:.3f} against {published.tau:.3f}"
                above.append(f"{place(section)}, {values}")
    if compared:
        names = f": {'; '.join(above)}" if above else ""
        yield f"Of {compared} best published values a label-free score exceeds {len(above) or 'none'}{names}."


def _ceiling(comparison: Comparison) -> Iterator[str]:
    reached: dict[str, list[str]] = {}
    for section in comparison.sections:
        free = label_free(section)
        if section.ceiling and free:
            ceiling = f"{section.truth.name} at {section.ceiling.tau:.2f} tau-b"
            view = f" ({section.view})" if section.view else ""
            reached.setdefault(ceiling, []).append(f"{free[0].tau:.3f}{view}")
    for ceiling, taus in reached.items():
        yield f"Repeated runs put the noise ceiling of {ceiling}; label-free scores reach {', '.join(taus)}."


def _gain(row: ScoreRow) -> float:
    return -math.inf if row.gain is None else row.gain


def _share(some: list[str], all_of_them: Sequence[object]) -> str:
    names = f" ({', '.join(some)})" if some else ""
    return f"{len(some) or 'none'} of {len(all_of_them)}{names}"


def _listed(names: list[str]) -> str:
    return ", ".join(names) or "none"
