"""Every score and every calibration on every benchmark: ``python benchmarks/leaderboard.py``.

Writes ``leaderboard.md`` from the benchmarks in ``ZEROLM_DATA`` (or --data), in about half an hour on one
core; ``--draws 20`` gives a quick look. With ``--resume FILE`` draws are kept, and a killed run goes on.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
from label_draws import METHODS, SIZES, WAYS, Case, Ground, Outcome, grounds, study
from timing import machine

from zerolm.calibration.rivals import RIVALS, UNCALIBRATED
from zerolm.comparison.bench import bench
from zerolm.comparison.results import ScoreRow, Section
from zerolm.groundtruth.reader import data_folders, known_names, same_folders
from zerolm.lab.algorithm2 import algorithm2
from zerolm.scores import make_score
from zerolm.statistics import agreement

PLACE: Final = Path(__file__).with_suffix(".md")
INTRODUCTION: Final = """\
Kendall's tau-b and Spearman's rho against quality (higher is better, perplexity negated); intervals are
95 % percentiles of 1000 bootstrap draws, those of differences paired. *Random ties*: the expected tau
when the ties of the score are broken at random. *In budgets*: tau-b within deciles of body parameters.
*Regret*: mean loss of quality under 19 parameter budgets, of the best scored / the best of five. *not
better*: total or body parameters alone do as well; *unclear*: the interval of the difference from body
parameters reaches below 0.
"""
CALIBRATIONS: Final = """\
tau-b on architectures that were not labels, mean of {draws} draws of 20 or 50 labels; in brackets the
same with ties broken at random. `stack` is the default: `geo`, `body_params`, the dictionary and the
Gaussian process, weighed by non-negative least squares on hidden thirds of the labels. It was fixed on
simulated results of these architectures, before any of these numbers was computed. The last two columns
set it against the better of `geo` and `body_params` in that row, and say in how many draws it is no
worse. Benchmarks of fewer than {least} architectures have no rows here.
"""
INTERVALS: Final = """\
The 90 % intervals of `stack`, and the interval from the second smallest to the second largest label. The
interval score is the width plus 20 times the miss: less is better. Random draws:
"""
WORDS: Final = {
    "random": "Labels are drawn from all architectures; tau-b is on those that were not drawn.",
    "larger": "Labels are drawn from the half with fewer parameters; tau-b is on the half with more: beyond "
    "the labels, where a search goes. (Where the half has 50 architectures, all are labels.)",
}
Outcomes = Mapping[Case, Sequence[Outcome]]


def number(value: float | None, digits: int = 3) -> str:
    return "-" if value is None or np.isnan(value) else f"{value:.{digits}f}".replace("0.", ".", 1)


def score_table(section: Section) -> Iterator[str]:
    n = len(section.result)
    yield f"\n### {section.title}\n\n{section.metric}, {n} architectures.\n"
    if section.published:
        tau, rho = (number(value) for value in (section.published.tau, section.published.rho))
        yield f"Best published: {tau} / {rho}, {section.published.by}.\n"
    if section.ceiling:
        tau, rho = number(section.ceiling.tau, 2), number(section.ceiling.rho, 2)
        yield f"Noise ceiling: {tau} / {rho}, from {section.ceiling.networks} networks trained repeatedly.\n"
    yield (
        "| score | tau-b [95 %] | random ties | rho | over body parameters [95 %] | in budgets "
        "| regret 1 / 5 | |"
    )
    yield "|---|---|---|---|---|---|---|---|"
    for row in sorted(section.rows, key=lambda row: -(row.tau if row.tau is not None else -2.0)):
        yield "| " + " | ".join(cells(row)) + " |"


def cells(row: ScoreRow) -> list[str]:
    def span(low: float | None, high: float | None) -> str:
        return f"[{number(low)}, {number(high)}]"

    remark = "baseline" if row.baseline else {"better": "", None: ""}.get(row.verdict, row.verdict or "")
    if row.saw_labels:
        remark = ", ".join(filter(None, ("saw the labels", remark)))
    body = row.score == "body_params"
    return [
        row.label,
        f"{number(row.tau)} {span(row.tau_low, row.tau_high)}",
        number(row.tau_random_ties),
        number(row.rho),
        "" if body else f"{number(row.gain)} {span(row.gain_low, row.gain_high)}",
        number(row.within_budget),
        f"{row.regret_1:.3g} / {row.regret_5:.3g}",
        remark,
    ]


def of(rows: Sequence[Outcome], name: str) -> np.ndarray:
    """Return one number of every draw, (draws,)."""
    return np.array([row[name] for row in rows])


def reference(rows: Sequence[Outcome]) -> str:
    """Return the better of the uncalibrated scores in a row, by its mean."""
    return max(UNCALIBRATED, key=lambda name: float(of(rows, f"{name} tau").mean()))


def calibration_table(outcomes: Outcomes, way: str) -> Iterator[str]:
    yield f"\n{WORDS[way]}\n"
    yield (
        "| benchmark | labels | "
        + " | ".join(METHODS)
        + " | stack over the better of the first two | level or better |"
    )
    yield "|---|---|" + "---|" * (len(METHODS) + 2)
    for (title, drawn, k), rows in sorted(outcomes.items()):
        if drawn == way:
            taus = [
                f"{number(of(rows, f'{m} tau').mean())} ({number(of(rows, f'{m} random').mean())})"
                for m in METHODS
            ]
            change = of(rows, "stack tau") - of(rows, f"{reference(rows)} tau")
            level = f"{np.mean(change >= 0):.0%}"
            yield f"| {title} | {k} | {' | '.join(taus)} | {change.mean():+.3f} | {level} |"


def interval_table(outcomes: Outcomes, way: str) -> Iterator[str]:
    yield (
        "| benchmark | labels | coverage [5 %, 95 % of draws] | of labels alone | width ratio "
        "| interval score ratio |"
    )
    yield "|---|---|---|---|---|---|"
    for (title, drawn, k), rows in sorted(outcomes.items()):
        if drawn == way:
            covered, ends = of(rows, "stack coverage"), np.quantile(of(rows, "stack coverage"), [0.05, 0.95])
            labels = of(rows, "labels coverage")
            width, score = (
                of(rows, f"stack {name}").mean() / of(rows, f"labels {name}").mean()
                for name in ("width", "interval score")
            )
            yield (
                f"| {title} | {k} | {number(covered.mean())} [{number(ends[0])}, {number(ends[1])}] | "
                f"{number(labels.mean())} | {number(width)} | {number(score)} |"
            )


def weight_table(outcomes: Outcomes) -> Iterator[str]:
    yield "| benchmark | labels | " + " | ".join(RIVALS) + " |"
    yield "|---|---|" + "---|" * len(RIVALS)
    for (title, way, k), rows in sorted(outcomes.items()):
        if way == "random":
            shares = (f"{of(rows, f'weight {name}').mean():.0%}" for name in RIVALS)
            yield f"| {title} | {k} | {' | '.join(shares)} |"


def verdict(outcomes: Outcomes, way: str, k: int) -> str:
    """Return how ``stack`` stands against the better of the uncalibrated scores, over all rows."""
    changes = {
        title: float((of(rows, "stack tau") - of(rows, f"{reference(rows)} tau")).mean())
        for (title, drawn, count), rows in outcomes.items()
        if (drawn, count) == (way, k)
    }
    worst = min(changes, key=changes.__getitem__)
    below = [title for title, change in changes.items() if change < -0.003]
    beaten = sum(
        of(rows, "stack tau").mean() > of(rows, "algorithm1 tau").mean()
        for (_, drawn, count), rows in outcomes.items()
        if (drawn, count) == (way, k)
    )
    mean, names = np.mean(list(changes.values())), f" ({', '.join(below)})" if below else ""
    return (
        f"{k} labels, {way} draws: against the better of `geo` and `body_params` `stack` gains {mean:+.3f} "
        f"on average and {changes[worst]:+.3f} at worst ({worst}); it is worse by more than .003 in "
        f"{len(below)} of {len(changes)} rows{names}. It beats Algorithm 1 in {beaten}."
    )


def heuristic_table(every: Sequence[Ground]) -> Iterator[str]:
    yield "| benchmark | literal alpha | tau / rho | used | tau / rho | warning |"
    yield "|---|---|---|---|---|---|"
    for ground in every:
        batch, result = ground.labels.pool.batch, ground.labels.result
        try:
            alpha = algorithm2(batch)
        except ValueError as error:
            yield f"| {ground.title} | - | - | - | - | {error} |"
            continue
        pairs = []
        for value in (alpha.literal, alpha.alpha):
            agreed = agreement(make_score("zerolm", alpha=value).of_many(batch), result)
            pairs += [f"{value:.3f}", f"{number(agreed.tau)} / {number(agreed.rho)}"]
        yield f"| {ground.title} | " + " | ".join(pairs) + f" | {'; '.join(alpha.warnings)} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", help="folders of benchmark files; else ZEROLM_DATA")
    parser.add_argument("--draws", type=int, default=100, help="draws of labels (100)")
    parser.add_argument("--resume", type=Path, help="file that keeps every draw")
    arguments = parser.parse_args()
    folders = same_folders(arguments.data)
    every = list(grounds(folders))
    outcomes = study(every, arguments.draws, arguments.resume)
    comparison = bench(known_names(*data_folders(folders)), data=folders)
    lines = [
        "# Leaderboard\n",
        f"Written by `python benchmarks/leaderboard.py`. Machine: {machine()}.\n",
        INTRODUCTION,
        "## Scores without labels\n",
        *(line for section in comparison.sections for line in score_table(section)),
        "\n## Calibrations\n",
        CALIBRATIONS.format(draws=arguments.draws, least=2 * max(SIZES)),
        *(f"- {verdict(outcomes, way, k)}" for way in WAYS for k in SIZES),
        *(line for way in WAYS for line in calibration_table(outcomes, way)),
        "\n## Weights\n",
        "The mean weight of each rival in `stack`, random draws.\n",
        *weight_table(outcomes),
        "\n## Intervals\n",
        INTERVALS,
        *interval_table(outcomes, "random"),
        "\nBeyond the labels no interval is promised; this is what they hold there:\n",
        *interval_table(outcomes, "larger"),
        "\n## ZeroLM's Algorithm 2\n",
        "Alpha without labels, on all architectures.\n",
        *heuristic_table(every),
    ]
    PLACE.write_text("\n".join(lines) + "\n", encoding="utf-8")
    print(f"wrote {PLACE}", file=sys.stderr)


if __name__ == "__main__":
    main()
