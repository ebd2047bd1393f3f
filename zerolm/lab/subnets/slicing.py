"""Sub-networks of a parent with their results: sampled, cut in memory, evaluated, and stored one by one."""

from __future__ import annotations

import hashlib
import math
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
import transformers

import zerolm
from zerolm.architecture import Ints
from zerolm.carving.request import Methods
from zerolm.carving.session import Session
from zerolm.checkpoints import Checkpoint, ledger_of
from zerolm.checkpoints.identity import fingerprint
from zerolm.costs import CostModel
from zerolm.io.files import cache_folder
from zerolm.io.folders import locked
from zerolm.io.kept_rows import KeptRows
from zerolm.lab.subnets.judging import Judging, Results, judged_by
from zerolm.lab.subnets.request import CutRequest, DrawRequest, JudgingRequest
from zerolm.lab.subnets.walk import check_cut
from zerolm.networks.compute import compute
from zerolm.networks.workers import Backend, check_workers, finished
from zerolm.planning.part_costs import Choices, PartCosts
from zerolm.planning.size_spaces import SIZE_SPACES
from zerolm.planning.sizes import budgets_of, costs_of, part_costs_of
from zerolm.progress import Progress, silent
from zerolm.settings.compute import USUALLY, ComputeRequest, RunningRequest
from zerolm.solvers.problem import Budgets
from zerolm.text.defaults import RANDOM
from zerolm.units.importance.criteria import criterion_of, needs_tokens
from zerolm.units.importance.criterion import Criterion
from zerolm.units.kept_units import Cut, dimensions
from zerolm.units.within_layers import UNITS, LayerSizes

ROWS_VERSION: Final = 1
"""Increased whenever the evaluation of sub-networks changes: results of earlier versions are not used."""
AT_A_TIME: Final = 16
"""Number of sub-networks that pass each layer together."""
ROWS: Final = "rows.jsonl"
LISTED: Final = 1 << 16
"""Spaces of at most this number of sub-networks are enumerated and shuffled."""
DRAWN_AT_ONCE: Final = 1 << 14
USELESS_ROUNDS: Final = 512
"""Largest number of consecutive rounds of sampling without a new sub-network."""

Sizes = tuple[LayerSizes, ...]
"""The number of units of each kind in each layer."""


@dataclass(frozen=True, eq=False)
class Sliced:
    """Sub-networks of ``checkpoint`` by their sizes, with the results of each; those of the whole ``parent``.

    ``seconds`` is the time per network, without cached ones (None where all were cached). ``judged`` has the
    digests of the evaluation and calibration data.
    """

    checkpoint: Checkpoint
    space: str
    choices: Choices
    sizes: list[Sizes]
    results: list[Results]
    parent: Results
    fingerprint: str
    judged: dict[str, str]
    seconds: float | None


def slice_parent(
    parent: str | Path,
    draw: DrawRequest,
    cutting: CutRequest,
    judging: JudgingRequest,
    *,
    running: RunningRequest = USUALLY,
    jobs: int = 1,
    backend: Backend = "loky",
    progress: Progress = silent,
) -> Sliced:
    """Return sub-networks of a parent with their results.

    Results are cached one by one, so that an interrupted run can resume, and a larger count evaluates only
    the others. Raises ``ValueError``, in one line, for an impossible request.
    """
    check_workers(jobs, backend)
    computing = compute(running)
    rule, needs = cutting.repair, needs_tokens(cutting.criterion)
    if cutting.calibration is None and (needs or rule != "none"):
        what = f"criterion {cutting.criterion}" if needs else f"repair {rule}"
        raise ValueError(f"{what} needs tokens: give --calibration FILE, or --calibration random")
    checkpoint = Checkpoint.open(parent)
    name, choices = space_of(checkpoint, draw.space)
    sizes = draws_of(checkpoint, name, choices, draw)
    judged, texts = judged_by(checkpoint, judging)
    progress("reading the weights")
    ledger = ledger_of(checkpoint, progress=progress)  # rejects weights that are not finite
    weights = fingerprint(checkpoint, progress=progress)
    tokens = None
    if cutting.calibration is not None:
        methods = Methods(
            cutting.criterion, text=cutting.calibration, sequences=judging.sequences, length=judging.length
        )
        session = Session(checkpoint, methods, progress, ComputeRequest(running.device, running.dtype))
        session.check_criterion()
        texts["calibration_sha256"] = session.tokens.text or RANDOM
        tokens = None if rule == "none" else session.tokens
    criterion = session.importance() if needs else criterion_of(cutting.criterion, checkpoint, ledger)
    cuts = cuts_of(checkpoint, criterion, sizes)
    work = Judging(str(parent), judged, computing, rule, tokens)
    check_cut(work.blocks[0], cuts)
    circumstances = [
        ROWS_VERSION, zerolm.__version__, torch.__version__, transformers.__version__, weights,
        sorted(checkpoint.config.items(), key=str), rule,
        tokens.digest() if tokens else None, [one.digest() for one in judged],
        sorted(work.compute.to_json().items()),
    ]  # fmt: skip
    folder = cache_folder("subnets") / hashlib.sha256(repr(circumstances).encode()).hexdigest()[:32]
    with locked(folder, "another command judges sub-networks of this parent the same way; wait for it"):
        rows = KeptRows(folder / ROWS)
        whole = Cut.whole(dimensions(checkpoint))
        seconds = _judged([whole, *cuts], rows, work, jobs, backend, progress)
    results = [rows.results[digest_of(cut)] for cut in (whole, *cuts)]
    return Sliced(checkpoint, name, choices, sizes, results[1:], results[0], weights, texts, seconds)


def space_of(checkpoint: Checkpoint, name: str) -> tuple[str, Choices]:
    """Return the name of a space and its sizes; ``lonas-llama`` selects the one that fits the parent.

    Raises ``ValueError`` where no space has the name, or none of them fits the parent.
    """
    sized = re.compile(rf"{re.escape(name)}(-[0-9]+b)?")
    refused = []
    for each in filter(sized.fullmatch, SIZE_SPACES.names()):
        try:
            return each, SIZE_SPACES[each].choices(checkpoint)
        except ValueError as error:
            refused.append(str(error))
    raise ValueError("; ".join(refused) or f"{SIZE_SPACES.entry(name)}")


def draws_of(checkpoint: Checkpoint, space: str, choices: Choices, draw: DrawRequest) -> list[Sizes]:
    """Return the sizes of the sub-networks of a request."""
    costs, depth = CostModel(), dimensions(checkpoint).depth
    limits = budgets_of(draw.budgets, costs_of(checkpoint, costs, space=space))
    prices = part_costs_of(checkpoint, choices, costs, space)
    return drawn_sizes(choices, prices, depth, draw.count, draw.seed, limits)


def cuts_of(checkpoint: Checkpoint, criterion: Criterion, sizes: Sequence[Sizes]) -> list[Cut]:
    """Return cuts to these sizes, with units chosen by the criterion."""
    parent, chosen = dimensions(checkpoint), dict[tuple[int, str, int], Any]()

    def choose(layer: int, kind: str, count: int) -> Any:
        key = (layer, kind, count)
        if key not in chosen:
            chosen[key] = criterion.choose(*key)
        return chosen[key]

    return [Cut.of(parent, range(parent.depth), each.__getitem__, choose) for each in sizes]


def digest_of(cut: Cut) -> str:
    """Return an identifier of a cut of a parent."""
    units = [part.tobytes() for layer in cut.layers for part in layer.kept.values()]
    return hashlib.sha256(repr(units).encode()).hexdigest()[:32]


def _judged(
    cuts: Sequence[Cut], rows: KeptRows, work: Judging, jobs: int, backend: Backend, progress: Progress
) -> float | None:
    """Evaluate the cuts without a row; return the seconds per cut."""
    waiting = {digest: cut for cut in cuts if (digest := digest_of(cut)) not in rows.results}
    # neighbours share first layers
    names = sorted(waiting, key=lambda digest: tuple(waiting[digest].sizes.values()))
    groups = [names[start : start + AT_A_TIME] for start in range(0, len(names), AT_A_TIME)]
    items = [[waiting[name] for name in group] for group in groups]
    done, began = len(cuts) - len(waiting), time.perf_counter()
    progress("judging sub-networks", done, len(cuts))
    judged = finished(items, work, name=lambda _: "sub-networks", jobs=jobs, backend=backend)
    with closing(judged) as outcomes:
        for place, results in outcomes:
            rows.add(dict(zip(groups[place], results, strict=True)))
            done += len(results)
            progress("judging sub-networks", done, len(cuts))
    return (time.perf_counter() - began) / len(waiting) if waiting else None


def drawn_sizes(
    choices: Choices, costs: PartCosts, depth: int, count: int, seed: int, budgets: Mapping[str, int]
) -> list[Sizes]:
    """Return ``count`` different sub-networks of all layers, sampled uniformly from those within the budgets.

    ``budgets`` are ``max_`` and ``min_`` of costs. Raises ``ValueError`` where there are fewer, or those
    within budgets are too rare to be sampled.
    """
    lists = [kind for layer in range(depth) for kind in choices.of(layer)]  # the kinds of units in turn
    tables = [
        np.array([parts[size] for size in sizes])
        for layer in range(depth)
        for parts, sizes in zip(costs.layers[layer].units, choices.of(layer), strict=True)
    ]
    limits, chosen, useless = Budgets.of(dict(budgets)), dict[bytes, Ints](), 0
    for places in _samples(lists, np.random.default_rng(seed)):
        before = len(chosen)
        sums = costs.fixed + sum(table[places[:, i]] for i, table in enumerate(tables))
        for row in places[limits.allow(sums)]:
            if len(chosen) < count:
                chosen.setdefault(row.tobytes(), row)
        useless = 0 if len(chosen) > before else useless + 1
        if len(chosen) == count or useless == USELESS_ROUNDS:
            break
    if len(chosen) < count:
        within = " within the budgets" if budgets else ""
        drawn = f"{len(chosen):,} of {count:,} different sub-networks{within} were sampled"
        if not chosen:
            ends = [costs.fixed + sum(end(table, axis=0) for table in tables) for end in (np.min, np.max)]
            ranges = dict(zip(limits.names, zip(*ends, strict=True), strict=True))
            words = [
                f"{cost} of all are {ranges[cost][0]:,} to {ranges[cost][1]:,}"
                for cost in dict.fromkeys(name.partition("_")[2] for name in budgets)
            ]
            raise ValueError(f"no sub-network within the budgets was sampled; {', '.join(words)}")
        raise ValueError(f"only {drawn}; ask for {len(chosen):,} at most")
    counts = ([sizes[place] for sizes, place in zip(lists, row, strict=True)] for row in chosen.values())
    every = len(UNITS)
    return [tuple(tuple(each[i : i + every]) for i in range(0, len(each), every)) for each in counts]


def _samples(lists: Sequence[Sequence[int]], generator: np.random.Generator) -> Iterator[Ints]:
    """Yield places in the lists (n, lists): all in random order of a small space, else ever more."""
    lengths = list(map(len, lists))
    if math.prod(lengths) <= LISTED:
        yield generator.permutation(np.array(list(product(*map(range, lengths)))))
        return
    while True:
        yield np.stack([generator.integers(length, size=DRAWN_AT_ONCE) for length in lengths], axis=1)
