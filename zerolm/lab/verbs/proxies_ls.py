"""``zerolm lab proxies ls``: the proxies, and where they come from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from zerolm.progress import Progress, silent
from zerolm.settings.request import Request
from zerolm.show.sheet import Cell, Row, Sheet
from zerolm.verbs.report import Listing
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
        entries = []
        for one in map(find_proxy, proxy_names()):
            needs = list(map(str, one.needs))
            entries.append({"name": one.name, "needs": needs, "sign": one.sign, "source": one.source})
        return ProxyListing(entries)


@dataclass(frozen=True, repr=False, eq=False)
class ProxyListing(Listing):
    """The proxies at hand: the passes that each needs, and its sign, -1 where lower is better."""

    things: ClassVar[str] = "proxies"

    def sheets(self) -> list[Sheet]:
        head: Row = ["proxy", "needs", "better", Cell("source", "shape")]
        rows: list[Row] = []
        for one in self.entries:
            better = "higher" if one["sign"] > 0 else "lower"
            rows.append([one["name"], ", ".join(one["needs"]) or "-", better, one["source"]])
        return [Sheet("Proxies", head, rows)]
