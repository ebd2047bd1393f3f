"""Is there a better label-free score than geo? A search, judged on benchmarks that its choices did not see.

python benchmarks/label_free.py [FOLDER] prints label_free.md and writes it beside this file. FOLDER holds the
ground truth; else it is what comes with zerolm.
"""

from __future__ import annotations

import contextlib
import io
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
from formulas import (
    BASES,
    BOUNDED,
    GEO,
    GEO_DEPTH,
    KINDS,
    LAYER,
    MEANS,
    POWERS,
    TOTAL,
    Formula,
    discount_name,
)
from nested import CRITERIA, DRAWS, GUARD, LEVELS, ROUNDING, Judged, Search, judge, read_rows
from timing import machine, one_thread, table

from zerolm.scores import make_score
from zerolm.statistics import interval

REFERENCES = ("geo", "geo_saturating", "stable_rank", "body_params")
FEW = ("A^0.5 F^0.5", "A^0.55 F^0.45", "A^0.6 F^0.4")

Choice = tuple[str, str]
"""What was chosen from and how, and the level that was hidden, empty for a given score."""
Contenders = dict[Choice, Judged]
Gain = tuple[float, float, float]


def is_kind(kind: str, formula: Formula) -> bool:
    return kind == formula.kind or formula == GEO


OPEN: dict[str, Callable[[Formula], bool]] = {
    "all": lambda formula: True,
    **{kind: partial(is_kind, kind) for kind in KINDS},
}
NARROW: dict[str, Callable[[Formula], bool]] = {
    "means x bounded": lambda f: (
        f.kind in (LAYER, TOTAL) and f.term.removeprefix("totals ") in MEANS and f.factor in BOUNDED
    ),
    "fifteen": lambda f: (
        f.kind == LAYER and f.term in FEW and (f.factor == "1" or f.factor.startswith("min(1, L/log3 d)"))
    ),
}
NESTED = "group and criterion by nesting"


def tried(search: Search, gains: dict[Choice, Gain]) -> None:
    print("## What was tried, and what failed\n")
    print(
        f"{len(search.formulas):,} formulas, {search.distinct:,} of them distinct rankings; `formulas.py` "
        "declares them. A and F are the weights of attention and FFN (of a layer, or as totals of the "
        "network), P both, M(p) their power mean, w a layer's width, d the mean width, L depth, "
        "x = L / log3 d; k and m are the sides of a projection, summed (S) or as the geometric mean of both "
        "roles' sums (G). Each group contains `geo`. The last two were drawn up with results of the others "
        "known: for them no row was truly hidden.\n\n"
        "Change of tau against `geo`, first with all labels seen: how many formulas have a better mean, how "
        "many beside `geo` itself are below it in no row, or nowhere by more than a little, and the best "
        "mean. Then, with 95 % intervals, the mean change of what is chosen for each row with its benchmark "
        "(in all views) or its family of spaces hidden. `guarded` "
        f"is the best mean among formulas that are at most {GUARD} below `geo` in every row seen; "
        "`best worst row` the largest of the smallest changes.\n"
    )
    best, cells = [], []
    for name, holds in {**OPEN, **NARROW}.items():
        pool = search.pool(holds)
        first = search.best((pool, CRITERIA["best mean"]), search.every)
        moved = search.change[:, pool]
        never, hardly = (np.sum(moved.min(axis=0) >= floor) - 1 for floor in (-ROUNDING, -GUARD))
        seen = search.every @ search.change[:, first]
        best.append([name, f"{pool.sum():,}", f"{np.sum(search.every @ moved > ROUNDING):,}", f"{never}",
                     f"{hardly}", f"{seen:+.3f}", f"`{search.formulas[first]}`"])  # fmt: skip
        for criterion in CRITERIA:
            held = [with_interval(gains[f"{name}, {criterion}", level]) for level in LEVELS]
            cells.append([name, criterion, *held])
    header = ["formulas", "count", "mean above `geo`", "below `geo` in no row", f"by at most {GUARD}"]
    table([*header, "best mean, labels seen", "which"], best)
    table(["formulas", "criterion", *(f"hidden {level}" for level in LEVELS)], cells)


def where(search: Search) -> None:
    """The formulas that lose nowhere, and the rows in which the choice from all formulas loses most."""
    everything = search.pool(OPEN["all"])
    never = np.flatnonzero(search.change.min(axis=0) >= -ROUNDING)
    said = ", ".join(
        f"`{search.formulas[at]}` ({search.every @ search.change[:, at]:+.3f})"
        for at in never
        if search.formulas[at] != GEO
    )
    print(f"- Labels seen, below `geo` in no row (mean change): {said or 'none'}.")
    for level in LEVELS:
        for name, criterion in CRITERIA.items():
            picks = search.nested((everything, criterion), level)
            moved = search.held_out(picks)
            at = int(moved.argmin())
            print(
                f"- All, {name}, hidden {level}: worst is {search.rows[at].title}, {moved[at]:+.3f} by "
                f"`{search.formulas[picks[at]]}`."
            )
    print()


def held_out(search: Search, contenders: Contenders) -> None:
    print("## Held out, in other measures\n")
    print(
        "Means over the seven benchmarks, the three views of FlexiBERT counting as one. Intervals come from "
        f"{DRAWS:,} paired resamples of the architectures; they do not cover the choice of benchmarks, of "
        "which there are few. `regret` is the quality lost to the best within 19 parameter budgets, as a "
        "share of what a random choice loses; `in budgets` is tau within deciles of body parameters. Scores "
        f"with nothing hidden were proposed with these labels known, `geo` too. `{NESTED}`: with the row's "
        "benchmark or family hidden, the rest says by its own nested choices which group and criterion of "
        "the table above (but for the last two groups) to use.\n"
    )
    geo = contenders["`geo`", ""]
    cells = []
    for (name, hidden), one in contenders.items():
        moved = one.tau - geo.tau
        cells.append([name, hidden, f"{search.every @ one.tau:.3f}"])
        for other in (f"`{each}`" for each in REFERENCES):
            cells[-1].append("" if name == other else with_interval(search.gain(one, contenders[other, ""])))
        cells[-1].append(f"{np.sum(moved > ROUNDING)} / {np.sum(moved < -ROUNDING)}")
        cells[-1] += [f"{moved.min():+.3f}", *(f"{search.every @ v:.3f}" for v in (one.regret, one.within))]
    header = ["score", "hidden", "tau", *(f"against `{name}`" for name in REFERENCES)]
    table([*header, "rows above / below `geo`", "worst row", "regret", "in budgets"], cells)

    print("tau row by row:\n")
    taus = np.stack([one.tau for one in contenders.values()], axis=1)
    header = [name + (f", hidden {level}" if level else "") for name, level in contenders]
    cells = [[row.title, *map("{:.3f}".format, tau)] for row, tau in zip(search.rows, taus, strict=True)]
    table(["benchmark", *header], cells)

    print("Chosen from all formulas:\n")
    everything, cells = search.pool(OPEN["all"]), []
    for level in LEVELS:
        for group in search.groups(level):
            weights = search.weights(level, frozenset({group}))
            picks = [search.best((everything, criterion), weights) for criterion in CRITERIA.values()]
            cells.append([f"{level} {group}", *(f"`{search.formulas[pick]}`" for pick in picks)])
    table(["hidden", *CRITERIA], cells)


def sensitivity(search: Search, contenders: Contenders) -> None:
    geo, deep = contenders["`geo`", ""], contenders["`geo_depth`", ""]
    at = search.formulas.index(GEO_DEPTH)
    mean, worst = search.every @ search.change, search.change.min(axis=0)
    better = mean > mean[at] + ROUNDING
    others = search.weights("benchmark", frozenset({"flexibert_glue"}))
    rows = zip(search.rows, deep.tau - geo.tau, deep.draws - geo.draws, strict=True)
    print("## Labels seen: `geo_depth`\n")
    print(
        "`geo_depth` = geo x sqrt(min(1, L / log3 d)) discounts only networks shallower than log3 d. It was "
        "chosen with these labels seen, so its gain is no forecast: "
        f"{with_interval(search.gain(deep, geo))} in the mean, {others @ search.change[:, at]:+.3f} without "
        f"FlexiBERT. {better.sum():,} formulas have a better mean, {np.sum(better & (worst >= worst[at]))} "
        "of them with no lower worst row. By row: "
        + ", ".join(f"{row.title} {with_interval((tau, *interval(draws)))}" for row, tau, draws in rows)
        + ".\n\nMean change (without FlexiBERT; worst row) of geo x min(1, L / log_b d)^p:\n"
    )
    cells = []
    for power in POWERS:
        cells.append([f"p = {power:g}"])
        for base in BASES:
            at = search.formulas.index(GEO._replace(factor=discount_name(base, power)))
            cells[-1].append(f"{mean[at]:+.3f} ({others @ search.change[:, at]:+.3f}; {worst[at]:+.3f})")
    table(["", *(f"b = {base:.3g}" for base in BASES)], cells)


def verdict(gains: dict[Choice, Gain]) -> None:
    """geo goes if a choice that saw no labels is better whichever way rows are hidden."""
    names = list(dict.fromkeys(name for name, _ in gains))
    honest = [name for name in names if name == NESTED or name.startswith("all, ")]
    above = {level: [name for name in names if gains[name, level][1] > 0] for level in LEVELS}
    found = [name for name in honest if all(name in above[level] for level in LEVELS)]
    said = [f"{name} {', '.join(with_interval(gains[name, level]) for level in LEVELS)}" for name in honest]
    print("## Verdict\n")
    print(
        "`geo` is replaced by a choice from all formulas, or one whose group and criterion are chosen by "
        "nesting, that is better with the benchmark hidden and with the family hidden, both intervals above "
        f"0. **{'Better: ' + ', '.join(found) if found else 'None is; `geo` stays the default'}.** Mean "
        f"change, hidden benchmark and hidden family: {'; '.join(said)}.\n"
    )
    print(
        f"Of the {len(names)} choices made, {len(above['benchmark'])} have an interval above 0 with the "
        f"benchmark hidden and {len(above['family'])} with the family hidden. To single one of them out is "
        "to choose it by its labels, and where the benchmark alone is hidden, its twin on another corpus "
        "(GPT-2, Transformer-XL) stays in sight:\n"
    )
    for name in dict.fromkeys([*above["benchmark"], *above["family"]]):
        print(
            f"- {name}: " + ", ".join(f"{with_interval(gains[name, by])} hidden {by}" for by in LEVELS) + "."
        )
    print()


def with_interval(gain: Gain) -> str:
    return f"{gain[0]:+.3f} [{gain[1]:+.3f}, {gain[2]:+.3f}]"


def main() -> None:
    one_thread()
    start = time.perf_counter()
    search = Search(read_rows(sys.argv[1] if len(sys.argv) > 1 else None))
    contenders = {
        (f"`{name}`", ""): judge(search.rows, [make_score(name).of_many(row.batch) for row in search.rows])
        for name in REFERENCES
    }
    contenders["`geo_depth`", ""] = search.judge([search.formulas.index(GEO_DEPTH)] * len(search.rows))
    procedures = {
        f"{group}, {name}": (search.pool(holds), criterion)
        for group, holds in {**OPEN, **NARROW}.items()
        for name, criterion in CRITERIA.items()
    }
    unseen = [each for name, each in procedures.items() if name.rpartition(", ")[0] in OPEN]
    gains = {}
    for level in LEVELS:
        picks = {name: search.nested(each, level) for name, each in procedures.items()}
        for name, each in {**picks, NESTED: search.twice_nested(unseen, level)}.items():
            judged = search.judge(each)
            gains[name, level] = search.gain(judged, contenders["`geo`", ""])
            if name == NESTED or name.startswith("all, "):
                contenders[name, level] = judged
    with contextlib.redirect_stdout(io.StringIO()) as said:
        print(
            "# A better label-free score than `geo`?\n\n"
            "Written by `python benchmarks/label_free.py`: formulas are chosen on some benchmarks and judged "
            f"on those that the choice did not see.\n\nMachine: {machine()}.\n"
        )
        tried(search, gains)
        where(search)
        held_out(search, contenders)
        sensitivity(search, contenders)
        verdict(gains)
        print(f"All of it took {time.perf_counter() - start:.0f} seconds.")
    print(said.getvalue(), end="")
    unfinished = Path(__file__).with_name("label_free.md.part")
    unfinished.write_text(said.getvalue())
    unfinished.replace(unfinished.with_suffix(""))


if __name__ == "__main__":
    main()
