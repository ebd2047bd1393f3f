"""What is asked of proxies by name, checked before anything is computed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Final, Literal, cast, get_args

from zerolm.proxies.executor import Backend
from zerolm.proxies.job import Settings
from zerolm.proxies.registry import load_plugins, proxy_names
from zerolm.text.batches import TokenSource, random_source, text_source
from zerolm.text.tokens import read_text

Target = Literal["space", "benchmark", "model"]
BELONGS: Final[Mapping[str, tuple[Target, ...]]] = {
    "count": ("space",),
    "max_params": ("space",),
    "view": ("space", "benchmark"),
    "limit": ("benchmark",),
    "metric": ("benchmark",),
    "data": ("benchmark",),
}
"""What says nothing about other targets."""
VOCABULARY: Final = 8192


@dataclass(frozen=True)
class Request:
    """What is asked for; ``settings`` are those of ``Settings``, ``names`` None means every proxy.

    ``text`` is a file or ``random``. ``count`` networks are drawn from a space, 20 unless said, of at most
    ``max_params`` parameters; ``limit``,
    ``metric`` and ``data`` say what of a benchmark counts, and ``view`` how FlexiBERT is read.
    """

    names: Sequence[str] | None = None
    text: str = "random"
    settings: Mapping[str, Any] = field(default_factory=dict)
    count: int | None = None
    max_params: int | None = None
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
        known = proxy_names()
        chosen = known if self.names is None else list(dict.fromkeys(self.names))
        if not chosen:
            raise ValueError(f"no proxy is named; there are {', '.join(known)}")
        for name in chosen:
            if name not in known:
                near = get_close_matches(name, known, 1, 0.0)[0]
                raise ValueError(f"proxy {name!r} is not known; is it {near}? There are {', '.join(known)}")
        if self.backend not in get_args(Backend):
            possible = ", ".join(get_args(Backend))
            raise ValueError(f"backend {self.backend!r} is not known; there are {possible}")
        if self.jobs < 1:
            raise ValueError(f"jobs {self.jobs}: at least 1 is needed")
        if self.backend == "ray" and self.jobs > 1:
            raise ValueError(f"jobs {self.jobs} are for loky; ray works on every CPU of its cluster")
        if self.count is not None and self.count < 1:
            raise ValueError(f"count {self.count}: at least 1 is needed")
        return chosen, Settings(**self.settings)

    def check_for(self, kind: Target) -> None:
        """``ValueError`` for what would say nothing about such a target."""
        for name, kinds in BELONGS.items():
            if getattr(self, name) is not None and kind not in kinds:
                raise ValueError(f"{name} is of a {' or a '.join(kinds)}; this is a {kind}: leave it out")

    def source(self, vocabulary: int = VOCABULARY) -> TokenSource:
        """What batches are cut from: at most so many ids, and at most 8192."""
        most = min(vocabulary, VOCABULARY)
        if self.text == "random":
            return random_source(most, int(self.settings.get("seed", 0)))
        if not Path(self.text).exists():
            raise ValueError(f"the text {self.text!r} does not exist; give a file, or random")
        return text_source(read_text(Path(self.text)), most)

    @property
    def workers(self) -> Backend:
        return cast(Backend, self.backend)


USUAL: Final = Request()
