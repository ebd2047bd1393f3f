"""Proxies of a space, a benchmark or a model, as they are asked for by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, cast, get_args

import numpy as np

from zerolm.architecture import Floats
from zerolm.carving.tokens import read_text
from zerolm.groundtruth.bench import More, Section, bench
from zerolm.groundtruth.reader import GroundTruth, View, locate, read, views
from zerolm.proxies.batches import TokenSource, random_source, stock_source, text_source
from zerolm.proxies.candidates import Candidate, drawn
from zerolm.proxies.evaluate import Measured, Settings, evaluate
from zerolm.proxies.registry import find_proxy, load_plugins, proxy_names
from zerolm.proxies.running import Backend
from zerolm.proxies.store import Store
from zerolm.proxies.verdict import Verdict, judge
from zerolm.scores import make_score
from zerolm.spaces import make_space, space_names

USUAL_VIEW: Final = "declared"


@dataclass(frozen=True)
class Request:
    """What is asked for; ``settings`` are those of ``Settings``, ``names`` None means every proxy.

    ``text`` is a file or ``random``. ``count`` networks are drawn from a space; ``limit``, ``view``,
    ``metric`` and ``data`` say what of a benchmark counts.
    """

    names: Sequence[str] | None = None
    text: str = "random"
    settings: Mapping[str, Any] = field(default_factory=dict)
    count: int = 20
    limit: int | None = None
    view: str | None = None
    metric: str | None = None
    data: str | None = None
    jobs: int = 1
    backend: str = "loky"
    store: Path | None = None

    def checked(self) -> tuple[list[str], Settings]:
        """The proxies and settings; ``ValueError`` says what is wrong with them."""
        load_plugins()
        chosen = proxy_names() if self.names is None else list(self.names)
        if not chosen:
            raise ValueError(f"no proxy is named; there are {', '.join(proxy_names())}")
        for name in chosen:
            find_proxy(name)
        if self.backend not in get_args(Backend):
            raise ValueError(
                f"backend {self.backend!r} is not known; there are {', '.join(get_args(Backend))}"
            )
        if self.jobs < 1:
            raise ValueError(f"jobs {self.jobs}: at least 1 is needed")
        return chosen, Settings(**self.settings)

    def source(self) -> TokenSource:
        """What batches are cut from."""
        return random_source() if self.text == "random" else text_source(read_text(Path(self.text)))


@dataclass(frozen=True, eq=False)
class Run:
    """What was found. ``section`` is how it ranks a benchmark, ``params`` (n,) are parameters."""

    title: str
    measured: Measured
    params: Floats
    section: Section | None = None
    verdict: Verdict | None = None

    def to_json(self) -> dict[str, Any]:
        """Plain JSON, as ``zerolm proxies --json`` prints it."""
        measured = self.measured
        found: dict[str, Any] = {
            "title": self.title,
            "networks": [candidate.name for candidate in measured.candidates],
            "proxies": {name: column.tolist() for name, column in measured.columns.items()},
            "seconds": measured.seconds,
            "left_out": measured.left_out,
        }
        if self.section is not None:
            found["rows"] = [row.to_json() for row in self.section.rows]
            found["libra"] = None if self.verdict is None else self.verdict.to_json()
        return found


def run_proxies(
    target: str, request: Request = Request(), *, progress: Callable[[str], None] = lambda _: None
) -> Run:
    """Compute proxies of networks drawn from a space, of a benchmark's architectures, or of a model.

    ``target`` is the name of a space or benchmark, a benchmark file, or a folder with ``config.json``.
    Values go to the store as they come. ``ValueError`` says in one line what is wrong.
    """
    names, settings = request.checked()
    if target in space_names():
        space = make_space(target, **({} if request.view is None else {"view": request.view}))
        networks = drawn(space, request.count, settings.seed)
        candidates = [Candidate.of(network, f"network {i}") for i, network in enumerate(networks)]
        title = f"{target}: {len(networks)} networks"
    elif Path(target).is_dir():
        return _model(Path(target), request, names, settings, progress)
    else:
        return _benchmark(target, request, names, settings, progress)
    measured = _measure(candidates, request.source(), request, names, settings, progress)
    return Run(title, measured, make_score("params").of_many(networks))


def _measure(
    candidates: Sequence[Candidate],
    source: TokenSource,
    request: Request,
    names: Sequence[str],
    settings: Settings,
    progress: Callable[[str], None],
) -> Measured:
    path = request.store or Store.default_path()
    with closing(Store(path)) as store:
        return evaluate(
            candidates,
            names,
            source,
            settings,
            store=store,
            jobs=request.jobs,
            backend=cast(Backend, request.backend),
            progress=progress,
        )


def _model(
    folder: Path,
    request: Request,
    names: Sequence[str],
    settings: Settings,
    progress: Callable[[str], None],
) -> Run:
    """A model reads its own tokens where it has a tokenizer."""
    source = request.source()
    if request.text != "random" and (folder / "tokenizer.json").is_file():
        from zerolm.checkpoints import open_checkpoint
        from zerolm.networks.mapped import stock_tokenizer

        source = stock_source(stock_tokenizer(open_checkpoint(folder)), read_text(Path(request.text)))
    candidate = Candidate.opened(folder)
    measured = _measure([candidate], source, request, names, settings, progress)
    return Run(str(folder), measured, np.zeros(1))


def measuring(
    request: Request, found: list[Measured], progress: Callable[[str], None] = lambda _: None
) -> More:
    """Scores for ``bench``: the proxies of a benchmark's architectures; what is measured is added to ``found``."""
    names, settings = request.checked()
    source = request.source()

    def more(truth: GroundTruth, view: View) -> Mapping[str, Floats]:
        candidates = [
            Candidate.of(architecture, f"{truth.name} {entry.id}")
            for architecture, entry in zip(view.architectures, truth.architectures, strict=True)
        ]
        found.append(_measure(candidates, source, request, names, settings, progress))
        return found[-1].columns

    return more


def _benchmark(
    target: str,
    request: Request,
    names: Sequence[str],
    settings: Settings,
    progress: Callable[[str], None],
) -> Run:
    found: list[Measured] = []
    view = _view(target, request)
    comparison = bench(
        [target],
        data=request.data,
        metric=request.metric,
        more=measuring(request, found, progress),
        limit=request.limit,
        view=view,
        progress=progress,
    )
    (section,), (measured,) = comparison.sections, found
    title = f"{section.title}: {section.metric}, {len(section.result)} architectures, {settings.mode} mode"
    params = section.scores["body_params"]
    return Run(
        title, measured, params, section, judge(measured.columns, section.result, params, settings.seed)
    )


def _view(target: str, request: Request) -> str | None:
    """The view that is asked for, or the usual one where there are several."""
    possible = [view.name for view in views(read(locate(target, request.data)))]
    if request.view is None:
        return USUAL_VIEW if USUAL_VIEW in possible else possible[0]
    if request.view not in possible:
        known = ", ".join(str(name) for name in possible if name is not None) or "none"
        raise ValueError(f"view {request.view!r} is not one of {target}'s; there are {known}")
    return request.view
