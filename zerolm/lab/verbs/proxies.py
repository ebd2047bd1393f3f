"""``zerolm lab proxies``: training-free proxies of networks that run, and their list, ``proxies ls``."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from zerolm.lab.zero_cost.selection import Selection
from zerolm.progress import Progress, silent
from zerolm.settings import REQUIRED
from zerolm.settings.compute import RunningRequest
from zerolm.settings.request import Request, argument, part, setting, values_of
from zerolm.settings.setting import absolute
from zerolm.show.sheet import Cell, Row, Sheet
from zerolm.text.defaults import text_field
from zerolm.verbs.report import Listing, run_of
from zerolm.verbs.shared import backend, field_read, needing_torch

if TYPE_CHECKING:
    from zerolm.lab.verbs.proxies_report import ProxiesReport

PASSES = ("mode", "upstream", "batch", "length", "seed")


@dataclass(frozen=True, kw_only=True)
class ProxiesSettings(Request):
    """Return training-free proxies of networks that run, all from a handful of shared passes.

    ``target`` is a space to sample networks from, a benchmark by name or file, or a folder with a model.
    What is computed is stored at once: a second run reuses it. Raises ``ValueError``, in one line, for what
    makes no sense, and ``ModuleNotFoundError`` where torch is not installed.
    """

    name: ClassVar[str] = "lab proxies"
    completes: ClassVar[dict[str, str]] = {"proxies": "zerolm.lab.zero_cost:defined_names"}
    examples = (
        ("zerolm lab proxies flexibert --count 10", "sampled networks: which proxies only count parameters?"),
        (
            "zerolm lab proxies gpt2_wt103 --proxies snip,zico --limit 50",
            "as rankings of trained architectures",
        ),
        ("zerolm lab proxies MODEL --text TEXT --out values", "one model on tokens of a text, as a page"),
    )
    notes = "Results are stored at once: a second run reuses them, a killed run resumes."
    target: str = argument(
        "path", REQUIRED, "a space, a benchmark (name or file), or a model folder", metavar="TARGET"
    )
    proxies: tuple[str, ...] | None = setting(
        "names", None, "proxies to compute, from `zerolm lab proxies ls`; default: all", group="Which proxies"
    )
    mode: str = setting(
        "text",
        "sane",
        "sane (as the papers define, on a real loss) or faithful (as the released code does)",
        choices=("sane", "faithful"),
    )
    upstream: str | None = setting(
        "text", None, "upstream gradient: of the task loss (default) or ones", choices=("task", "ones")
    )
    networks: Selection = part(Selection, group="Which networks")
    text: str = setting(
        "path",
        "random",
        "file or folder for the tokens; random needs no data",
        metavar="TEXT|random",
        group="What they read",
    )
    text_field: str | None = text_field()
    batch: int = setting("integer", 64, "sequences (or images) per batch", low=1, high=1 << 24)
    length: int = setting("integer", 128, "tokens per sequence", low=1, high=1 << 24)
    micro_batches: int = setting("integer", 8, "micro-batches per batch, of equal size", low=1, high=1 << 24)
    seed: int = setting("integer", 0, "seed of weights, masks and samples", low=0, high=2**63 - 1)
    running: RunningRequest = part(RunningRequest, group="How they run", device="cpu")
    jobs: int = setting("integer", 1, "networks computed in parallel", low=1, high=1024)
    backend: Any = backend()
    store: str | None = setting("path", None, "file for results; default: one in the cache")

    def run(self, progress: Progress = silent) -> ProxiesReport:
        passes = {name: getattr(self, name) for name in PASSES}
        store = None if self.store is None else Path(self.store)
        with field_read(self.text_field, self.text), needing_torch():
            from zerolm.lab.zero_cost.measure import ProxyRequest, measure
            from zerolm.lab.zero_cost.settings import Settings

            settings = Settings(**passes, parts=self.micro_batches, **values_of(self.running)).named
            how = (settings, self.networks, self.jobs, self.backend, store)
            ranked = measure(self.target, ProxyRequest(self.proxies, self.text, *how), progress=progress)
        from zerolm.lab.verbs.proxies_report import ProxiesReport

        return ProxiesReport(**vars(ranked), run=run_of(self, **self._repeatable()))

    def _repeatable(self) -> dict[str, Any]:
        """Return the settings that are written otherwise, to mean the same wherever they are read."""
        from zerolm.groundtruth.reader import is_file_name, same_folders
        from zerolm.spaces import space_names

        store = None if self.store is None else str(Path(self.store).absolute())
        if self.target in space_names():
            return {"store": store, "target": self.target}
        data = self.networks.data
        if Path(self.target).is_dir() or is_file_name(self.target):
            folders = data and same_folders(data)
            return {"store": store, "target": absolute(self.target), "data": folders}
        return {"store": store, "target": self.target, "data": same_folders(data)}


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
