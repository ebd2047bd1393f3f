"""Proxies of many candidates: computed here, in workers or on a cluster, stored, made into columns of scores.

What is stored is not computed again.
"""

from __future__ import annotations

import logging
import math
import os
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Final, TypeVar

import numpy as np
import torch
import transformers

from zerolm.architecture import Floats
from zerolm.lab.zero_cost import find_proxy
from zerolm.lab.zero_cost.candidates import Candidate
from zerolm.lab.zero_cost.compute import Outcome, compute
from zerolm.lab.zero_cost.memory import check_memory
from zerolm.lab.zero_cost.registry import LeftOut, Proxy
from zerolm.lab.zero_cost.settings import Settings
from zerolm.lab.zero_cost.store import Evaluation, Key, Store
from zerolm.networks.compute import computed
from zerolm.networks.workers import Backend, finished
from zerolm.progress import Progress, silent
from zerolm.text.batches import TokenSource

logger = logging.getLogger(__name__)

PASSES_VERSION: Final = 1
"""Counts changes of passes and networks: what an earlier version stored is not used."""
LIBRARIES: Final = f"torch {torch.__version__}, transformers {transformers.__version__}"
"""Another version may round otherwise, or build another network."""


Item = TypeVar("Item")
Work = Callable[[Item, tuple[Key, ...]], Sequence[Evaluation]]
"""Evaluates an item, given those of its keys that the store lacks."""
COMPUTING: Final = "computing proxies of networks"


@dataclass(frozen=True, eq=False)
class ProxyWork:
    """The proxies of a candidate, computed; it can be pickled for another process, as can the proxies."""

    proxies: Sequence[Proxy]
    source: TokenSource
    settings: Settings
    workers: int

    def __call__(self, candidate: Candidate, keys: Sequence[Key]) -> list[Evaluation]:
        wanted = {key.proxy for key in keys}
        proxies = [proxy for proxy in self.proxies if proxy.name in wanted]
        check_memory(candidate, proxies, self.settings, self.workers)
        try:
            outcomes = self._outcomes(candidate, proxies)
        except (torch.OutOfMemoryError, MemoryError):
            raise ValueError(
                f"the passes do not fit into the memory of {self.settings.device}: take a smaller network, a "
                f"smaller --batch or --length, or more --micro-batches"
            ) from None
        return [
            Evaluation(key, one.value, one.seconds, one.left_out or "")
            for key, one in ((key, outcomes[key.proxy]) for key in keys)
        ]

    def _outcomes(self, candidate: Candidate, proxies: Sequence[Proxy]) -> dict[str, Outcome]:
        network = candidate.network(self.settings.seed)
        settings = self.settings
        computed(network.module.to(settings.compute.device), settings.compute)
        batch = self.source.batch(
            network.task, network.classes, settings.batch, settings.length, settings.seed
        )
        return compute(network, proxies, batch, settings.protocol(network.task))


@dataclass(frozen=True, eq=False)
class Measured:
    """The scores of n candidates on tokens of ``source``.

    ``columns`` are scores (n,), higher expected to be better; those of proxies that combine their parts
    depend on all the candidates. ``values`` are what each proxy computed of each candidate, empty where it
    could not. ``seconds`` are means a network of a column, as if its proxy ran alone. ``left_out`` says why
    a proxy has no column.
    """

    source: str
    candidates: Sequence[Candidate]
    columns: dict[str, Floats]
    values: dict[str, list[tuple[float, ...]]]
    seconds: dict[str, float]
    left_out: dict[str, str]


def evaluate(
    candidates: Sequence[Candidate],
    names: Sequence[str],
    source: TokenSource,
    settings: Settings,
    *,
    store: Store,
    jobs: int = 1,
    backend: Backend = "loky",
    progress: Progress = silent,
) -> Measured:
    """Return the proxies ``names`` of all candidates; what the store holds already is not computed again.

    ``ValueError`` for an unknown proxy, a model without known roles, a loss that is not finite, or a network
    that is too large: what was computed before it is in the store.
    """
    proxies = [find_proxy(name) for name in dict.fromkeys(names)]
    text = settings.key(source)

    def keys(candidate: Candidate) -> list[Key]:
        return [
            Key(candidate.identity, proxy.name, text, f"{PASSES_VERSION}.{proxy.revision}, {LIBRARIES}")
            for proxy in proxies
        ]

    workers = min(jobs if backend == "loky" else os.cpu_count() or 1, len(candidates))
    evaluations = run(
        candidates,
        ProxyWork(proxies, source, settings, workers),
        store,
        keys,
        name=lambda candidate: candidate.name,
        jobs=jobs,
        backend=backend,
        progress=progress,
    )
    table = [[evaluations[key] for key in keys(candidate)] for candidate in candidates]
    measured = Measured(source.name, candidates, {}, {}, {}, {})
    for proxy, column in zip(proxies, zip(*table, strict=True), strict=True):
        _add(measured, proxy, column)
    return measured


def run(
    items: Iterable[Item],
    work: Work[Item],
    store: Store,
    keys: Callable[[Item], Iterable[Key]],
    *,
    name: Callable[[Item], str] = str,
    jobs: int = 1,
    backend: Backend = "loky",
    progress: Progress = silent,
) -> dict[Key, Evaluation]:
    """The evaluations of all keys of all items, of which ``work`` computes those that the store lacks.

    ``loky`` works in ``jobs`` processes of this machine (one: in this process), ``ray`` on every CPU of a
    cluster; ``work`` and the items must be picklable then. Only this process writes to the store, each item
    when it is finished (Ray: each round of one item per CPU), so that a run that is killed loses nothing
    but the items in the making. Every item is computed with one thread: no number of jobs changes its bits.

    The first error of an item ends the run once the items in the making are finished and stored. It names
    the item; a ``ValueError`` stays one, another becomes a ``RuntimeError`` with its traceback as a note.
    """
    everything = [(item, tuple(keys(item))) for item in items]
    stored = set(store.get(key for _, wanted in everything for key in wanted))
    tasks: list[tuple[Item, tuple[Key, ...]]] = []
    for item, wanted in everything:
        lacking = tuple(key for key in dict.fromkeys(wanted) if key not in stored)
        stored.update(lacking)  # of two items with one key, the first computes it
        if lacking:
            tasks.append((item, lacking))
    done = len(everything) - len(tasks)
    logger.info("%d of %d networks are in the store", done, len(everything))
    progress(COMPUTING, done, len(everything))
    evaluated = finished(
        tasks, lambda task: work(*task), name=lambda task: name(task[0]), jobs=jobs, backend=backend
    )
    with closing(evaluated) as results:
        for _, evaluations in results:
            store.put(evaluations)
            done += 1
            progress(COMPUTING, done, len(everything))
    return store.get(key for _, wanted in everything for key in wanted)


def _add(measured: Measured, proxy: Proxy, evaluations: Sequence[Evaluation]) -> None:
    """Add the columns of one proxy, or why it has none."""
    measured.values[proxy.name] = [evaluation.value for evaluation in evaluations]
    reason = _reason(evaluations)
    columns = {} if reason else proxy.scores(measured.values[proxy.name])
    measured.left_out.update((name, str(c)) for name, c in columns.items() if isinstance(c, LeftOut))
    numbers = {name: column for name, column in columns.items() if not isinstance(column, LeftOut)}
    odd = [name for name, column in numbers.items() if not all(map(math.isfinite, column))]
    if reason or odd:
        measured.left_out[proxy.name] = reason or f"{odd[0]} is not a finite number everywhere"
        return
    spent = math.fsum(evaluation.seconds for evaluation in evaluations) / len(evaluations)
    for name, column in numbers.items():
        if name in measured.columns:
            raise ValueError(f"proxy {proxy.name!r} gives a column {name!r}, which another proxy gives too")
        measured.columns[name] = np.array(column, np.float64)
        measured.seconds[name] = spent


def _reason(evaluations: Sequence[Evaluation]) -> str:
    """Return why a proxy has no scores; empty where it has."""
    without = [evaluation.note for evaluation in evaluations if not evaluation.value]
    if without:
        return f"{without[0]} ({len(without)} of {len(evaluations)} networks)"
    odd = sum(not all(map(math.isfinite, evaluation.value)) for evaluation in evaluations)
    return f"not a finite number for {odd} of {len(evaluations)} networks" if odd else ""
