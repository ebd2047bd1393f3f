"""Proxies of many candidates: computed together, stored as they come, made into columns of scores."""

from __future__ import annotations

import hashlib
import json
import math
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import torch
import transformers

from zerolm.architecture import Floats
from zerolm.networks.passes import Protocol
from zerolm.networks.passes.protocol import MODES, UPSTREAMS, Mode, Upstream
from zerolm.proxies.candidates import Candidate
from zerolm.proxies.compute import Outcome, compute
from zerolm.proxies.executor import Backend, run
from zerolm.proxies.memory import check_memory
from zerolm.proxies.registry import LeftOut, Proxy, find_proxy
from zerolm.proxies.store import Evaluation, Key, Store
from zerolm.text.batches import TokenSource

VERSION: Final = 2
"""Counts changes of passes and networks: what an earlier version stored is not used."""
LIBRARIES: Final = f"torch {torch.__version__}, transformers {transformers.__version__}"
"""What computes may round otherwise in another version, or build another network."""
DEVICES: Final = ("cpu", "cuda")
MOST: Final = 1 << 24
"""Tokens of a batch."""


@dataclass(frozen=True)
class Settings:
    """How proxies are computed: ``batch`` sequences of ``length`` tokens in ``parts`` micro-batches.

    ``upstream`` None is the task's loss, but in faithful mode the ones that released code sends into an
    encoder. ``seed`` draws weights, masks and whatever else is random.
    """

    mode: Mode = "sane"
    upstream: Upstream | None = None
    batch: int = 64
    length: int = 128
    parts: int = 8
    seed: int = 0
    device: str = "cpu"

    def __post_init__(self) -> None:
        if self.mode not in MODES:
            raise ValueError(f"mode {self.mode!r} is not known; there are {', '.join(MODES)}")
        if self.upstream is not None and self.upstream not in UPSTREAMS:
            raise ValueError(f"upstream {self.upstream!r} is not known; there are {', '.join(UPSTREAMS)}")
        if self.device not in DEVICES:
            raise ValueError(f"device {self.device!r} is not known; there are {', '.join(DEVICES)}")
        if self.batch < 1 or self.length < 1:
            raise ValueError(f"a batch of {self.batch} x {self.length} tokens is empty")
        if self.batch * self.length > MOST:
            raise ValueError(
                f"a batch of {self.batch} x {self.length} tokens is too large; {MOST} are the most"
            )
        if not 1 <= self.parts <= self.batch or self.batch % self.parts:
            fitting = [k for k in range(1, self.batch + 1) if self.batch % k == 0]
            nearest = min(fitting, key=lambda k: abs(k - self.parts))
            raise ValueError(
                f"{self.parts} equal micro-batches of {self.batch} are not possible; {nearest} are"
            )
        if not 0 <= self.seed < 2**63:
            raise ValueError(f"seed {self.seed} is not possible; 0 to 2^63 - 1 are")
        if self.device == "cuda" and not torch.cuda.is_available():
            raise ValueError("there is no CUDA device that PyTorch can use; take --device cpu")

    def protocol(self, task: str) -> Protocol:
        usual: Upstream = "ones" if self.mode == "faithful" and task == "masked" else "task"
        return Protocol(self.mode, self.upstream or usual, self.parts, self.seed)

    def key(self, source: TokenSource) -> str:
        """All of it and what the batches are cut from, as canonical text."""
        ids = b"" if source.ids is None else source.ids.numpy().tobytes()
        tokens = hashlib.sha256(
            ids + repr((source.size, source.mask, source.classes, source.seed)).encode()
        ).hexdigest()
        return json.dumps({**vars(self), "tokens": tokens}, sort_keys=True)


@dataclass(frozen=True, eq=False)
class Work:
    """Computes what is asked of a candidate; it can be sent to another process, and the proxies with it."""

    proxies: Sequence[Proxy]
    source: TokenSource
    settings: Settings
    workers: int

    def __call__(self, candidate: Candidate, keys: Sequence[Key]) -> list[Evaluation]:
        asked = {key.proxy for key in keys}
        proxies = [proxy for proxy in self.proxies if proxy.name in asked]
        check_memory(candidate, proxies, self.settings, self.workers)
        try:
            found = self._found(candidate, proxies)
        except (torch.OutOfMemoryError, MemoryError):
            raise ValueError(
                f"the passes do not fit into the memory of {self.settings.device}: take a smaller network, a "
                f"smaller --batch or --length, or more --micro-batches"
            ) from None
        return [
            Evaluation(key, one.value, one.seconds, one.left_out or "")
            for key, one in ((key, found[key.proxy]) for key in keys)
        ]

    def _found(self, candidate: Candidate, proxies: Sequence[Proxy]) -> dict[str, Outcome]:
        network = candidate.network(self.settings.seed)
        network.module.to(self.settings.device)
        settings = self.settings
        batch = self.source.batch(
            network.task, network.classes, settings.batch, settings.length, settings.seed
        )
        return compute(network, proxies, batch, settings.protocol(network.task))


@dataclass(frozen=True, eq=False)
class Measured:
    """What proxies found of n candidates on tokens of ``source``.

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
    settings: Settings = Settings(),
    *,
    store: Store,
    jobs: int = 1,
    backend: Backend = "loky",
    progress: Callable[[str], None] = lambda _: None,
) -> Measured:
    """The proxies ``names`` of all candidates; what the store holds already is not computed again.

    ``ValueError`` for an unknown proxy, a model without known roles, a loss that is not finite, or a network
    that is too large: what was computed before it is in the store.
    """
    proxies = [find_proxy(name) for name in dict.fromkeys(names)]
    text = settings.key(source)

    def keys(candidate: Candidate) -> list[Key]:
        return [
            Key(candidate.identity, proxy.name, text, f"{VERSION}.{proxy.revision}, {LIBRARIES}")
            for proxy in proxies
        ]

    workers = min(jobs if backend == "loky" else os.cpu_count() or 1, len(candidates))
    found = run(
        candidates,
        Work(proxies, source, settings, workers),
        store,
        keys,
        name=lambda candidate: candidate.name,
        jobs=jobs,
        backend=backend,
        progress=progress,
    )
    table = [[found[key] for key in keys(candidate)] for candidate in candidates]
    measured = Measured(source.name, candidates, {}, {}, {}, {})
    for proxy, evaluations in zip(proxies, zip(*table, strict=True), strict=True):
        _add(measured, proxy, evaluations)
    return measured


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
