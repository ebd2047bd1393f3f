"""The whole FlexiBERT space, architecture by architecture: scores, parameters, MACs, and the best 1000."""

from __future__ import annotations

import itertools
import json
import resource
import statistics
import subprocess
import sys
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from timing import note, number, stopwatch, table

from zerolm.architecture import Floats, Ints, Shapes
from zerolm.costs import COSTS, CostModel
from zerolm.scores import ClosedForm, make_score
from zerolm.solvers.exhaustive import States
from zerolm.solvers.problem import at_least, compile_problems
from zerolm.spaces import make_space
from zerolm.spaces.flexibert import OPERATIONS

SCORE = "geo"
TOP = 1000
BITS = 36
"""Layer scores are rounded to this many bits, so that sums of four are exact and equals are equal."""
PARAMS, MACS = COSTS.index("params"), COSTS.index("macs")
PROCESSES = 5
TIMES = ("filling", "choosing", "again", "floor")
Narrow = NDArray[np.int32]


@dataclass(frozen=True, eq=False)
class Whole:
    """One entry an architecture, (n,): by hidden size, then depth, then the choice of each layer."""

    score: Floats
    params: Narrow
    macs: Narrow

    def best(self, count: int) -> Ints:
        """Indices of the highest scores; of equal scores fewer MACs come first, then the lower index."""
        cut = np.partition(self.score, -count)[-count]
        reached = np.flatnonzero(self.score >= cut)
        return reached[np.lexsort((self.macs[reached], -self.score[reached]))][:count]


def enumerate_space() -> Whole:
    """Every architecture of the space, as outer sums over its layers."""
    space, score, costs = make_space("flexibert"), make_score(SCORE), CostModel()
    assert isinstance(score, ClosedForm)
    ranges = (OPERATIONS, space.settings["heads"], space.settings["ffn"], space.settings["stacks"])
    names = ("num_operation_heads", "feed_forward_dimension", "num_feed_forward")
    layers = [
        {"operation_type": kind, "operation_parameter": parameter, **dict(zip(names, rest, strict=True))}
        for (kind, parameter), *rest in itertools.product(*ranges)
    ]
    depths = space.settings["depth"]
    size = len(space.settings["hidden"]) * sum(len(layers) ** depth for depth in depths)
    whole = Whole(np.empty(size), np.empty(size, np.int32), np.empty(size, np.int32))
    start = 0
    for hidden in space.settings["hidden"]:
        network = space.read({"hidden_size": hidden, "encoder_layers": layers})
        shapes = Shapes.of(network.layers)
        outside, each = costs.ends(network.ends), costs.layers(shapes)
        if (outside + max(depths) * each.max(axis=0))[[PARAMS, MACS]].max() >= 1 << 31:
            raise OverflowError("parameters or MACs do not fit 32 bits")
        for depth in depths:
            end = start + len(layers) ** depth
            fill(whole.score[start:end], rounded(score.layer(shapes, np.array(depth))), 0.0, depth)
            fill(whole.params[start:end], each[:, PARAMS].astype(np.int32), int(outside[PARAMS]), depth)
            fill(whole.macs[start:end], each[:, MACS].astype(np.int32), int(outside[MACS]), depth)
            start = end
    return whole


def rounded(values: Floats | Ints) -> Floats:
    """The values to ``BITS`` bits of the largest."""
    unit = 2.0 ** (np.frexp(np.abs(values).max())[1] - BITS)
    return np.asarray(np.rint(values / unit) * unit, np.float64)


def fill(out: NDArray[Any], values: NDArray[Any], constant: float, depth: int) -> None:
    """All sums of ``depth`` values, the first layer's choice varying slowest, written into ``out``."""
    left, right = np.array([constant], out.dtype), np.zeros(1, out.dtype)
    for layer in range(depth):
        if layer < depth // 2:
            left = np.add.outer(left, values).ravel()
        else:
            right = np.add.outer(right, values).ravel()
    np.add.outer(left, right, out=out.reshape(len(left), len(right)))


def write_like(size: int) -> None:
    """The floor: fresh arrays of the same sizes, filled with a constant."""
    Whole(np.full(size, 1.0), np.full(size, 1, np.int32), np.full(size, 1, np.int32))


def peak() -> float:
    """The largest resident size of this process so far, in MB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3


def child() -> dict[str, Any]:
    """Time and memory of one enumeration in a process of its own, on its first call."""
    before = peak()
    seconds, whole = stopwatch(enumerate_space)
    choosing, best = stopwatch(lambda: whole.best(TOP))
    memory = peak()
    ties = int(np.count_nonzero(whole.score == whole.score[best[0]]))
    return {
        "before": before, "peak": memory, "filling": seconds, "choosing": choosing, "ties": ties,
        "size": len(whole.score), "best": float(whole.score[best[0]]), "last": float(whole.score[best[-1]]),
        "macs": whole.macs[best].tolist(), "again": stopwatch(lambda: enumerate_space().best(TOP), 5)[0],
        "floor": stopwatch(lambda: write_like(len(whole.score)), 5)[0],
    }  # fmt: skip


def measured() -> dict[str, Any]:
    """What children report: the median of each time, the largest peak of memory."""
    command = [sys.executable, __file__, "child"]
    runs = [
        json.loads(subprocess.run(command, capture_output=True, check=True, text=True).stdout)
        for _ in range(PROCESSES)
    ]
    times = {name: statistics.median(run[name] for run in runs) for name in TIMES}
    return {**max(runs, key=lambda run: run["peak"]), **times}


def verify(found: dict[str, Any], states: States) -> None:
    """Against the multisets of candidates: size, best score, its ties, and the MACs of the best 1000."""
    best = states.score.max()
    assert found["size"] == states.ways.sum()
    assert abs(found["best"] / best - 1.0) < 1e-9
    assert found["ties"] == states.ways[at_least(states.score, best)].sum()
    order = np.lexsort((states.costs[:, MACS], -np.round(states.score / best, 10)))
    order = np.repeat(order, np.minimum(states.ways[order], TOP).astype(int))[:TOP]
    assert abs(found["last"] / states.score[order[-1]] - 1.0) < 1e-9
    assert found["macs"] == states.costs[order, MACS].tolist()


def main() -> None:
    if sys.argv[1:] == ["child"]:
        print(json.dumps(child()))
        return
    note(f"flexibert: enumerating in {PROCESSES} processes, one after the other")
    found = measured()
    note("flexibert: the same by multisets, and from objects")
    space, score = make_space("flexibert"), make_score(SCORE)
    assert isinstance(score, ClosedForm)
    backbones = list(space.backbones())
    multisets, states = stopwatch(lambda: States.of(compile_problems(backbones, score, CostModel())))
    verify(found, states)
    rng = np.random.default_rng(0)
    some = [states.solution(i) for i in rng.integers(len(states.score), size=2000)]
    objects = [space.assemble(backbones[solution.problem], solution.picks) for solution in some]
    costs = CostModel()
    one_by_one, _ = stopwatch(lambda: (score.of_many(objects), [costs.of(a) for a in objects]), 3)
    one_by_one *= found["size"] / len(objects)

    first, again = found["filling"] + found["choosing"], found["again"]
    print("## The whole FlexiBERT space\n")
    above = found["peak"] - found["before"]
    print(
        f"{found['size']:,} architectures one by one: `{SCORE}`, parameters and MACs of each, and the best "
        f"{TOP} (higher score, then fewer MACs, then lower index). The process peaks at "
        f"{found['peak']:.0f} MB, {above:.0f} MB above its imports. {found['ties']:,} architectures tie at "
        f"the top; size, ties, and the best {TOP} agree with the enumeration of multisets.\n"
    )
    ways = [
        ("fresh arrays of the same sizes filled with a constant (the floor)", found["floor"]),
        ("all scores, parameters, MACs and the best 1000, repeated", again),
        ("the same, first call of a process", first),
        ("of that: choosing the best 1000", found["choosing"]),
        (f"multisets of layers with all costs ({len(states.score):,} states)", multisets),
        ("from `Architecture` objects (2,000 of them, extrapolated)", one_by_one),
    ]
    table(["", "against the floor", "seconds"], [[w, f"{number(s / found['floor'])}x", s] for w, s in ways])


if __name__ == "__main__":
    main()
