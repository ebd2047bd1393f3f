"""The result of a carving."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Final

from zerolm.carving.kept_units import Cut
from zerolm.carving.width.narrowing import Basis

STEPS: Final = 32
"""Widths at which the spectrum of the stream is told."""


@dataclass(frozen=True)
class CarvingMethod:
    """How a child was carved, and the ``format`` that it is written in."""

    criterion: str
    repair: str
    plan: str
    shape: str
    format: str
    space: str | None = None


@dataclass(frozen=True, eq=False)
class Carved:
    """The kept part of a parent, its costs, and whether the child on the disk was found to be the same.

    ``costs`` are of ``parent`` and ``child`` by name, and of what is ``stored`` where zeros fill it up;
    weights are counted at ``weight_bits``. ``optimal`` is None where nothing was planned. ``losses`` (KL in
    nats a token, or 1 - cosine, on calibration tokens) are ``predicted`` by the measured table, ``measured``
    of the whole plan, and of the ``repaired`` one. ``note`` says what was done other than asked. ``verified``
    is None where nothing was written. ``spectrum`` lists for widths of the stream (``hidden``) what share of
    its energy they keep (``kept_energy``) and, where it was measured, the ``loss`` of that width alone; it is
    empty where the stream was not looked at.
    """

    parent: str
    family: str
    method: CarvingMethod
    cut: Cut
    costs: dict[str, dict[str, int]]
    weight_bits: list[int]
    optimal: bool | None
    losses: dict[str, float]
    note: str = ""
    verified: dict[str, Any] | None = None
    spectrum: list[dict[str, Any]] = field(default_factory=list)

    @property
    def widths(self) -> list[dict[str, int]]:
        """Return the sizes of each kept layer."""
        return widths(self.cut)

    def to_json(self) -> dict[str, Any]:
        """Return all but the cut, as one flat object."""
        own = {name: value for name, value in vars(self).items() if name not in ("cut", "method")}
        return {
            **own,
            **asdict(self.method),
            "widths": self.widths,
            "stream": stream(self.cut),
            "parent_sizes": asdict(self.cut.parent),
        }


def spectrum(basis: Basis, losses: Mapping[int, float] | None = None) -> list[dict[str, Any]]:
    """Return what widths of the stream keep of its energy, at even steps and where ``losses`` are known."""
    whole, known = len(basis.energy), losses or {}
    sizes = {max(1, round(step * whole / STEPS)) for step in range(1, STEPS + 1)} | set(known)
    return [
        {"hidden": size, "kept_energy": basis.kept(size), "loss": known.get(size)} for size in sorted(sizes)
    ]


def stream(cut: Cut) -> dict[str, Any] | None:
    """Return the width of a narrower stream and how it came about as plain JSON; None for the parent's."""
    narrowing = cut.narrowing
    if narrowing is None:
        return None
    return {**asdict(narrowing.width), "basis": narrowing.by, "kept_energy": narrowing.kept}


def widths(cut: Cut) -> list[dict[str, int]]:
    """Return the sizes of each kept layer."""
    per_group = cut.parent.heads_per_group
    return [
        {
            "layer": layer.layer,
            "heads": len(layer.groups) * per_group,
            "kv_heads": len(layer.groups),
            "ffn": len(layer.ffn),
        }
        for layer in cut.layers
    ]
