"""How long it takes to plan a cut of a large checkpoint, from its ledger alone."""

from __future__ import annotations

import multiprocessing
import statistics
import time
from collections.abc import Callable
from functools import partial
from typing import Final

import numpy as np
from timing import note, number, stopwatch, table

from zerolm.checkpoints import Checkpoint, ledger_of
from zerolm.costs import COSTS, CostModel
from zerolm.planning.part_costs import Choices, part_costs
from zerolm.planning.plan import plan_per_layer
from zerolm.solvers.problem import Budgets
from zerolm.units.importance.criteria import criterion_of
from zerolm.units.kept_units import dimensions

STEPS: Final = 64
SHARES: Final = (0.6, 0.7, 0.8, 0.9)
TRIPLES: Final = 5
BUDGETS: Final = ("params", "macs", "kv_bytes")
LIMIT: Final = 30.0
"""Seconds on the wall after which a plan is given up."""
TEXT: Final = """## Planning

The best cut by `capacity` with sizes of its own in each of {layers} layers, out of {groups} numbers of KV
groups and {widths} FFN widths: with a budget of parameters, and with three budgets (parameters, MACs, KV
bytes, each 55 to 95 % of the parent's). Seconds are those of the processor, on one thread, from the ledger
to the cut; a plan is given up after {limit:.0f} seconds on the wall.
"""


def measure_planning(checkpoint: Checkpoint) -> None:
    parent = dimensions(checkpoint)
    opening, ledger = stopwatch(partial(ledger_of, checkpoint), 5)
    step = parent.ffn // STEPS
    choices = Choices(
        (tuple(range(1, parent.kv_heads + 1)), tuple(range(step, parent.ffn + 1, step))), (parent.depth,)
    )
    costs = CostModel(context=4096)
    whole = part_costs(checkpoint, choices, costs).of(
        dict.fromkeys(range(parent.depth), (parent.kv_heads, parent.ffn))
    )

    def plan(limits: dict[str, float]) -> bool:
        """Whether the plan that keeps these shares of the parent's costs is proven."""
        budgets = Budgets.of(
            {f"max_{name}": int(share * whole[COSTS.index(name)]) for name, share in limits.items()}
        )
        worth = criterion_of("capacity", checkpoint, ledger)
        return plan_per_layer(parent, worth, choices, part_costs(checkpoint, choices, costs), budgets).optimal

    rng = np.random.default_rng(0)
    triples = [dict(zip(BUDGETS, rng.uniform(0.55, 0.95, 3).tolist(), strict=True)) for _ in range(TRIPLES)]
    print(TEXT.format(layers=parent.depth, groups=parent.kv_heads, widths=STEPS, limit=LIMIT))
    rows = [["the ledger from the cache", number(opening), number(opening), ""]]
    for name, asked in (("one budget", [{"params": share} for share in SHARES]), ("three budgets", triples)):
        taken = [within_limit(partial(plan, limits)) for limits in asked]
        proven = sum(seconds <= LIMIT for seconds in taken)
        rows.append(
            [name, _seconds(statistics.median(taken)), _seconds(max(taken)), f"{proven} of {len(taken)}"]
        )
    table(["", "seconds, median", "worst", "proven"], rows)


def within_limit(plan: Callable[[], bool]) -> float:
    """Seconds of the processor until a plan was proven, in a process of its own; infinity when given up."""
    context = multiprocessing.get_context("fork")
    receiver, sender = context.Pipe(duplex=False)

    def work() -> None:
        start = time.process_time()
        proven = plan()
        sender.send(time.process_time() - start if proven else np.inf)

    process = context.Process(target=work)
    process.start()
    seconds = receiver.recv() if receiver.poll(LIMIT) else np.inf
    process.kill()
    process.join()
    note(f"planned in {seconds:.2f} s")
    return float(seconds if seconds <= LIMIT else np.inf)


def _seconds(value: float) -> str:
    return number(value) if np.isfinite(value) else f"> {LIMIT:.0f}"
