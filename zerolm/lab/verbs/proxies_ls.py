"""``zerolm lab proxies ls``: the proxies, and where they come from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from zerolm.io.plain import as_plain
from zerolm.progress import Progress, silent
from zerolm.settings.request import Request
from zerolm.show.sheet import Cell, Row, Sheet
from zerolm.verbs.report import Shown
from zerolm.verbs.shared import needing_torch


@dataclass(frozen=True, kw_only=True)
class ProxyListSettings(Request):
    """Return the proxies, those of plug-ins too: what they need, and where they come from."""

    name: ClassVar[str] = "lab proxies ls"
    examples = (
        ("zerolm lab proxies ls", "one line a proxy"),
        ("zerolm lab proxies ls --json", "the same for machines"),
    )
    writes_no_result = True
    takes_progress = False

    def run(self, progress: Progress = silent) -> ProxyListing:
        with needing_torch():
            from zerolm.lab.zero_cost import find_proxy, proxy_names
        proxies = [find_proxy(name) for name in proxy_names()]
        return ProxyListing(
            [ListedProxy(one.name, list(map(str, one.needs)), one.sign, one.source) for one in proxies]
        )


@dataclass(frozen=True)
class ListedProxy:
    """A proxy: the passes that it needs, and 1 where higher is better, else -1."""

    name: str
    needs: list[str]
    sign: int
    source: str


@dataclass(frozen=True, repr=False, eq=False)
class ProxyListing(Shown):
    """The proxies at hand."""

    proxies: list[ListedProxy]

    def to_json(self) -> dict[str, Any]:
        return {"proxies": as_plain(self.proxies)}

    def rows(self) -> list[dict[str, Any]]:
        return [as_plain(one) | {"needs": ", ".join(one.needs)} for one in self.proxies]

    def lines(self) -> list[str]:
        return [f"{len(self.proxies)} proxies: {', '.join(one.name for one in self.proxies)}"]

    def sheets(self) -> list[Sheet]:
        head: Row = ["proxy", "needs", "better", Cell("source", "shape")]
        rows: list[Row] = [
            [one.name, ", ".join(one.needs) or "-", "higher" if one.sign > 0 else "lower", one.source]
            for one in self.proxies
        ]
        return [Sheet("Proxies", head, rows)]
