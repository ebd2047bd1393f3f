"""The result of a carving."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Final

from zerolm.checkpoints import Checkpoint
from zerolm.units.kept_units import Cut
from zerolm.units.stream.narrowing import Basis

SPECTRUM_STEPS: Final = 32
"""Number of widths at which the spectrum of the stream is reported."""


@dataclass(frozen=True)
class CarvingMethod:
    """The methods of a carving, and the ``format`` of the child."""

    criterion: str
    repair: str
    plan: str
    shape: str
    format: str
    space: str | None = None


@dataclass(frozen=True, eq=False)
class Carved:
    """The kept part of a parent, its costs, and the proof that the written child is the same.

    ``costs`` are those of ``parent`` and ``child`` by name, and of the ``stored`` child where zeros pad it;
    weights are counted at ``weight_bits``. ``optimal`` is None where nothing was planned.

    ``losses`` are KL in nats per token, or 1 - cosine, on held-out tokens: ``predicted`` from those of single
    cuts, or ``predicted_repaired`` where repair was predicted too, ``measured`` for the whole plan, and for
    the ``repaired`` one. ``note`` states any deviation from the request. ``verified`` is None where nothing
    was written.

    ``spectrum`` lists for widths of the stream (``hidden``) the share of its energy that they keep
    (``kept_energy``) and, where it was measured, the ``loss`` of that width alone; it is empty where the
    stream was not examined. ``widths`` are the sizes of each kept layer, ``stream`` the width of a narrower
    stream and its basis, ``parent_sizes`` those of the parent.

    ``types`` are those of the matrices of a child with quantisation types, and ``equal_bytes`` the losses of
    other plans with the same bytes. ``experts`` describes the kept experts, None where all are kept;
    ``vocabulary`` describes tokens, None where they were not examined. ``units`` lists the removed units of
    each kind: ``before``, ``after`` and ``params``; it is empty for a space of sizes. ``kept`` lists all
    units; it is None for experts of a GGUF file, whose recipe lists them.
    """

    parent: str
    family: str
    method: CarvingMethod
    costs: dict[str, dict[str, int]]
    weight_bits: list[int]
    optimal: bool | None
    losses: dict[str, float]
    widths: list[dict[str, int]]
    stream: dict[str, Any] | None
    parent_sizes: dict[str, int]
    note: str = ""
    verified: dict[str, Any] | None = None
    spectrum: list[dict[str, Any]] = field(default_factory=list)
    types: list[dict[str, Any]] = field(default_factory=list)
    equal_bytes: list[dict[str, Any]] = field(default_factory=list)
    experts: dict[str, Any] | None = None
    vocabulary: dict[str, Any] | None = None
    units: list[dict[str, Any]] = field(default_factory=list)
    kept: Cut | None = None

    @property
    def cut(self) -> Cut:
        """Return the kept units; ``ValueError`` for experts of a GGUF file, whose recipe lists them."""
        if self.kept is None:
            raise ValueError("the recipe lists the kept experts of a GGUF file, not its result")
        return self.kept

    def to_json(self) -> dict[str, Any]:
        """Return all but the cut, as one flat object."""
        last = ("widths", "stream", "parent_sizes")
        first = {name: value for name, value in vars(self).items() if name not in ("kept", "method", *last)}
        return {**first, **asdict(self.method), **{name: getattr(self, name) for name in last}}


@dataclass(frozen=True)
class TypedWeights:
    """The bytes of weights of a planned child, its types as ``rows``, and other plans with equal bytes."""

    bytes: int
    rows: list[dict[str, Any]]
    equal_bytes: list[dict[str, Any]]


def rows_of(types: Mapping[tuple[int | None, str], str], checkpoint: Checkpoint) -> list[dict[str, Any]]:
    """Return types as plain JSON, outside the layers first: the parent's ``layer``, ``role``, ``type``."""
    order = {role: place for place, role in enumerate(slot.role for slot in checkpoint.layout.slots.values())}

    def rank(place: tuple[int | None, str]) -> tuple[int, int]:
        layer, role = place
        return -1 if layer is None else layer, order.get(role, len(order))

    return [{"layer": place[0], "role": place[1], "type": types[place]} for place in sorted(types, key=rank)]


def spectrum(basis: Basis, losses: Mapping[int, float] | None = None) -> list[dict[str, Any]]:
    """Return the energy that widths of the stream keep, at even steps and where there are ``losses``."""
    whole, losses = len(basis.energy), losses or {}
    even = {max(1, round(step * whole / SPECTRUM_STEPS)) for step in range(1, SPECTRUM_STEPS + 1)}
    return [
        {"hidden": size, "kept_energy": basis.kept(size), "loss": losses.get(size)}
        for size in sorted(even | set(losses))
    ]


def stream(cut: Cut) -> dict[str, Any] | None:
    """Return the width and the basis of a narrower stream as plain JSON; None for the parent's."""
    narrowing = cut.narrowing
    if narrowing is None:
        return None
    return {**asdict(narrowing.width), "basis": narrowing.by, "kept_energy": narrowing.kept}


def widths(cut: Cut) -> list[dict[str, int]]:
    """Return the sizes of each kept layer."""
    return [{"layer": layer, **cut.parent.counts(sizes)} for layer, sizes in cut.sizes.items()]
