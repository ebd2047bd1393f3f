"""``zerolm.ledger``."""

from __future__ import annotations

import time
from os import PathLike
from typing import Any, ClassVar

import numpy as np

from zerolm.api.configuration import absolute
from zerolm.api.document_report import DocumentReport
from zerolm.api.documented import documented
from zerolm.architecture import Floats
from zerolm.carving.importance.weights import shares
from zerolm.checkpoints import Checkpoint, Ledger, Slot, Totals, ledger_of
from zerolm.commands.ledger import LEDGER
from zerolm.io.files import cache_folder
from zerolm.progress import Progress, silent
from zerolm.report.ledger import ledger_fragment, ledger_page
from zerolm.report.phrases import show_amount


class LedgerReport(DocumentReport):
    """The energies of the weights of a checkpoint, a row for each layer."""

    command: ClassVar[str] = LEDGER.name

    def lines(self) -> list[str]:
        whole, layers = self.document["total"]["all"], self.document["layers"]
        size = show_amount(self.document["bytes"], size=True)
        strongest = max(layers, key=lambda layer: layer["ffn"]["energy"] + layer["attention"]["energy"])
        return [
            f"{self.document['family']} of {len(layers)} layers, {whole['weights']:,} weights in {size}",
            f"energy {whole['energy']:.6g}, largest {whole['largest']:.4g}",
            f"most energy in layer {strongest['layer']}",
        ]

    def rows(self) -> list[dict[str, Any]]:
        return [
            {"layer": layer["layer"]}
            | {f"{part}_{name}": v for part in ("attention", "ffn") for name, v in layer[part].items()}
            for layer in self.document["layers"]
        ]

    def page(self) -> str:
        return ledger_page(self.document, self.run_yaml)

    def fragment(self) -> str:
        return ledger_fragment(self.document)


@documented(LEDGER)
def ledger(
    parent: str | PathLike[str],
    *,
    verify: bool = False,
    progress: Progress = silent,
) -> LedgerReport:
    """Return the energies of the weights of each layer, from one pass over the files.

    The pass is kept for later commands; ``verify`` compares the SHA-256 of the files' content before it is
    used again. Raises ``ValueError``, in one line, where ``parent`` is no checkpoint that can be read.
    """
    own = LEDGER.values({"parent": parent, "verify": verify})
    checkpoint = Checkpoint.open(own["parent"])
    watch = Watch(len(checkpoint.shards), progress)
    start = time.monotonic()
    made = ledger_of(checkpoint, verify=own["verify"], progress=watch.told)
    document = {
        "parent": own["parent"],
        "family": checkpoint.family.name,
        "bytes": sum(shard.size for shard in checkpoint.shards),
        "kv_groups": checkpoint.layout.kv_heads,
        "layers": [of_layer(checkpoint, made, layer) for layer in range(checkpoint.layout.depth)],
        "total": {
            "attention": weighed(_totals(checkpoint, made, "attention")),
            "ffn": weighed(_totals(checkpoint, made, "ffn")),
            "all": weighed([made.total(name) for name in checkpoint.layout.slots]),
        },
        "kept": str(cache_folder("ledgers")),
        "from_cache": watch.passes == 0,
        "verified": own["verify"],
        "seconds": time.monotonic() - start,
    }
    return LedgerReport.of(document, own | {"parent": absolute(own["parent"])})


class Watch:
    """Hands on progress, and counts the steps of passes over files."""

    def __init__(self, shards: int, progress: Progress) -> None:
        self.passes = -shards  # each shard is reported once when it is done, from the cache too
        self._progress = progress

    def told(self, text: str, done: int = 0, of: int = 0, /) -> None:
        self.passes += 1
        self._progress(text, done, of)


def of_layer(checkpoint: Checkpoint, made: Ledger, layer: int) -> dict[str, Any]:
    """Return the energies of one layer, and how much of them its strongest units hold.

    Neurons of experts are not compared with each other.
    """
    attention, ffn = (weighed(_totals(checkpoint, made, part, layer)) for part in ("attention", "ffn"))
    groups, half = _energies(checkpoint, made, layer, "groups"), None
    if not checkpoint.family.has_experts:
        neurons = _energies(checkpoint, made, layer, "ffn")
        half = held(neurons, (len(neurons) + 1) // 2)
    return {
        "layer": layer,
        "attention": attention | {"strongest_group": held(groups, 1)},
        "ffn": ffn | {"strongest_half": half},
    }


def _energies(checkpoint: Checkpoint, made: Ledger, layer: int, kind: str) -> Floats:
    """Return the energy of each KV group or neuron of a layer."""
    return np.asarray(sum(share.squares for share in shares(checkpoint, made, layer, kind)), np.float64)


def _totals(checkpoint: Checkpoint, made: Ledger, part: str, layer: int | None = None) -> list[Totals]:
    """Return the totals of the matrices of ``attention`` or of the ``ffn`` in one layer, else in all."""
    slots = checkpoint.layout.slots.items()
    inside = ((name, slot) for name, slot in slots if slot.layer is not None and layer in (None, slot.layer))
    return [made.total(name) for name, slot in inside if slot.is_matrix and _part(slot) == part]


def _part(slot: Slot) -> str:
    labels = {label for axis in slot.axes for label in axis.split("+")}
    return "attention" if labels & {"q", "kv"} else "ffn"


def weighed(totals: list[Totals]) -> dict[str, Any]:
    """Return the weights, their sum and mean of squares, and the largest magnitude, of several tensors."""
    count, energy = sum(total.count for total in totals), sum(total.squares for total in totals)
    largest = max((abs(end) for total in totals for end in (total.largest, total.smallest)), default=0.0)
    return {
        "weights": count,
        "energy": energy,
        "mean_square": energy / count if count else 0.0,
        "largest": largest,
    }


def held(energies: Floats, strongest: int) -> float | None:
    """Return the share of the strongest units in the energy of all; None where there is no energy."""
    whole = float(energies.sum())
    return float(np.sort(energies)[len(energies) - strongest :].sum()) / whole if whole else None
