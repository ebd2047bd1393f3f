"""Proxies of a space, a benchmark or a model, as they are asked for by name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from transformers import AutoTokenizer

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
from zerolm.networks.opener import one_line
from zerolm.progress import Progress, silent
from zerolm.proxies.candidates import Candidate
from zerolm.proxies.job import evaluate
from zerolm.proxies.request import MAX_VOCABULARY, USUAL_REQUEST, Request, Selection
from zerolm.proxies.result import Measured, Run
from zerolm.proxies.settings import Settings
from zerolm.proxies.store import Store
from zerolm.proxies.verdict import judge
from zerolm.scores import make_score
from zerolm.solvers.drawing import drawn
from zerolm.spaces import make_space, space_names
from zerolm.text.batches import TokenSource, stock_source
from zerolm.text.defaults import TOKENIZER_FILES
from zerolm.text.documents import read_text

__all__ = ["Request", "Run", "Selection", "measure", "measuring"]

USUAL_VIEW: Final = "declared"
USUAL_COUNT: Final = 20


@dataclass(frozen=True, eq=False)
class _Job:
    """A request that has been checked, and where it says how far it is."""

    request: Request
    names: Sequence[str]
    settings: Settings
    progress: Progress

    @classmethod
    def of(cls, request: Request, progress: Progress) -> _Job:
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


def measure(target: str, request: Request = USUAL_REQUEST, *, progress: Progress = silent) -> Run:
    """Compute proxies of networks drawn from a space, of a benchmark's architectures, or of a model.

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


def _space(name: str, job: _Job) -> Run:
    request = job.request
    request.networks.check_for("space")
    space = make_space(name, **({} if request.networks.view is None else {"view": request.networks.view}))
    most = request.networks.max_params
    budgets = {} if most is None else {"max_params": most}
    networks = drawn(space, request.networks.count or USUAL_COUNT, job.settings.seed, budgets=budgets)
    candidates = [Candidate.of(network, f"network {i}") for i, network in enumerate(networks)]
    measured = job.measure(candidates, request.source())
    title = f"{name}: {len(networks)} networks, {job.settings.mode} mode"
    return Run(title, asdict(job.settings), measured, make_score("params").of_many(networks))


def _model(folder: Path, job: _Job) -> Run:
    """A model reads its own tokens where it has a tokenizer."""
    request = job.request
    request.networks.check_for("model")
    vocabulary = read_object(folder, "config.json").get("vocab_size")
    if request.text != "random" and any((folder / name).is_file() for name in TOKENIZER_FILES):
        text = read_text(Path(request.text))
        with one_line(f"the tokenizer of {str(folder)!r}"):
            tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
        source = stock_source(tokenizer, text)
    else:
        source = request.source(vocabulary if type(vocabulary) is int else MAX_VOCABULARY)
    measured = job.measure([Candidate.opened(folder)], source)
    return Run(f"{folder}: {job.settings.mode} mode", asdict(job.settings), measured, None)


def _benchmark(target: str, job: _Job) -> Run:
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
    verdict = judge(measured.columns, section.result, section.scores["body_params"], settings.seed)
    return Run(title, asdict(settings), measured, section.scores["params"], section, verdict)


def measuring(request: Request, results: list[Measured], progress: Progress = silent) -> More:
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


def _view(target: str, request: Request) -> str | None:
    """The view that is asked for, or the usual one where there are several."""
    possible = [view.name for view in views(read(_located(target, request.networks.data)))]
    if request.networks.view is None:
        return USUAL_VIEW if USUAL_VIEW in possible else possible[0]
    if request.networks.view not in possible:
        names = ", ".join(str(name) for name in possible if name is not None) or "none"
        raise ValueError(f"view {request.networks.view!r} is not one of {target}'s; there are {names}")
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
