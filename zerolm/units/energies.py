"""The energies of a checkpoint's weights, by layer and part, from its ledger."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from zerolm.architecture import Floats
from zerolm.checkpoints import Checkpoint, Ledger, Slot, Totals
from zerolm.units.importance.weights import shares


@dataclass(frozen=True)
class Energies:
    """Of some weights their number, their sum and mean of squares, and the largest magnitude."""

    weights: int
    energy: float
    mean_square: float
    largest: float


@dataclass(frozen=True)
class AttentionEnergies(Energies):
    """Also the share of the strongest KV group; None where there is no energy."""

    strongest_group: float | None


@dataclass(frozen=True)
class FfnEnergies(Energies):
    """Also the share of the stronger half of the neurons; None of experts, or where there is no energy."""

    strongest_half: float | None


@dataclass(frozen=True)
class LayerEnergies:
    """The energies of a layer."""

    layer: int
    attention: AttentionEnergies
    ffn: FfnEnergies

    @property
    def energy(self) -> float:
        """Return the energy of both parts."""
        return self.attention.energy + self.ffn.energy


@dataclass(frozen=True)
class TotalEnergies:
    """The energies of all layers by part, and of all tensors."""

    attention: Energies
    ffn: Energies
    all: Energies


def all_energies(checkpoint: Checkpoint, ledger: Ledger) -> tuple[list[LayerEnergies], TotalEnergies]:
    """Return the energies of each layer, and those of all of them."""
    total = TotalEnergies(
        energies(_totals(checkpoint, ledger, "attention")),
        energies(_totals(checkpoint, ledger, "ffn")),
        energies([ledger.total(name) for name in checkpoint.layout.slots]),
    )
    layers = range(checkpoint.layout.depth)
    return [layer_energies(checkpoint, ledger, layer) for layer in layers], total


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
    """Return the energy of each KV group or neuron of a layer, (units,)."""
    return np.asarray(sum(share.squares for share in shares(checkpoint, ledger, layer, kind)), np.float64)


def _totals(checkpoint: Checkpoint, ledger: Ledger, part: str, layer: int | None = None) -> list[Totals]:
    """Return the totals of the matrices of ``attention`` or of the ``ffn`` in one layer, else in all."""

    def is_of_part(slot: Slot) -> bool:
        labels = {label for axis in slot.axes for label in axis.split("+")}
        return slot.is_matrix and bool(labels & {"q", "kv"}) == (part == "attention")

    slots = checkpoint.layout.slots.items()
    inside = ((name, slot) for name, slot in slots if slot.layer is not None and layer in (None, slot.layer))
    return [ledger.total(name) for name, slot in inside if is_of_part(slot)]


def energies(totals: Sequence[Totals]) -> Energies:
    """Return the energies of several tensors."""
    count, energy = sum(total.count for total in totals), sum(total.squares for total in totals)
    largest = max((abs(end) for total in totals for end in (total.largest, total.smallest)), default=0.0)
    return Energies(count, energy, energy / count if count else 0.0, largest)


def strongest_share(energies: Floats, count: int) -> float | None:
    """Return the share of the strongest ``count`` units in the energy of all; None where there is none."""
    whole = float(energies.sum())
    return float(np.sort(energies)[len(energies) - count :].sum()) / whole if whole else None
