"""Proxies of many candidates: computed here or in workers, kept, and made into columns of scores."""

from __future__ import annotations

import hashlib
import math
import os
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
import transformers

from zerolm.architecture import Floats
from zerolm.io.files import cache_folder
from zerolm.io.kept_rows import KeptRows
from zerolm.lab.zero_cost import find_proxy
from zerolm.lab.zero_cost.candidates import Candidate
from zerolm.lab.zero_cost.passes import Passes, Protocol, steps_of
from zerolm.lab.zero_cost.passes.record import Clock
from zerolm.lab.zero_cost.registry import LeftOut, Proxy, Value
from zerolm.lab.zero_cost.settings import Settings, TokenSource
from zerolm.networks.batch import Batch
from zerolm.networks.compute import computed
from zerolm.networks.network import Network
from zerolm.networks.workers import Backend, finished
from zerolm.progress import Progress, silent
from zerolm.registry import plugged
from zerolm.settings import shown

PASSES_VERSION: Final = 1
"""Counts changes of passes and networks: what an earlier version stored is not used."""
LIBRARIES: Final = f"torch {torch.__version__}, transformers {transformers.__version__}"
"""Another version may round otherwise, or build another network."""
COMPUTING: Final = "computing proxies of networks"


@dataclass(frozen=True)
class Outcome:
    """The numbers of a proxy, or why it is left out. ``seconds`` as if it ran alone."""

    value: tuple[float, ...]
    seconds: float
    left_out: str | None = None


def compute(
    network: Network, proxies: Sequence[Proxy], batch: Batch, protocol: Protocol
) -> dict[str, Outcome]:
    """Return the outcome of every proxy by name; each pass runs once.

    The seconds of a proxy are those of its own reduction and of what it needs of the passes, shared or not:
    of a forward pass only, where that is all. They are this process's, on a GPU those that pass.
    ``ValueError`` where the loss is not finite.
    """
    passes = Passes(network, batch, protocol, {need for proxy in proxies for need in proxy.needs})
    passes.run()
    outcomes: dict[str, Outcome] = {}
    for proxy in proxies:
        clock, reason = Clock(network.device), None
        with clock.on(proxy.name):
            try:
                with plugged(f"proxy {proxy.name!r}", proxy.compute, LeftOut):
                    value = numbers(proxy.compute(passes))
            except LeftOut as error:
                value, reason = (), str(error)
        needed = sum(passes.seconds.get(name, 0.0) for name in costs(proxy))
        outcomes[proxy.name] = Outcome(value, needed + clock.seconds[proxy.name], reason)
    return outcomes


def numbers(value: Value) -> tuple[float, ...]:
    """Return the value of a proxy, a number or a row of them, as a row; ``ValueError`` for anything else."""
    row = np.atleast_1d(np.asarray(value))
    if row.dtype.kind not in "biuf":
        raise ValueError(f"a proxy gives a number or a row of numbers, not {shown(value)}")
    if row.ndim > 1:
        raise ValueError(f"a proxy gives a number or a row of numbers, not an array of shape {row.shape}")
    return tuple(row.astype(np.float64).tolist())


def costs(proxy: Proxy) -> set[str]:
    """Return the steps that take seconds for this proxy alone, each counted once."""
    return {name for need in proxy.needs for name in steps_of(need)}


@dataclass(frozen=True, eq=False)
class ProxyWork:
    """Computes proxies of a candidate; it can be pickled for another process, as can the proxies."""

    source: TokenSource
    settings: Settings
    workers: int

    def __call__(self, task: tuple[Candidate, Sequence[Proxy]]) -> dict[str, Outcome]:
        candidate, proxies = task
        settings = self.settings
        passes = {name for proxy in proxies for name in proxy.passes}
        candidate.check_memory(passes, settings, self.workers)
        try:
            network = candidate.network(settings.seed)
            computed(network.module.to(settings.compute.device), settings.compute)
            sizes = (settings.batch, settings.length, settings.seed)
            batch = self.source.batch(network.task, network.classes, *sizes)
            return compute(network, proxies, batch, settings.protocol(network.task))
        except (torch.OutOfMemoryError, MemoryError):
            raise ValueError(
                f"the passes do not fit into the memory of {settings.device}: take a smaller network, a "
                f"smaller batch or length, or more micro-batches"
            ) from None


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


def kept_values(file: Path | None) -> KeptRows:
    """Return the values in a file, or in the user's cache; ``ValueError`` where it holds something else."""
    file = file or cache_folder("proxies") / "values.jsonl"
    file.parent.mkdir(parents=True, exist_ok=True)
    rows = KeptRows(file)
    if file.exists() and not rows.results and (not file.is_file() or file.stat().st_size):
        raise ValueError(f"{str(file)!r} is no file of proxy values: name another with --store, or remove it")
    return rows


def evaluate(
    candidates: Sequence[Candidate],
    names: Sequence[str],
    source: TokenSource,
    settings: Settings,
    *,
    rows: KeptRows,
    jobs: int = 1,
    backend: Backend = "loky",
    progress: Progress = silent,
) -> Measured:
    """Return the proxies ``names`` of all candidates; what ``rows`` have already is not computed again.

    ``ValueError`` for an unknown proxy, a model without known roles, a loss that is not finite, or a network
    that is too large: what was computed before it is kept.
    """
    proxies = [find_proxy(name) for name in dict.fromkeys(names)]
    text = settings.key(source)

    def key(candidate: Candidate, proxy: Proxy) -> str:
        parts = (candidate.identity, proxy.name, text, PASSES_VERSION, proxy.revision, LIBRARIES)
        return hashlib.sha256(repr(parts).encode()).hexdigest()

    lacking: dict[str, tuple[Candidate, list[Proxy]]] = {}
    for one in candidates:
        missing = [proxy for proxy in proxies if key(one, proxy) not in rows.results]
        if missing:
            lacking.setdefault(one.identity, (one, missing))
    tasks = list(lacking.values())
    done = len(candidates) - len(tasks)
    progress(COMPUTING, done, len(candidates))
    workers = min(jobs if backend == "loky" else os.cpu_count() or 1, len(candidates))
    outcomes = finished(
        tasks,
        ProxyWork(source, settings, workers),
        name=lambda task: task[0].name,
        jobs=jobs,
        backend=backend,
    )
    with closing(outcomes) as results:
        for place, each in results:
            rows.add({key(tasks[place][0], find_proxy(name)): _row(one) for name, one in each.items()})
            done += 1
            progress(COMPUTING, done, len(candidates))
    measured = Measured(source.name, candidates, {}, {}, {}, {})
    for proxy in proxies:
        _add(measured, proxy, [_outcome(rows.results[key(one, proxy)]) for one in candidates])
    return measured


def _row(outcome: Outcome) -> list[Any]:
    """Return an outcome as JSON; numbers by their hexadecimal digits, for JSON has no NaN."""
    return [[value.hex() for value in outcome.value], outcome.seconds, outcome.left_out]


def _outcome(row: list[Any]) -> Outcome:
    values, seconds, left_out = row
    return Outcome(tuple(map(float.fromhex, values)), seconds, left_out)


def _add(measured: Measured, proxy: Proxy, outcomes: Sequence[Outcome]) -> None:
    """Add the columns of one proxy, or why it has none."""
    measured.values[proxy.name] = [outcome.value for outcome in outcomes]
    reason = _reason(outcomes)
    columns = {} if reason else proxy.scores(measured.values[proxy.name])
    measured.left_out.update((name, str(c)) for name, c in columns.items() if isinstance(c, LeftOut))
    numbers = {name: column for name, column in columns.items() if not isinstance(column, LeftOut)}
    odd = [name for name, column in numbers.items() if not all(map(math.isfinite, column))]
    if reason or odd:
        measured.left_out[proxy.name] = reason or f"{odd[0]} is not a finite number everywhere"
        return
    spent = math.fsum(outcome.seconds for outcome in outcomes) / len(outcomes)
    for name, column in numbers.items():
        if name in measured.columns:
            raise ValueError(f"proxy {proxy.name!r} gives a column {name!r}, which another proxy gives too")
        measured.columns[name] = np.array(column, np.float64)
        measured.seconds[name] = spent


def _reason(outcomes: Sequence[Outcome]) -> str:
    """Return why a proxy has no scores; empty where it has."""
    without = [outcome.left_out for outcome in outcomes if not outcome.value]
    if without:
        return f"{without[0] or ''} ({len(without)} of {len(outcomes)} networks)"
    odd = sum(not all(map(math.isfinite, outcome.value)) for outcome in outcomes)
    return f"not a finite number for {odd} of {len(outcomes)} networks" if odd else ""
