"""The result of a carving: its data classes are imported without torch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import TYPE_CHECKING

from zerolm.carving.experts.result import ChildExperts
from zerolm.carving.vocabulary.result import ChildVocabulary
from zerolm.children.verification import Verification
from zerolm.families.core_sizes import CoreSizes

if TYPE_CHECKING:
    from zerolm.checkpoints import Checkpoint
    from zerolm.units.kept_units import Cut


@dataclass(frozen=True)
class LayerSize:
    """The sizes of a kept layer, by its number in the parent."""

    layer: int
    heads: int
    kv_heads: int
    ffn: int


@dataclass(frozen=True)
class UnitRow:
    """The units of a kind ``before`` and ``after`` the cut, and the parameters that they gave up."""

    unit: str
    before: int
    after: int
    params: int


@dataclass(frozen=True)
class ChildStream:
    """A narrower stream: ``hidden`` directions, whether the head is the embedding, and what they were
    chosen by (``loss`` or ``weights``)."""

    hidden: int
    tied: bool
    basis: str
    kept_energy: float


@dataclass(frozen=True)
class SpectrumRow:
    """A width of the stream: the share of its energy that it keeps, and its loss alone where estimated."""

    hidden: int
    kept_energy: float
    loss: float | None


@dataclass(frozen=True)
class TypeRow:
    """The type of a matrix, by the parent's layer and its role; ``layer`` is None outside the layers."""

    layer: int | None
    role: str
    type: str


@dataclass(frozen=True)
class EqualBytes:
    """A way to use the bytes: its ``name``, its bytes of weights, its predicted and its measured loss."""

    name: str
    bytes: int
    predicted: float
    measured: float | None


@dataclass(frozen=True, repr=False, eq=False, kw_only=True)
class CarvedChild:
    """The kept part of a parent, its costs, and the proof that the written child is the same.

    ``costs`` are those of ``parent`` and ``child`` by name, and of the ``stored`` child where zeros pad it;
    weights are counted at ``weight_bits``. ``optimal`` is None where nothing was planned.

    ``losses`` are KL in nats per token, or 1 - cosine, on held-out tokens: ``predicted`` from those of single
    cuts, or ``predicted_repaired`` where repair was predicted too, ``measured`` for the whole plan, and for
    the ``repaired`` one. ``note`` states any deviation from the request. ``verified`` is None where nothing
    was written.

    ``widths`` are the sizes of each kept layer. ``stream`` is None where it stays whole; ``spectrum`` says
    what other widths of it keep, and is empty where it was not examined. ``equal_bytes`` are other plans with
    the same bytes as the quantisation ``types``. ``experts`` is None where all are kept, ``vocabulary`` where
    tokens were not examined. ``units`` lists the removed ones of each kind; it is empty for a space of sizes.
    """

    parent: str
    family: str
    costs: dict[str, dict[str, int]]
    weight_bits: list[int]
    optimal: bool | None
    losses: dict[str, float]
    note: str
    verified: Verification | None
    spectrum: list[SpectrumRow] = field(default_factory=list)
    types: list[TypeRow] = field(default_factory=list)
    equal_bytes: list[EqualBytes] = field(default_factory=list)
    experts: ChildExperts | None = None
    vocabulary: ChildVocabulary | None = None
    units: list[UnitRow] = field(default_factory=list)
    criterion: str
    repair: str
    plan: str
    shape: str
    format: str
    space: str | None = None
    widths: list[LayerSize]
    stream: ChildStream | None = None
    parent_sizes: CoreSizes


@dataclass(frozen=True, repr=False, eq=False, kw_only=True)
class Carved(CarvedChild):
    """A carved child, and the ``kept`` units: None for experts of a GGUF file, whose recipe lists them."""

    kept: Cut | None = None

    @property
    def cut(self) -> Cut:
        """Return the kept units; ``ValueError`` for experts of a GGUF file."""
        if self.kept is None:
            raise ValueError("the recipe lists the kept experts of a GGUF file, not its result")
        return self.kept

    @property
    def child(self) -> CarvedChild:
        """Return all but the cut."""
        return CarvedChild(**{item.name: getattr(self, item.name) for item in fields(CarvedChild)})


@dataclass(frozen=True)
class TypedWeights:
    """The bytes of weights of a planned child, its types as ``rows``, and other plans with equal bytes."""

    bytes: int
    rows: list[TypeRow]
    equal_bytes: list[EqualBytes]


def rows_of(types: Mapping[tuple[int | None, str], str], checkpoint: Checkpoint) -> list[TypeRow]:
    """Return types by the parent's layer and role, outside the layers first."""
    order = {role: place for place, role in enumerate(slot.role for slot in checkpoint.layout.slots.values())}

    def rank(place: tuple[int | None, str]) -> tuple[int, int]:
        layer, role = place
        return -1 if layer is None else layer, order.get(role, len(order))

    return [TypeRow(*place, types[place]) for place in sorted(types, key=rank)]


def stream(cut: Cut) -> ChildStream | None:
    """Return the width and the basis of a narrower stream; None for the parent's."""
    narrowing = cut.narrowing
    if narrowing is None:
        return None
    return ChildStream(**asdict(narrowing.width), basis=narrowing.by, kept_energy=narrowing.kept)


def widths(cut: Cut) -> list[LayerSize]:
    """Return the sizes of each kept layer."""
    counts = {layer: cut.parent.counts(sizes) for layer, sizes in cut.sizes.items()}
    return [LayerSize(layer, each["heads"], each["kv_heads"], each["ffn"]) for layer, each in counts.items()]
