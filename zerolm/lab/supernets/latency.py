"""Latencies of a supernet's blocks on this machine, which add up to those of its paths."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

import numpy as np
import torch
from torch import Tensor

from zerolm.architecture import Architecture
from zerolm.costs import LATENCY, CostModel, Latencies
from zerolm.lab.spaces.elastic import Elastic
from zerolm.lab.supernets.supernet import drawn_network
from zerolm.progress import Progress, silent
from zerolm.solvers.result import LatencyTable

TIMING_SECONDS: Final = 20.0
"""How long rounds are begun."""
ROUNDS: Final = (7, 99)
"""Rounds at least, and at most."""
Forward = Callable[[], object]


@dataclass(frozen=True)
class Timing:
    """How networks are timed: a forward pass of ``batch`` sequences of ``tokens``, float32 on the CPU."""

    batch: int
    tokens: int
    seconds: float = TIMING_SECONDS

    @classmethod
    def of(cls, space: Elastic, costs: CostModel) -> Timing:
        """Return the timing under the conditions of costs, of sequences no longer than the positions."""
        return cls(costs.batch, min(costs.context, space.positions))

    def ids(self, space: Elastic) -> Tensor:
        """Return token ids (batch, tokens), always the same."""
        generator = torch.Generator().manual_seed(0)
        return torch.randint(space.vocab, (self.batch, self.tokens), generator=generator)


def measured_latencies(
    space: Elastic, timing: Timing, progress: Progress = silent
) -> tuple[Latencies, LatencyTable]:
    """Return the latencies of every layer that paths may have, and of the ends, and the table of them.

    Layers whose shapes are equal do the same work, whichever projections they share: one of them is timed.
    """
    choices = {
        layer: ways
        for backbone in space.backbones()
        for block in backbone.blocks
        for layer, ways in zip(block.candidates.layers, block.candidates.alternatives, strict=True)
    }
    stack = drawn_network(space.read({"layers": [ways[0] for ways in choices.values()]}), 0)
    ids = timing.ids(space)
    with torch.inference_mode():
        hidden = stack.embeddings(ids)
    forwards: list[Forward] = [lambda: stack.head(stack.final(stack.embeddings(ids)))]
    forwards += [partial(layer, hidden) for layer in stack.layers]
    (ends, *times), rounds = microseconds(forwards, timing.seconds, progress)
    rows = [
        {**way, LATENCY: latency}
        for ways, latency in zip(choices.values(), times, strict=True)
        for way in ways
    ]
    rows.sort(key=lambda row: (space.kinds.index((row["block"], row["share"])), row["ffn"]))
    table = LatencyTable(timing.batch, timing.tokens, torch.get_num_threads(), rounds, ends, rows)
    return Latencies(dict(zip(choices, times, strict=True)), ends), table


def measured_whole(architecture: Architecture, space: Elastic, timing: Timing) -> int:
    """Return the microseconds of a whole network, of its embedding, all its layers and its head."""
    stack, ids = drawn_network(architecture, 0), timing.ids(space)
    (whole,), _ = microseconds([partial(stack, ids)], timing.seconds)
    return whole


def microseconds(
    forwards: Sequence[Forward], seconds: float, progress: Progress = silent
) -> tuple[list[int], int]:
    """Return the least time of each call in whole microseconds, at least 1, and of how many rounds.

    The least, because what else a machine does only adds: on a busy one it repeats to a few percent where
    medians differ by half. All are called once in every round, so that none finds its weights in the cache
    because it was the last. The first round only warms up. No round begins after ``seconds``.
    """
    times: list[list[float]] = []
    begin, (fewest, most) = time.perf_counter(), ROUNDS
    with torch.inference_mode():
        while len(times) <= fewest or (len(times) <= most and time.perf_counter() - begin < seconds):
            progress("measuring latencies", len(times), most + 1)
            row = []
            for forward in forwards:
                start = time.perf_counter()
                forward()
                row.append(time.perf_counter() - start)
            times.append(row)
    least = np.array(times[1:]).min(axis=0) * 1e6
    return [max(1, round(value)) for value in least.tolist()], len(times) - 1
