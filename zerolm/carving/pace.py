"""How long a carving takes, from a second of measurement (torch)."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Final

import torch

from zerolm.carving.bits.felt import FELT_TOKENS
from zerolm.carving.bits.prices import SAMPLED
from zerolm.carving.fisher import FISHER_TOKENS
from zerolm.carving.importance.criteria import needs_gradients
from zerolm.carving.kept_units import Dimensions
from zerolm.carving.planning.prices import PRICE_TOKENS
from zerolm.carving.planning.sensitivity import FINAL_TOKENS, LOSS_SEQUENCES, STREAM_SHARES, cuts_of
from zerolm.carving.request import Methods
from zerolm.networks.blocks import Blocks
from zerolm.progress import about
from zerolm.text.defaults import GENERATED

PACED_TOKENS: Final = 256
PACED_SIZE: Final = 512
LONG: Final = 60.0
"""Seconds from which it is worth saying what a carving takes, and what would take less."""
BACK: Final = 4.0
"""A layer there and, computed again, back: in units of the layer there."""
SOLVED: Final = 3.5
"""Layers there that repairing one takes: the parent's, and parts of the child's around each solve."""
STEPS: Final = 2.0
"""Passes there that sampling a token takes: few tokens pass at a time."""
ROUNDED: Final = 5e6
"""Weights that are rounded a second by one thread, about, over all types."""
ELIMINATED: Final = 6
"""Operations for each of n^3 that it takes to let n units go one by one."""
TRIED: Final = 6
"""Ridges solved for."""


@dataclass(frozen=True)
class Pace:
    """Seconds a token of one ``layer`` and of the ``head``, and of an ``operation`` of a sum in float64."""

    layer: float
    head: float
    operation: float


@dataclass(frozen=True)
class CarvingWork:
    """All that a carving does: its parent's sizes, its methods, and whether widths of the stream are tried.

    ``plans`` are whole plans that are repaired and measured before one of them is chosen; ``types`` of
    weights are chosen from.
    """

    parent: Dimensions
    methods: Methods
    narrows: bool
    plans: int
    is_written: bool
    types: int = 0

    def seconds(self, pace: Pace, sequences: int) -> dict[str, float]:
        """Return the seconds of each part of it, with so many sequences of calibration."""
        methods, depth = self.methods, self.parent.depth
        tokens = sequences * methods.length
        there = depth * pace.layer
        judged = min(sequences, LOSS_SEQUENCES) * methods.length
        if methods.plan != "measured":
            judged = min(tokens, PRICE_TOKENS)
        back = BACK * there + 3 * pace.head
        by_gradients = needs_gradients(methods.criterion)
        parts = {"weighing units": tokens * there + by_gradients * self._elimination(pace, tokens)}
        if methods.text == GENERATED:
            parts["sampling a text"] = STEPS * tokens * (there + pace.head)
        if self.narrows or by_gradients:
            parts["what the loss feels"] = min(tokens, FISHER_TOKENS) * back
        if methods.plan == "prices":
            parts["prices"] = min(tokens, PRICE_TOKENS) * back
        elif methods.plan == "measured":
            cuts = cuts_of(self.parent) * depth * (there / 2 + pace.head)
            widths = 2 * len(STREAM_SHARES) * (there + pace.head) if self.narrows else 0.0
            parts["measuring cuts"] = judged * (cuts + widths)
        if self.types:
            parts["what every matrix feels"] = min(tokens, FELT_TOKENS) * (back + pace.head)
            parts["rounding to types"] = self._rounding()
        again = 2 if self.types and self.plans else 1  # once more where types are known
        if self.plans > 1:
            fitted = min(tokens // 2, max(FINAL_TOKENS, 2 * self.parent.ffn))
            each = again * self._repair(pace, fitted, 1) + min(tokens // 2, FINAL_TOKENS) * (
                there + pace.head
            )
            parts["measuring the best plans"] = self.plans * each
        if self.is_written and methods.repair != "none":
            parts["repair"] = again * self._repair(pace, tokens)
        measured = 1 + (self.is_written and methods.repair != "none")
        parts["losses"] = judged * (1 + measured) * (there + pace.head)
        return parts

    def total(self, pace: Pace, sequences: int | None = None) -> float:
        """Return the seconds of all of it, with so many sequences, else with those of its methods."""
        return sum(self.seconds(pace, sequences or self.methods.count).values())

    def _elimination(self, pace: Pace, tokens: int) -> float:
        """Return the seconds of second moments, and of taking units away one by one."""
        parent = self.parent
        inputs = [parent.ffn, parent.heads * parent.head_size]
        each = sum(k * k * (tokens + parent.hidden + ELIMINATED * k) for k in inputs)
        return parent.depth * each * pace.operation

    def _rounding(self) -> float:
        """Return the seconds of rounding some rows of every matrix to every type."""
        parent = self.parent
        sampled = parent.depth * SAMPLED * (6 * parent.hidden + parent.ffn)
        return (1 + self.narrows) * self.types * sampled / ROUNDED

    def _repair(self, pace: Pace, tokens: int, tried: int = TRIED) -> float:
        """Return the seconds of a repair on so many tokens."""
        if self.methods.repair == "none":
            return 0.0
        parent = self.parent
        inputs = [parent.ffn, parent.heads * parent.head_size] + [parent.hidden] * 2 * self.narrows
        sums = sum(2 * tokens * k * (k / 2 + parent.hidden) for k in inputs)
        solves = sum(tried * k * k * (k / 3 + 2 * min(parent.hidden, 256)) for k in inputs)
        return parent.depth * (SOLVED * tokens * pace.layer + (sums + solves) * pace.operation)


def measured_pace(blocks: Blocks) -> Pace:
    """Return how long a layer, the head and sums take here, of the first batch."""
    hidden = blocks.embed(0)
    tokens = hidden.shape[0] * hidden.shape[1]
    blocks.call(0, 0, hidden)  # once to hold it
    layer = quickest(lambda: blocks.call(0, 0, hidden), blocks.device) / tokens
    blocks.finish(0, hidden[:, :1])
    head = quickest(lambda: blocks.finish(0, hidden), blocks.device) / tokens
    x = torch.ones(PACED_SIZE, PACED_SIZE, dtype=torch.float64, device=blocks.compute.sums)
    product = quickest(lambda: x @ x, blocks.compute.sums)
    return Pace(layer, head, product / (2 * PACED_SIZE**3))


def quickest(run: Callable[[], object], device: torch.device = torch.device("cpu"), times: int = 2) -> float:
    """Return the seconds of something that runs on a device, the least of several times."""
    taken = []
    for _ in range(times):
        start = time.perf_counter()
        run()
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        taken.append(time.perf_counter() - start)
    return min(taken)


def fitting(work: CarvingWork, pace: Pace, limit: float) -> int:
    """Return how many sequences a carving of so many seconds reads; ``ValueError`` where not even one."""
    sequences = work.methods.count
    while work.total(pace, sequences) > limit:
        if sequences == 1:
            least = about(work.total(pace, 1))
            raise ValueError(f"--for {about(limit)} is too short: one sequence takes about {least}")
        sequences = max(1, min(sequences - 1, sequences * 7 // 8))
    return sequences


def announcement(work: CarvingWork, pace: Pace) -> str:
    """Return what a carving takes in words, and what would take less; empty where it is quick."""
    total = work.total(pace)
    if total < LONG:
        return ""
    parts = work.seconds(pace, work.methods.count)
    named = sorted(parts.items(), key=lambda part: -part[1])[:3]
    most = ", ".join(f"{about(seconds)} {name}" for name, seconds in named)
    return f"about {about(total)}: {most}{_cheaper(work, pace, total)}"


def _cheaper(work: CarvingWork, pace: Pace, total: float) -> str:
    """Return what would take less, in words; empty where nothing does."""
    fewer = max(1, work.methods.count // 4)
    others: Mapping[str, CarvingWork] = {
        f"--sequences {fewer}": replace(work, methods=replace(work.methods, sequences=fewer)),
        "--plan prices": replace(work, methods=replace(work.methods, plan="prices")),
    }
    texts = []
    for name, other in others.items():
        seconds = other.total(pace)
        if seconds < 0.8 * total:
            texts.append(f"{name} takes {about(seconds)}")
    return f"; {', '.join(texts)}" if texts else ""
