"""Proxies of a space, a benchmark or a model, asked for by name and checked before they are computed."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Final

from zerolm.architecture import Floats
from zerolm.checkpoints.folder import read_object
from zerolm.comparison.bench import More, bench
from zerolm.families.family import Task
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
from zerolm.lab.zero_cost import find_proxy, proxy_names
from zerolm.lab.zero_cost.candidates import Candidate
from zerolm.lab.zero_cost.job import Measured, evaluate, kept_values
from zerolm.lab.zero_cost.libra import judge
from zerolm.lab.zero_cost.result import IMAGES, ProxyTable, RankedProxies
from zerolm.lab.zero_cost.selection import USUAL_COUNT
from zerolm.lab.zero_cost.selection import Selection as Selection
from zerolm.lab.zero_cost.settings import Settings, TokenSource, random_source, text_source
from zerolm.networks.opener import stock_tokenizer
from zerolm.networks.workers import Backend, check_workers
from zerolm.progress import Progress, silent
from zerolm.scores import make_score
from zerolm.settings.messages import called, nearest, plural
from zerolm.solvers.sampling import drawn
from zerolm.spaces import SPACES, make_space, space_names
from zerolm.text.defaults import TOKENIZER_FILES
from zerolm.text.documents import whole_text
from zerolm.text.encoding import chat_renderer

USUAL_VIEW: Final = "declared"
MAX_VOCABULARY: Final = 8192


@dataclass(frozen=True)
class ProxyRequest:
    """The proxies that are asked for, ``names`` None meaning every one, and how they are computed.

    ``text`` is a file, a folder or ``random``.
    """

    names: Sequence[str] | None = None
    text: str = "random"
    settings: Settings = field(default_factory=Settings)
    networks: Selection = field(default_factory=Selection)
    jobs: int = 1
    backend: Backend = "loky"
    store: Path | None = None

    @cached_property
    def chosen(self) -> list[str]:
        """Return the names of the proxies; ``ValueError`` where one is not known."""
        chosen = proxy_names() if self.names is None else list(dict.fromkeys(self.names))
        if not chosen:
            raise ValueError(f"no proxy is named; there are {', '.join(proxy_names())}")
        for name in chosen:
            find_proxy(name)
        check_workers(self.jobs, self.backend)
        return chosen

    def measured(self, candidates: Sequence[Candidate], source: TokenSource, progress: Progress) -> Measured:
        """Return the proxies of candidates on tokens of a source; values go to the store as they come."""
        how: Any = {"jobs": self.jobs, "backend": self.backend, "progress": progress}
        rows = kept_values(self.store)
        return evaluate(candidates, self.chosen, source, self.settings, rows=rows, **how)

    def source(self, vocabulary: int = MAX_VOCABULARY, task: Task = "next") -> TokenSource:
        """Return the source of batches, with at most ``vocabulary`` and at most 8192 ids, or of images."""
        most = min(vocabulary, MAX_VOCABULARY)
        if task == "image":
            return replace(random_source(most, self.settings.seed), name=IMAGES)
        if self.text == "random":
            return random_source(most, self.settings.seed)
        return text_source(whole_text(Path(self.text)), most, name=self.text)


def _table(title: str, settings: Settings, measured: Measured, params: Floats | None) -> ProxyTable:
    """Return the measurements, with the ``params`` (n,) of architectures; ``ValueError`` without a column."""
    if not measured.columns:
        reasons = [f"{name}: {reason}" for name, reason in measured.left_out.items()]
        raise ValueError(f"no proxy has a value; {'; '.join(reasons)}")
    values = {
        name: [[value if math.isfinite(value) else None for value in row] for row in rows]
        for name, rows in measured.values.items()
    }
    candidates, columns = measured.candidates, measured.columns
    return ProxyTable(
        title,
        measured.source,
        settings,
        [one.name for one in candidates],
        [None if one.architecture is None else one.architecture.choices for one in candidates],
        None if params is None else params.tolist(),
        {name: column.tolist() for name, column in columns.items()},
        values,
        measured.seconds,
        measured.left_out,
    )


def measure(target: str, request: ProxyRequest, *, progress: Progress = silent) -> RankedProxies:
    """Compute proxies of networks sampled from a space, of a benchmark's architectures, or of a model.

    ``target`` is the name of a space or benchmark, a benchmark file, or a folder with ``config.json``.
    Values go to the store as they come. ``ValueError`` says in one line what is wrong.
    """
    if not target.strip():
        raise ValueError("no space, benchmark or folder is named")
    _ = request.chosen
    if target in space_names():
        return _space(target, request, progress)
    if Path(target).is_dir():
        return _model(Path(target), request, progress)
    return _benchmark(target, request, progress)


def _space(name: str, request: ProxyRequest, progress: Progress) -> RankedProxies:
    request.networks.check_for("space")
    space = make_space(name, **({} if request.networks.view is None else {"view": request.networks.view}))
    most = request.networks.max_params
    budgets = {} if most is None else {"max_params": most}
    networks = drawn(space, request.networks.count or USUAL_COUNT, request.settings.seed, budgets=budgets)
    candidates = [Candidate.of(network, f"network {i}") for i, network in enumerate(networks)]
    if space.task == "image" and request.text != "random":
        raise ValueError(f"networks of {name!r} read images and no text: leave out {called('text')}")
    measured = request.measured(candidates, request.source(task=space.task), progress)
    title = f"{name}: {plural(len(networks), 'network')}, {request.settings.mode} mode"
    return RankedProxies(_table(title, request.settings, measured, make_score("params").of_many(networks)))


def _model(folder: Path, request: ProxyRequest, progress: Progress) -> RankedProxies:
    """A model reads its own tokens where it has a tokenizer."""
    request.networks.check_for("model")
    vocabulary = read_object(folder, "config.json").get("vocab_size")
    if request.text != "random" and any((folder / name).is_file() for name in TOKENIZER_FILES):
        tokenizer = stock_tokenizer(folder)
        text = whole_text(Path(request.text), chat_renderer(tokenizer))
        source = text_source(text, tokenizer=tokenizer, name=request.text)
    else:
        source = request.source(vocabulary if type(vocabulary) is int else MAX_VOCABULARY)
    measured = request.measured([Candidate.opened(folder)], source, progress)
    return RankedProxies(_table(f"{folder}: {request.settings.mode} mode", request.settings, measured, None))


def _benchmark(target: str, request: ProxyRequest, progress: Progress) -> RankedProxies:
    settings = request.settings
    view = _view(target, request)
    request.networks.check_for("benchmark")
    results: list[Measured] = []
    which, more = request.networks, measuring(request, results, progress)
    how: Any = {"data": which.data, "metric": which.metric, "limit": which.limit, "progress": progress}
    comparison = bench([target], more=more, view=view, **how)
    (section,), (measured,) = comparison.sections, results
    title = f"{section.title}: {section.metric}, {len(section.result)} architectures, {settings.mode} mode"
    libra = judge(measured.columns, section.result, section.scores["body_params"], settings.seed)
    return RankedProxies(_table(title, settings, measured, section.scores["params"]), section, libra)


def measuring(request: ProxyRequest, results: list[Measured], progress: Progress = silent) -> More:
    """For ``bench``: the proxies of a benchmark's architectures; what is measured is added to ``results``."""
    _ = request.chosen  # before anything is read
    sources: dict[tuple[int, Task], TokenSource] = {}

    def more(truth: GroundTruth, view: View) -> Mapping[str, Floats]:
        vocabulary = int(view.settings.get("vocab", MAX_VOCABULARY))
        task = SPACES[truth.space].task
        if (vocabulary, task) not in sources:
            sources[vocabulary, task] = request.source(vocabulary, task)
        candidates = [
            Candidate.of(architecture, f"{truth.name} {entry.id}")
            for architecture, entry in zip(view.architectures, truth.architectures, strict=True)
        ]
        results.append(request.measured(candidates, sources[vocabulary, task], progress))
        return results[-1].columns

    return more


def _view(target: str, request: ProxyRequest) -> str | None:
    """Return the view that is asked for, or the usual one where there are several.

    ``ValueError`` says what else a target or a view may be.
    """
    data, view = request.networks.data, request.networks.view
    names = known_names(*data_folders(data), SHIPPED)
    if Path(target).name == target and not Path(target).suffix and target not in names:
        raise ValueError(
            f"{target!r} is no space and no benchmark{nearest(target, [*space_names(), *names])}; or name a "
            "file of labels, or a folder with a config.json"
        )
    possible = [each.name for each in views(read(locate(target, data)))]
    if view is None:
        return USUAL_VIEW if USUAL_VIEW in possible else possible[0]
    if view not in possible:
        others = ", ".join(str(name) for name in possible if name is not None) or "none"
        raise ValueError(f"{called('view')} {view!r} is not one of {target}'s; there are {others}")
    return view
