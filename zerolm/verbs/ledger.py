"""``zerolm ledger``: the energies of the weights of each layer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from zerolm.progress import Progress, silent
from zerolm.settings.request import PLACED, Request, setting
from zerolm.verbs import shared
from zerolm.verbs.report import run_of

if TYPE_CHECKING:
    from zerolm.verbs.ledger_report import LedgerReport


@dataclass(frozen=True, kw_only=True)
class LedgerSettings(Request):
    """Return the energies of the weights of each layer, from one pass over the files.

    The pass is kept for later commands; ``verify`` compares the SHA-256 of the files' content before it is
    used again. Raises ``ValueError``, in one line, where ``parent`` is no checkpoint that can be read.
    """

    name: ClassVar[str] = "ledger"
    examples = (
        ("zerolm ledger PARENT", "a line for each layer; the pass is kept for later commands"),
        ("zerolm ledger PARENT --verify --out energies", "with the content compared, as a page and JSON"),
    )
    notes = (
        "energy: sum of squared weights. strongest half: share of the FFN energy in the strongest half of "
        "the neurons (.5 if all are equal). strongest group: share of the attention energy in the "
        "strongest KV group."
    )
    parent: str = shared.parent(group=PLACED)
    verify: bool = setting("flag", False, "also check the SHA-256 of the files", group="Reading")
    like: str | None = shared.like()

    def run(self, progress: Progress = silent) -> LedgerReport:
        import time

        from zerolm.checkpoints import Checkpoint, ledger_of
        from zerolm.io.files import cache_folder
        from zerolm.units.energies import all_energies
        from zerolm.verbs.ledger_report import LedgerReport

        with shared.read_like(self.like):
            start, checkpoint = time.monotonic(), Checkpoint.open(self.parent)
            steps = list[str]()  # one for each shard that is done, from the cache too, and those of passes

            def watched(text: str, done: int = 0, of: int = 0, /) -> None:
                steps.append(text)
                progress(text, done, of)

            ledger = ledger_of(checkpoint, verify=self.verify, progress=watched)
            layers, total = all_energies(checkpoint, ledger)
        return LedgerReport(
            parent=self.parent,
            family=checkpoint.family.name,
            bytes=sum(shard.size for shard in checkpoint.shards),
            kv_groups=checkpoint.layout.kv_heads,
            layers=layers,
            total=total,
            kept=str(cache_folder("ledgers")),
            from_cache=len(steps) == len(checkpoint.shards),
            verified=self.verify,
            seconds=time.monotonic() - start,
            run=run_of(self),
        )
