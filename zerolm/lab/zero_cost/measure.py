"""Proxies of a space, a benchmark or a model, as they are asked for by name."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from zerolm.architecture import Floats
from zerolm.checkpoints.folder import read_object
from zerolm.comparison.bench import More, bench
from zerolm.groundtruth.reader import (
    SHIPPED,
    GroundTruth,
    View,
    data_folders,
    known_names,
    locate,
    read,
    views,
)
from zerolm.io.brief import one_line
from zerolm.lab.zero_cost.candidates import Candidate
from zerolm.lab.zero_cost.job import evaluate
from zerolm.lab.zero_cost.request import MAX_VOCABULARY, USUAL_REQUEST, ProxyRequest, Selection
from zerolm.lab.zero_cost.result import Measured, ProxyTable, RankedProxies
from zerolm.lab.zero_cost.settings import Settings
from zerolm.lab.zero_cost.store import Store
from zerolm.lab.zero_cost.verdict import judge
from zerolm.progress import Progress, silent
from zerolm.scores import make_score
from zerolm.settings.messages import called
from zerolm.solvers.drawing import drawn
from zerolm.spaces import make_space, space_names
from zerolm.text.batches import TokenSource, stock_source
from zerolm.text.defaults import TOKENIZER_FILES
from zerolm.text.documents import read_text
from zerolm.text.encoding import chat_renderer

__all__ = ["ProxyRequest", "Selection", "measure", "measuring"]

USUAL_VIEW: Final = "declared"
USUAL_COUNT: Final = 20


def _table(title: str, settings: Settings, measured: Measured, params: Floats | None) -> ProxyTable:
    """Return the measurements, with the ``params`` (n,) of architectures."""
    return ProxyTable(
        title,
        measured.source,
        settings,
        [candidate.name for candidate in measured.candidates],
        [candidate.choices for candidate in measured.candidates],
        None if params is None else params.tolist(),
        {name: column.tolist() for name, column in measured.columns.items()},
        {name: [_plain(row) for row in rows] for name, rows in measured.values.items()},
        measured.seconds,
        measured.left_out,
    )


def _plain(row: Sequence[float]) -> list[float | None]:
    return [value if math.isfinite(value) else None for value in row]


@dataclass(frozen=True, eq=False)
class _Job:
    """A request that has been checked, and where it says how far it is."""

    request: ProxyRequest
    names: Sequence[str]
    settings: Settings
    progress: Progress

    @classmethod
    def of(cls, request: ProxyRequest, progress: Progress) -> _Job:
        return cls(request, *request.checked(), progress)

    def measure(self, candidates: Sequence[Candidate], source: TokenSource) -> Measured:
        request = self.request
        with closing(Store(request.store or Store.default_path())) as store:
            return evaluate(
                candidates,
                self.names,
                source,
                self.settings,
                store=store,
                jobs=request.jobs,
                backend=request.workers,
                progress=self.progress,
            )


def measure(
    target: str, request: ProxyRequest = USUAL_REQUEST, *, progress: Progress = silent
) -> RankedProxies:
    """Compute proxies of networks sampled from a space, of a benchmark's architectures, or of a model.

    ``target`` is the name of a space or benchmark, a benchmark file, or a folder with ``config.json``.
    Values go to the store as they come. ``ValueError`` says in one line what is wrong.
    """
    if not target.strip():
        raise ValueError("no space, benchmark or folder is named")
    job = _Job.of(request, progress)
    if target in space_names():
        return _space(target, job)
    if Path(target).is_dir():
        return _model(Path(target), job)
    return _benchmark(target, job)


def _space(name: str, job: _Job) -> RankedProxies:
    request = job.request
    request.networks.check_for("space")
    space = make_space(name, **({} if request.networks.view is None else {"view": request.networks.view}))
    most = request.networks.max_params
    budgets = {} if most is None else {"max_params": most}
    networks = drawn(space, request.networks.count or USUAL_COUNT, job.settings.seed, budgets=budgets)
    candidates = [Candidate.of(network, f"network {i}") for i, network in enumerate(networks)]
    measured = job.measure(candidates, request.source())
    title = f"{name}: {len(networks)} networks, {job.settings.mode} mode"
    return RankedProxies(_table(title, job.settings, measured, make_score("params").of_many(networks)))


def _model(folder: Path, job: _Job) -> RankedProxies:
    """A model reads its own tokens where it has a tokenizer."""
    from transformers import AutoTokenizer  # at the top it would say much on stderr where torch is missing

    request = job.request
    request.networks.check_for("model")
    vocabulary = read_object(folder, "config.json").get("vocab_size")
    if request.text != "random" and any((folder / name).is_file() for name in TOKENIZER_FILES):
        with one_line(f"the tokenizer of {str(folder)!r}"):
            tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
        text = read_text(Path(request.text), chat_renderer(tokenizer))
        source = stock_source(tokenizer, text)
    else:
        source = request.source(vocabulary if type(vocabulary) is int else MAX_VOCABULARY)
    measured = job.measure([Candidate.opened(folder)], source)
    return RankedProxies(_table(f"{folder}: {job.settings.mode} mode", job.settings, measured, None))


def _benchmark(target: str, job: _Job) -> RankedProxies:
    request, settings = job.request, job.settings
    view = _view(target, request)
    request.networks.check_for("benchmark")
    results: list[Measured] = []
    comparison = bench(
        [target],
        data=request.networks.data,
        metric=request.networks.metric,
        more=_more(job, results),
        limit=request.networks.limit,
        view=view,
        progress=job.progress,
    )
    (section,), (measured,) = comparison.sections, results
    title = f"{section.title}: {section.metric}, {len(section.result)} architectures, {settings.mode} mode"
    libra = judge(measured.columns, section.result, section.scores["body_params"], settings.seed)
    return RankedProxies(_table(title, settings, measured, section.scores["params"]), section, libra)


def measuring(request: ProxyRequest, results: list[Measured], progress: Progress = silent) -> More:
    """For ``bench``: the proxies of a benchmark's architectures; what is measured is added to ``results``."""
    return _more(_Job.of(request, progress), results)


def _more(job: _Job, results: list[Measured]) -> More:
    sources: dict[int, TokenSource] = {}

    def more(truth: GroundTruth, view: View) -> Mapping[str, Floats]:
        vocabulary = int(view.settings.get("vocab", MAX_VOCABULARY))
        if vocabulary not in sources:
            sources[vocabulary] = job.request.source(vocabulary)
        candidates = [
            Candidate.of(architecture, f"{truth.name} {entry.id}")
            for architecture, entry in zip(view.architectures, truth.architectures, strict=True)
        ]
        results.append(job.measure(candidates, sources[vocabulary]))
        return results[-1].columns

    return more


def _view(target: str, request: ProxyRequest) -> str | None:
    """The view that is asked for, or the usual one where there are several."""
    possible = [view.name for view in views(read(_located(target, request.networks.data)))]
    if request.networks.view is None:
        return USUAL_VIEW if USUAL_VIEW in possible else possible[0]
    if request.networks.view not in possible:
        names = ", ".join(str(name) for name in possible if name is not None) or "none"
        raise ValueError(
            f"{called('view')} {request.networks.view!r} is not one of {target}'s; there are {names}"
        )
    return request.networks.view


def _located(target: str, data: str | None) -> Path:
    """The file of a benchmark; ``ValueError`` says what else a target may be."""
    names = known_names(*data_folders(data), SHIPPED)
    if Path(target).name == target and not Path(target).suffix and target not in names:
        raise ValueError(
            f"{target!r} is nothing that is known: spaces are {', '.join(space_names())}; benchmarks are "
            f"{', '.join(names) or 'none'}; else name a file of labels, or a folder with a config.json"
        )
    return locate(target, data)
