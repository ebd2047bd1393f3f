"""Every score and every calibration on every benchmark: ``python benchmarks/leaderboard.py``.

Writes ``leaderboard.md`` from the benchmarks in ``ZEROLM_DATA`` (or --data), in about ten minutes on two
cores; ``--draws 20`` gives a quick look.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections import defaultdict
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")  # one process a core, one thread a process

import numpy as np
from timing import machine

from zerolm.architecture import Floats
from zerolm.calibration import Labels, Pool, calibrate
from zerolm.calibration.alpha import algorithm2
from zerolm.comparison.bench import bench
from zerolm.comparison.results import Row, Section
from zerolm.groundtruth.reader import data_folder, known_names, locate, quality, read, views
from zerolm.scores import make_score
from zerolm.statistics import agreement

PLACE = Path(__file__).with_suffix(".md")
SIZES = (20, 50)
METHODS = ("algorithm1", "dictionary", "gp", "blend", "auto")


@dataclass(frozen=True)
class Ground:
    """One benchmark in one view, ready to be drawn from."""

    title: str
    labels: Labels

    def outcome(self, k: int, draw: int) -> dict[str, float]:
        """Calibrations fitted to k random labels, judged on all the others."""
        n = len(self.labels)
        order = np.random.default_rng([draw, k]).permutation(n)
        seen, hidden = order[:k], order[k:]
        labels = replace(self.labels, pool=self.labels.pool.take(seen), result=self.labels.result[seen])
        pool, result = self.labels.pool.take(hidden), self.labels.result[hidden]
        fitted = calibrate(labels, "auto", seed=draw)
        predicted = fitted.predict(pool)
        assert predicted
        found: dict[str, float] = {f"chose {fitted.method}": 1.0}
        for method in METHODS:
            if method == "algorithm1":
                values = calibrate(labels, "algorithm1").rank(pool)
            else:
                values = (fitted if method == "auto" else replace(fitted, method=method)).rank(pool)
            agreed = agreement(values, result)
            found[f"{method} tau"] = agreed.tau
            found[f"{method} random"] = agreed.tau_random_ties
        ordered = np.sort(labels.result)
        low, high = np.full(len(hidden), ordered[1]), np.full(len(hidden), ordered[-2])
        for name, (a, b) in {"gp": (predicted.low, predicted.high), "labels": (low, high)}.items():
            found[f"{name} coverage"] = float(np.mean((a <= result) & (result <= b)))
            found[f"{name} width"] = float(np.mean(b - a))
            found[f"{name} interval score"] = float(np.mean(interval_score(a, b, result)))
        return found


def interval_score(low: Floats, high: Floats, result: Floats, level: float = 0.9) -> Floats:
    """Width plus 2 / (1 - level) times the miss (Gneiting and Raftery, 2007, equation 43); less is better."""
    missed = np.maximum(low - result, 0.0) + np.maximum(result - high, 0.0)
    return high - low + 2.0 / (1.0 - level) * missed


def grounds(folder: str) -> Iterator[Ground]:
    for name in known_names(Path(folder)):
        truth = read(locate(name, folder))
        result = quality(truth, truth.metric)
        for view in views(truth):
            pool = Pool.of(view.architectures)
            assert (
                len(pool.entries.T) == len(pool.shapes) == len(pool.choices)
            )  # computed once, before forking
            higher = truth.is_higher_better(truth.metric)
            labels = Labels(truth.space, view.settings, truth.metric, higher, pool, result)
            yield Ground(truth.name + (f" {view.name}" if view.name else ""), labels)


GROUNDS: list[Ground] = []


def _task(task: tuple[int, int, int]) -> tuple[int, int, dict[str, float]]:
    ground, k, draw = task
    return ground, k, GROUNDS[ground].outcome(k, draw)


def study(draws: int) -> dict[tuple[int, int], dict[str, float]]:
    """Means over draws of every number, by benchmark and number of labels."""
    tasks = [(i, k, draw) for i in range(len(GROUNDS)) for k in SIZES for draw in range(draws)]
    sums: dict[tuple[int, int], dict[str, float]] = defaultdict(lambda: defaultdict(float))
    start = time.monotonic()
    with ProcessPoolExecutor() as workers:
        for done, (ground, k, found) in enumerate(workers.map(_task, tasks, chunksize=8), 1):
            for name, value in found.items():
                sums[ground, k][name] += value / draws
            if done % 200 == 0:
                left = (time.monotonic() - start) / done * (len(tasks) - done)
                print(f"{done} of {len(tasks)} calibrations, {left:.0f} s left", file=sys.stderr)
    return sums


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
    yield "| score | tau-b [95 %] | random ties | rho | over body parameters [95 %] | regret 1 / 5 | |"
    yield "|---|---|---|---|---|---|---|"
    for row in sorted(section.rows, key=lambda row: -(row.tau if row.tau is not None else -2.0)):
        yield "| " + " | ".join(cells(row)) + " |"


def cells(row: Row) -> list[str]:
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
        f"{row.regret_1:.3g} / {row.regret_5:.3g}",
        remark,
    ]


def calibration_tables(found: dict[tuple[int, int], dict[str, float]]) -> Iterator[str]:
    yield "\n| benchmark | labels | " + " | ".join(METHODS) + " | auto takes dictionary / gp / blend |"
    yield "|---|---|" + "---|" * (len(METHODS) + 1)
    for (ground, k), means in sorted(found.items()):
        taus = [f"{number(means[f'{m} tau'])} ({number(means[f'{m} random'])})" for m in METHODS]
        picks = " / ".join(f"{means.get(f'chose {m}', 0.0):.0%}" for m in ("dictionary", "gp", "blend"))
        yield f"| {GROUNDS[ground].title} | {k} | " + " | ".join(taus) + f" | {picks} |"
    yield "\n## Intervals\n"
    yield (
        "The 90 % intervals of the Gaussian process, and the interval from the second smallest to the second "
        "largest label. The interval score is the width plus 20 times the miss: less is better.\n"
    )
    yield "| benchmark | labels | coverage | of labels alone | width ratio | interval score ratio |"
    yield "|---|---|---|---|---|---|"
    for (ground, k), means in sorted(found.items()):
        yield (
            f"| {GROUNDS[ground].title} | {k} | {number(means['gp coverage'])} | "
            f"{number(means['labels coverage'])} | {number(means['gp width'] / means['labels width'])} | "
            f"{number(means['gp interval score'] / means['labels interval score'])} |"
        )


def heuristic_table() -> Iterator[str]:
    yield "| benchmark | literal alpha | tau / rho | used | tau / rho | warning |"
    yield "|---|---|---|---|---|---|"
    for ground in GROUNDS:
        batch, result = ground.labels.pool.batch, ground.labels.result
        try:
            found = algorithm2(batch)
        except ValueError as error:
            yield f"| {ground.title} | - | - | - | - | {error} |"
            continue
        pairs = []
        for alpha in (found.literal, found.alpha):
            agreed = agreement(make_score("zerolm", alpha=alpha).of_many(batch), result)
            pairs += [f"{alpha:.3f}", f"{number(agreed.tau)} / {number(agreed.rho)}"]
        yield f"| {ground.title} | " + " | ".join(pairs) + f" | {'; '.join(found.warnings)} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", help="folder of benchmark files; else ZEROLM_DATA")
    parser.add_argument("--draws", type=int, default=200, help="draws of labels (200)")
    arguments = parser.parse_args()
    folder = str(data_folder(arguments.data))
    GROUNDS.extend(grounds(folder))
    found = study(arguments.draws)
    comparison = bench(known_names(Path(folder)), data=folder)
    lines = [
        "# Leaderboard\n",
        f"Written by `python benchmarks/leaderboard.py`. Machine: {machine()}.\n",
        "Kendall's tau-b and Spearman's rho against quality (higher is better, perplexity negated); "
        "intervals are 95 % percentiles of 1000 bootstrap draws, those of differences paired. *Random "
        "ties*: the expected tau when the ties of the score are broken at random. *Regret*: mean loss "
        "of quality under 19 parameter budgets, of the best scored / the best of five. *not better*: "
        "total or body parameters alone do as well; *unclear*: the interval of the difference from body "
        "parameters reaches below 0.\n",
        "## Scores without labels\n",
        *(line for section in comparison.sections for line in score_table(section)),
        "\n## Calibrations\n",
        f"tau-b on all architectures that were not drawn, mean of {arguments.draws} draws of 20 or 50 "
        "labels; in brackets the same with ties broken at random. `auto` is the default.",
        *calibration_tables(found),
        "\n## ZeroLM's Algorithm 2\n",
        "Alpha without labels, on all architectures.\n",
        *heuristic_table(),
    ]
    PLACE.write_text("\n".join(lines) + "\n", encoding="utf-8")
    print(f"wrote {PLACE}", file=sys.stderr)


if __name__ == "__main__":
    main()
