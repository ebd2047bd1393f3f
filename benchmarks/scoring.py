"""Closed-form scores of many architectures against drawing their weights and decomposing them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from timing import note, number, one_thread, stopwatch, table

from zerolm.architecture import Architecture, Floats, Shapes
from zerolm.costs import CostModel
from zerolm.scores import ClosedForm, make_score
from zerolm.scores.capacity import variance
from zerolm.solvers.problem import compile_problems
from zerolm.spaces import Backbone, make_space

ALPHA = 1.1
BATCH = 1 << 21
CHUNK = 1 << 14
SPACES = {"flexibert": 8, "gpt2": 4}
"""Spaces, and how many of their architectures are drawn and decomposed."""

Weights = NDArray[np.float32]
Network = list[tuple[float, Weights]]
"""Weight matrices with what each counts: alpha, or 1 - alpha."""
Columns = NDArray[np.uint16]


def capacity(matrix: Weights) -> float:
    """Return ||W||_F^2 / min(rows, cols), the mean squared singular value."""
    return float(np.sum(np.square(matrix, dtype=np.float64))) / min(matrix.shape)


def draw(architecture: Architecture, rng: np.random.Generator) -> Network:
    """All attention and FFN matrices at their initial deviations."""
    shapes = Shapes.of(architecture.layers)
    deviation = np.sqrt(variance(shapes, np.array(architecture.depth)))
    return [
        (
            ALPHA if shapes.attention[i, j] else 1.0 - ALPHA,
            rng.standard_normal((matrix.rows, matrix.cols), np.float32) * np.float32(deviation[i, j]),
        )
        for i, layer in enumerate(architecture.layers)
        for j, matrix in enumerate(layer.matrices)
    ]


def by_svd(w: Weights) -> float:
    """The mean squared singular value, in the precision of the weights."""
    return float(np.mean(np.square(np.linalg.svd(w, compute_uv=False), dtype=np.float64)))


def weigh(network: Network, measure: Callable[[Weights], float]) -> float:
    return sum(weight * measure(w) for weight, w in network)


@dataclass(frozen=True, eq=False)
class Batch:
    """Architectures as small integers: entry ``columns[l, i]`` of ``values`` is layer l of architecture i.

    The last entry is 0.0, for layers that a shallower architecture lacks.
    """

    values: Floats
    columns: Columns
    backbone: NDArray[np.int64]
    starts: NDArray[np.int64]

    @classmethod
    def sample(cls, backbones: Sequence[Backbone], score: ClosedForm, rng: np.random.Generator) -> Batch:
        """Backbones equally likely, and within each the shapes of every layer."""
        blocks = [problem.blocks[0] for problem in compile_problems(backbones, score, CostModel())]
        tables = {id(table): table for table, _ in blocks}
        sizes = {key: len(table) for key, table in tables.items()}
        offsets = dict(zip(tables, np.cumsum([0, *sizes.values()]).tolist(), strict=False))
        values = np.concatenate([*(table.score for table in tables.values()), [0.0]])
        if len(values) > 1 << 16:
            raise ValueError(f"{len(values)} table entries do not fit 16-bit indices")
        start = np.array([offsets[id(table)] for table, _ in blocks])
        size = np.array([sizes[id(table)] for table, _ in blocks])
        depth = np.array([count for _, count in blocks])
        backbone = rng.integers(len(blocks), size=BATCH)
        columns = np.empty((depth.max(), BATCH), np.uint16)
        for layer, column in enumerate(columns):
            entry = start[backbone] + (rng.random(BATCH) * size[backbone]).astype(np.int64)
            column[:] = np.where(layer < depth[backbone], entry, len(values) - 1)
        return cls(values, columns, backbone, start)

    def scores(self) -> Floats:
        """Sums over layers, a cache-sized chunk of architectures at a time."""
        total = np.zeros(self.columns.shape[1])
        for first in range(0, len(total), CHUNK):
            part = total[first : first + CHUNK]
            for column in self.columns:
                part += self.values.take(column[first : first + CHUNK], mode="clip")
        return total

    def picks(self, i: int) -> tuple[int, ...]:
        chosen = self.columns[:, i]
        present = chosen[chosen < len(self.values) - 1].astype(int)
        return tuple((present - self.starts[self.backbone[i]]).tolist())

    @property
    def bytes(self) -> int:
        """Indices, table and results."""
        return int(self.columns.nbytes + self.values.nbytes + 8 * self.columns.shape[1])


def measure(name: str, rng: np.random.Generator) -> list[list[Any]]:
    """Rows of seconds an architecture, and of ratios to the reference."""
    space, score = make_space(name), make_score("zerolm", alpha=ALPHA)
    assert isinstance(score, ClosedForm)
    backbones = list(space.backbones())
    note(f"{name}: scoring a batch of {BATCH:,}")
    batch = Batch.sample(backbones, score, rng)
    total, scores = stopwatch(batch.scores, 5)
    some = [space.assemble(backbones[batch.backbone[i]], [batch.picks(i)]) for i in range(2000)]
    single, exact = stopwatch(partial(score.of_many, some), 3)
    np.testing.assert_allclose(scores[: len(some)], exact, rtol=1e-12)

    built = decomposed = squared = worst = 0.0
    for i, architecture in enumerate(some[: SPACES[name]]):
        note(f"{name}: drawing and decomposing architecture {i + 1} of {SPACES[name]}")
        seconds, network = stopwatch(partial(draw, architecture, rng))
        built += seconds / SPACES[name]
        seconds, drawn = stopwatch(partial(weigh, network, by_svd))
        decomposed += seconds / SPACES[name]
        seconds, same = stopwatch(partial(weigh, network, capacity), 3)
        squared += seconds / SPACES[name]
        np.testing.assert_allclose(same, drawn, rtol=1e-4)
        worst = max(worst, abs(drawn / exact[i] - 1.0))
    print(
        f"`{name}`: {BATCH:,} architectures of up to {len(batch.columns)} layers in {total:.3f} s, "
        f"{batch.bytes / BATCH:.0f} bytes each with index and result ({batch.bytes / 1e6:.0f} MB in all); "
        f"drawn scores differ from their expectation by at most {worst:.2%}.\n"
    )
    reference = built + decomposed
    ways = [
        ("weights drawn + SVD (the reference)", reference),
        ("weights drawn + Frobenius", built + squared),
        ("SVD, weights already drawn", decomposed),
        ("Frobenius, weights already drawn", squared),
        ("closed form, from `Architecture` objects", single / len(some)),
        ("closed form, batch of table indices", total / BATCH),
    ]
    return [[f"{name}: {way}", number(reference / each) + "x", each] for way, each in ways]


def main() -> None:
    one_thread()
    rng = np.random.default_rng(0)
    print("## Scoring\n")
    rows = [row for name in SPACES for row in measure(name, rng)]
    table(["ZeroLM score of one architecture", "against the reference", "seconds"], rows)


if __name__ == "__main__":
    main()
