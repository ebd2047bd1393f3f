"""What ``subnets.md`` says first: answers, from what was measured."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from parts import Parts
from subnets_attacks import PARENT, STRENGTHS, right_before, stands, victims_in
from subnets_compared import DRAWS, MEASURED, PRICES, Compared, Estimate, within
from subnets_runs import column

from zerolm.architecture import Floats
from zerolm.statistics import Bootstrap, interval

LITERAL = "kept zerolm, its choice"
SHOWN = ("body_params", "geo", "kept output_energy", PRICES, MEASURED)


def findings(measured: Mapping[str, Any], every: Sequence[Compared], work: Path) -> Iterator[str]:
    """Yield the lines of the answers."""
    yield "## What it says"
    yield ""
    clean = [one for one in every if one.is_clean]
    yield from _plans(clean)
    yield ""
    yield from _budgets(clean)
    for model, one in measured.items():
        for criterion, run in one["runs"].items():
            if "accuracy_under_attack" in run["sets"]["first"]["parent"]:
                yield ""
                yield from _transferred(model, criterion, run["sets"])
                kept = Parts(work / model / f"{criterion}-attacks.jsonl").every()
                if kept:
                    yield ""
                    yield from _themselves(every, model, criterion, run["sets"]["first"], kept)
    yield ""
    yield from _results([one for one in every if not one.is_clean])


def _plans(clean: Sequence[Compared]) -> Iterator[str]:
    gains = {
        plan: [(one.beyond(plan, one.best_other()), one.beyond(plan, "body_params")) for one in clean]
        for plan in (MEASURED, PRICES)
    }
    shown = {
        plan: [sum(each.low > 0 for each in some) for some in zip(*pairs, strict=True)]
        for plan, pairs in gains.items()
    }
    yield (
        "**Does a predicted loss beat all?** On clean results, measured cut by cut, it is shown to "
        f"beat body parameters in {shown[MEASURED][1]} of {len(clean)} and the best of all other scores in "
        f"{shown[MEASURED][0]}; from one pass back (prices), in {shown[PRICES][1]} and {shown[PRICES][0]}. "
        "*Best other* is chosen by the results themselves, of all scores but these two; differences are "
        "paired, and shown where the whole interval lies above 0."
    )
    yield ""
    yield (
        "| model | units | result | body parameters | best other | prices | measured | prices beyond best "
        "other | measured beyond best other | noise |"
    )
    yield "|---|---|---|---:|---:|---:|---:|---:|---:|---:|"
    for place, one in enumerate(clean):
        best = one.best_other()
        values = [f"{one.tau(label):.3f}" for label in ("body_params", best, PRICES, MEASURED)]
        values[1] += f" ({best})"
        beyond = [gains[plan][place][0].signed() for plan in (PRICES, MEASURED)]
        noise = "-" if one.noise is None else f"{one.noise[0]:.3f}"
        yield f"| {one.name} | {' | '.join([*values, *beyond, noise])} |"
    yield ""
    yield (
        "tau-b on the first judging set. *Noise* is that of the same results on two judging sets: no score "
        "can agree much better with one of them."
    )
    yield ""
    spearman = "; ".join(
        f"{one.model}, {one.criterion}: {one.rows[MEASURED].rho:.2f} and {one.rows[LITERAL].rho:.2f}"
        for one in clean
        if one.metric != "perplexity" and LITERAL in one.rows
    )
    yield (
        "As Spearman, the measured prediction and ZeroLM's equation 3 read literally (its importance of "
        f"what it would keep): {spearman}."
    )


def _budgets(clean: Sequence[Compared]) -> Iterator[str]:
    yield "**Within budgets**, that is within tenths of the sub-networks by body parameters, tau-b [95 %]:"
    yield ""
    yield f"| model | units | result | {' | '.join(SHOWN)} | best of shapes |"
    yield f"|---|---|---|{'---:|' * (len(SHOWN) + 1)}"
    for one in clean:
        best = max((each for each in one.rows if each not in one.foretold), key=lambda x: one.within[x].value)
        cells = [str(one.within[label]) for label in SHOWN]
        yield f"| {one.name} | {' | '.join(cells)} | {one.within[best]} ({best}) |"


def _transferred(model: str, criterion: str, sets: Mapping[str, Any]) -> Iterator[str]:
    yield (
        f"**Do rankings on clean texts hold under attack?** {model}, {criterion}. First, all are shown the "
        "texts that fooled the whole parent. Such texts are chosen against the parent, so that what is near "
        "it falls with it: this ranks distance from the parent as much as anything."
    )
    yield ""
    yield "| accuracy, clean | accuracy under attack | tau-b [95 %] | rho [95 %] | within budgets |"
    yield "|---|---|---:|---:|---:|"
    for clean, under in product(sets, sets):
        a, b = column(sets[clean], "accuracy"), column(sets[under], "accuracy_under_attack")
        drawn = Bootstrap(b, DRAWS).resample(a)
        sizes = _sizes(sets[clean])
        yield (
            f"| {clean} set | {under} set | {_agreed(drawn, 'tau')} | {_agreed(drawn, 'rho')} | "
            f"{within(a, b, sizes)} |"
        )


def _themselves(
    every: Sequence[Compared],
    model: str,
    criterion: str,
    document: Mapping[str, Any],
    kept: Mapping[str, Any],
) -> Iterator[str]:
    parent = kept.get(PARENT)
    kept = {one: row for one, row in kept.items() if one != PARENT}
    places = victims_in(document, kept)
    (accuracy,) = (one for one in every if (one.model, one.criterion) == (model, criterion) and one.is_clean)
    transferred = column(document, "accuracy_under_attack")[places]
    rows = len(next(iter(kept.values())))
    clean = np.array([right_before(row).mean() for row in kept.values()])
    yield (
        f"Then {len(kept)} of them, drawn like all, are attacked themselves, on the {rows} rows of the "
        f"first set. Their clean accuracy on these is {clean.min():.3f} to "
        f"{clean.max():.3f}"
        + ("." if parent is None else f", the parent's {right_before(parent).mean():.3f}.")
    )
    columns = {
        "accuracy on clean texts": clean,
        "under the parent's attacks": transferred,
        **{label: accuracy.values[label][places] for label in SHOWN},
    }
    yield ""
    names = " | ".join(columns)
    yield f"| accuracy under its own attack | least to most (parent) | two halves of the rows | {names} |"
    yield f"|---|---:|---:|{'---:|' * len(columns)}"
    for name, most in STRENGTHS.items():
        right = np.array([stands(row, most) for row in kept.values()])
        under = right.mean(1)
        halves = Bootstrap(right[:, ::2].mean(1), DRAWS).resample(right[:, 1::2].mean(1))
        whole = "-" if parent is None else f"{stands(parent, most).mean():.3f}"
        bootstrap = Bootstrap(under, DRAWS)
        cells = [str(_agreed(bootstrap.resample(values), "rho")) for values in columns.values()]
        yield (
            f"| {name} | {under.min():.3f} to {under.max():.3f} ({whole}) | {_agreed(halves, 'rho')} | "
            f"{' | '.join(cells)} |"
        )
    yield ""
    yield (
        "Spearman [95 %]. *Two halves* is the agreement of the same result on every other row with that on "
        "the rows between: half as many rows each, so a floor of what could be agreed with. Where an "
        "interval holds 0, no order is shown."
    )


def _results(attacked: Sequence[Compared]) -> Iterator[str]:
    if not attacked:
        return
    yield "**Scores under the parent's attacks**, Spearman [95 %] on the first judging set:"
    yield ""
    yield f"| model | units | result | {' | '.join(SHOWN)} | best of all | noise |"
    yield f"|---|---|---|{'---:|' * (len(SHOWN) + 2)}"
    for one in attacked:
        best = max(one.rows, key=lambda label: one.rows[label].rho or -1.0)
        cells = [_rho(one, label) for label in SHOWN]
        noise = "-" if one.noise is None else f"{one.noise[1]:.3f}"
        yield f"| {one.name} | {' | '.join(cells)} | {_rho(one, best)} ({best}) | {noise} |"


def _rho(one: Compared, label: str) -> str:
    row = one.rows[label]
    return f"{row.rho:.3f} {row.rho_low:.2f}..{row.rho_high:.2f}"


def _agreed(resampled: Any, name: str) -> Estimate:
    return Estimate(getattr(resampled.observed, name), *interval(getattr(resampled, name)))


def _sizes(document: Mapping[str, Any]) -> Floats:
    return np.array([row["body_params"] for row in document["rows"]], float)
