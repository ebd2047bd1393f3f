"""The energies of a checkpoint's weights, by layer and part, from its ledger."""

from __future__ import annotations

import time
from collections.abc import Sequence

import numpy as np

from zerolm.architecture import Floats
from zerolm.checkpoints import Checkpoint, Ledger, Slot, Totals, ledger_of
from zerolm.io.files import cache_folder
from zerolm.progress import Progress
from zerolm.units.importance.weights import shares
from zerolm.verbs.ledger import (
    AttentionEnergies,
    Energies,
    FfnEnergies,
    LayerEnergies,
    LedgerReport,
    LedgerSettings,
    TotalEnergies,
)
from zerolm.verbs.report import run_of


def report_of(settings: LedgerSettings, progress: Progress) -> LedgerReport:
    """Return the energies of a checkpoint, from a pass over its files or from an earlier one."""
    checkpoint = Checkpoint.open(settings.parent)
    watch, start = Watch(len(checkpoint.shards), progress), time.monotonic()
    ledger = ledger_of(checkpoint, verify=settings.verify, progress=watch.step)
    layout = checkpoint.layout
    return LedgerReport(
        parent=settings.parent,
        family=checkpoint.family.name,
        bytes=sum(shard.size for shard in checkpoint.shards),
        kv_groups=layout.kv_heads,
        layers=[layer_energies(checkpoint, ledger, layer) for layer in range(layout.depth)],
        total=TotalEnergies(
            energies(_totals(checkpoint, ledger, "attention")),
            energies(_totals(checkpoint, ledger, "ffn")),
            energies([ledger.total(name) for name in layout.slots]),
        ),
        kept=str(cache_folder("ledgers")),
        from_cache=watch.passes == 0,
        verified=settings.verify,
        seconds=time.monotonic() - start,
        run=run_of(settings),
    )


class Watch:
    """Hands on progress, and counts the steps of passes over files."""

    def __init__(self, shards: int, progress: Progress) -> None:
        self.passes = -shards  # each shard is reported once when it is done, from the cache too
        self._progress = progress

    def step(self, text: str, done: int = 0, of: int = 0, /) -> None:
        self.passes += 1
        self._progress(text, done, of)


def layer_energies(checkpoint: Checkpoint, ledger: Ledger, layer: int) -> LayerEnergies:
    """Return the energies of one layer, and how much of them its strongest units hold.

    Neurons of experts are not compared with each other.
    """
    attention, ffn = (energies(_totals(checkpoint, ledger, part, layer)) for part in ("attention", "ffn"))
    half = None
    if not checkpoint.family.has_experts:
        neurons = _unit_energies(checkpoint, ledger, layer, "ffn")
        half = strongest_share(neurons, (len(neurons) + 1) // 2)
    group = strongest_share(_unit_energies(checkpoint, ledger, layer, "groups"), 1)
    return LayerEnergies(
        layer,
        AttentionEnergies(**vars(attention), strongest_group=group),
        FfnEnergies(**vars(ffn), strongest_half=half),
    )


def _unit_energies(checkpoint: Checkpoint, ledger: Ledger, layer: int, kind: str) -> Floats:
    """Return the energy of each KV group or neuron of a layer."""
    return np.asarray(sum(share.squares for share in shares(checkpoint, ledger, layer, kind)), np.float64)


def _totals(checkpoint: Checkpoint, ledger: Ledger, part: str, layer: int | None = None) -> list[Totals]:
    """Return the totals of the matrices of ``attention`` or of the ``ffn`` in one layer, else in all."""
    slots = checkpoint.layout.slots.items()
    inside = ((name, slot) for name, slot in slots if slot.layer is not None and layer in (None, slot.layer))
    return [ledger.total(name) for name, slot in inside if slot.is_matrix and _part(slot) == part]


def _part(slot: Slot) -> str:
    labels = {label for axis in slot.axes for label in axis.split("+")}
    return "attention" if labels & {"q", "kv"} else "ffn"


def energies(totals: Sequence[Totals]) -> Energies:
    """Return the energies of several tensors."""
    count, energy = sum(total.count for total in totals), sum(total.squares for total in totals)
    largest = max((abs(end) for total in totals for end in (total.largest, total.smallest)), default=0.0)
    return Energies(count, energy, energy / count if count else 0.0, largest)


def strongest_share(energies: Floats, count: int) -> float | None:
    """Return the share of the strongest ``count`` units in the energy of all; None where there is none."""
    whole = float(energies.sum())
    return float(np.sort(energies)[len(energies) - count :].sum()) / whole if whole else None
