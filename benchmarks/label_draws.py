"""Calibrations fitted to random draws of labels, judged on the architectures that were not drawn."""

from __future__ import annotations

import json
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import numpy as np
from timing import note

from zerolm.architecture import Floats, Ints
from zerolm.calibration import Labels, Pool, calibrate
from zerolm.calibration.calibrate import FIXED
from zerolm.calibration.pool import part
from zerolm.calibration.rivals import RIVALS, UNCALIBRATED
from zerolm.groundtruth.reader import data_folders, known_names, locate, quality, read, views
from zerolm.scores import make_score
from zerolm.statistics import agreement

SIZES: Final = (20, 50)
METHODS: Final = (*UNCALIBRATED, "algorithm1", *FIXED, "stack")
WAYS: Final = ("random", "larger")
"""Labels drawn from all architectures, judged on the rest; or from the half with fewer parameters, judged on
the half with more."""

Case = tuple[str, str, int]
"""A benchmark's title, a way to draw, and the number of labels."""
Outcome = dict[str, float]


@dataclass(frozen=True)
class Ground:
    """One benchmark in one view, ready to be drawn from."""

    title: str
    labels: Labels

    def draw(self, way: str, k: int, draw: int) -> tuple[Ints, Ints]:
        """Return the labels that are seen and those on which calibrations are judged."""
        n, generator = len(self.labels), np.random.default_rng([draw, k])
        if way == "random":
            order = generator.permutation(n)
            return order[:k], order[k:]
        size = make_score("params").of_many(self.labels.pool.batch)
        order = np.argsort(size, kind="stable")
        return generator.permutation(order[: n // 2])[:k], order[n // 2 :]

    def outcome(self, way: str, k: int, draw: int) -> Outcome:
        """Return agreements, and coverage and width of intervals, on what one draw hides."""
        seen, hidden = self.draw(way, k, draw)
        labels = part(self.labels, seen)
        pool, result = self.labels.pool.take(hidden), self.labels.result[hidden]
        stack = calibrate(labels, "stack", seed=draw)
        assert stack.predictor
        scores = {name: make_score(name).of_many(pool.batch) for name in UNCALIBRATED}
        scores["algorithm1"] = calibrate(labels, "algorithm1").rank(pool)
        for name, weights in FIXED.items():
            fixed = replace(stack, method=name, predictor=replace(stack.predictor, weights=np.array(weights)))
            scores[name] = fixed.rank(pool)
        scores["stack"] = stack.rank(pool)
        numbers = {f"weight {name}": weight for name, weight in stack.weights.items()}
        for name in METHODS:
            agreed = agreement(scores[name], result)
            numbers |= {f"{name} tau": agreed.tau, f"{name} random": agreed.tau_random_ties}
        predicted = stack.predict(pool)
        assert predicted
        ordered = np.sort(labels.result)
        ends = np.full(len(hidden), ordered[1]), np.full(len(hidden), ordered[-2])
        for name, (low, high) in {"stack": (predicted.low, predicted.high), "labels": ends}.items():
            numbers[f"{name} coverage"] = float(np.mean((low <= result) & (result <= high)))
            numbers[f"{name} width"] = float(np.mean(high - low))
            numbers[f"{name} interval score"] = float(np.mean(interval_score(low, high, result)))
        return numbers


def interval_score(low: Floats, high: Floats, result: Floats, level: float = 0.9) -> Floats:
    """Return width plus 2 / (1 - level) times the miss (Gneiting and Raftery, 2007, equation 43)."""
    missed = np.maximum(low - result, 0.0) + np.maximum(result - high, 0.0)
    return high - low + 2.0 / (1.0 - level) * missed


def grounds(folders: str) -> Iterator[Ground]:
    """Return the benchmarks of folders in each of their views, of which no more than half are ever labels."""
    for name in known_names(*data_folders(folders)):
        truth = read(locate(name, folders))
        metric = truth.metric_of(None)
        for view in views(truth):
            higher = truth.is_higher_better(metric)
            pool = Pool.of(view.architectures)
            if len(pool) < 2 * max(SIZES):
                continue
            labels = Labels(truth.space, view.settings, metric, higher, pool, quality(truth, metric))
            yield Ground(truth.name + (f" {view.name}" if view.name else ""), labels)


def study(grounds: Sequence[Ground], draws: int, kept: Path | None) -> dict[Case, list[Outcome]]:
    """Return the outcome of every draw; those in the file ``kept`` are read, and new ones added to it."""
    outcomes: dict[Case, dict[int, Outcome]] = defaultdict(dict)
    if kept and kept.exists():
        for line in kept.read_text("utf-8").splitlines():
            title, way, k, draw, outcome = json.loads(line)
            outcomes[title, way, k][draw] = outcome
    tasks = [
        (draw, ground, way, k) for draw in range(draws) for ground in grounds for way in WAYS for k in SIZES
    ]
    todo = [task for task in tasks if task[0] not in outcomes[task[1].title, task[2], task[3]]]
    start = time.monotonic()
    for done, (draw, ground, way, k) in enumerate(todo):
        if done % 200 == 20:
            left = (time.monotonic() - start) / done * (len(todo) - done)
            note(f"{done} of {len(todo)} draws of labels, {left:.0f} s left")
        outcome = ground.outcome(way, k, draw)
        outcomes[ground.title, way, k][draw] = outcome
        if kept:
            with kept.open("a", encoding="utf-8") as file:
                file.write(json.dumps([ground.title, way, k, draw, outcome]) + "\n")
    return {case: [rows[draw] for draw in range(draws)] for case, rows in outcomes.items()}


__all__ = ["METHODS", "RIVALS", "SIZES", "WAYS", "Case", "Ground", "Outcome", "grounds", "study"]
