"""A request for proxies by name, checked before anything is computed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from zerolm.lab.zero_cost import find_proxy, proxy_names
from zerolm.lab.zero_cost.selection import Selection
from zerolm.lab.zero_cost.settings import Settings
from zerolm.networks.workers import Backend, check_workers
from zerolm.text.batches import TokenSource, random_source, text_source
from zerolm.text.documents import read_text

MAX_VOCABULARY: Final = 8192


@dataclass(frozen=True)
class ProxyRequest:
    """The proxies that are asked for, ``names`` None meaning every one, and how they are computed.

    ``text`` is a file or ``random``; ``settings`` are those of ``Settings``.
    """

    names: Sequence[str] | None = None
    text: str = "random"
    settings: Mapping[str, Any] = field(default_factory=dict)
    networks: Selection = field(default_factory=Selection)
    jobs: int = 1
    backend: Backend = "loky"
    store: Path | None = None

    def checked(self) -> tuple[list[str], Settings]:
        """Return the proxies and settings; ``ValueError`` says what is wrong with them."""
        chosen = proxy_names() if self.names is None else list(dict.fromkeys(self.names))
        if not chosen:
            raise ValueError(f"no proxy is named; there are {', '.join(proxy_names())}")
        for name in chosen:
            find_proxy(name)
        check_workers(self.jobs, self.backend)
        return chosen, Settings(**self.settings).named

    def source(self, vocabulary: int = MAX_VOCABULARY) -> TokenSource:
        """Return the source of batches, with at most ``vocabulary`` and at most 8192 ids."""
        most = min(vocabulary, MAX_VOCABULARY)
        if self.text == "random":
            return random_source(most, int(self.settings.get("seed", 0)))
        if not Path(self.text).exists():
            raise ValueError(f"the text {self.text!r} does not exist; give a file, or random")
        return text_source(read_text(Path(self.text)), most)


USUAL_REQUEST: Final = ProxyRequest()
