"""The result of a carving."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from zerolm.carving.kept_units import Cut


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
    is None where nothing was written.
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

    @property
    def widths(self) -> list[dict[str, int]]:
        """Return the sizes of each kept layer."""
        return widths(self.cut)

    def to_json(self) -> dict[str, Any]:
        """Return all but the cut, as one flat object."""
        own = {name: value for name, value in vars(self).items() if name not in ("cut", "method")}
        return {**own, **asdict(self.method), "widths": self.widths, "parent_sizes": asdict(self.cut.parent)}


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
