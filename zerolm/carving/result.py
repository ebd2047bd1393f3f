"""The result of a carving: its data classes are imported without torch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import TYPE_CHECKING, Final

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


TYPES_ALONE: Final = "types alone"


@dataclass(frozen=True)
class EqualBytes:
    """A way to use the bytes: its ``name``, its bytes of weights, its predicted and its measured loss.

    ``predicted`` is None where even its fewest ``bytes`` are too many.
    """

    name: str
    bytes: int
    predicted: float | None
    measured: float | None


@dataclass(frozen=True)
class NeuronRow:
    """The kept neurons of a layer's experts, for each expert as hexadecimal digits, the first the highest
    bit.

    ``loss`` is the predicted loss of the pruned ones on the text, a squared length summed over its tokens. It
    is None where the criterion uses no tokens.
    """

    kept: list[str]
    loss: float | None = None


@dataclass(frozen=True)
class ChildWidth:
    """The neurons of an expert of the ``parent`` and of the ``child``."""

    parent: int
    child: int


@dataclass(frozen=True)
class ExpertRow:
    """A layer: the kept experts, and the share of tokens and of gates that were routed to them.

    ``tokens`` and ``gates`` are None where no tokens were read. By pairs, ``loss`` is that of the
    removed ones. By domains, another choice would be better by at most a share of ``gap``. ``left`` is the
    share of the layer's squared error on held-out sequences that remains after repair, None without.
    ``domains`` are the shares of the total score that the kept experts have, by domain, where the text has
    several. ``neurons`` are the kept ones, None where all are kept.
    """

    layer: int
    kept: list[int]
    tokens: float | None = None
    gates: float | None = None
    loss: float | None = None
    gap: float | None = None
    left: float | None = None
    domains: dict[str, float] = field(default_factory=dict)
    neurons: NeuronRow | None = None

    @property
    def lost_by_neurons(self) -> float | None:
        """The predicted loss of pruned neurons; None where none are pruned, or it is not estimated."""
        return None if self.neurons is None else self.neurons.loss


@dataclass(frozen=True)
class ChildExperts:
    """The experts of a layer of the ``parent`` and of the ``child``; a token meets ``active`` of them.

    ``criterion`` is what they were chosen by. ``ffn`` are their neurons, None where those are not asked for.
    """

    criterion: str
    parent: int
    child: int
    active: int
    groups: int = 1
    ffn: ChildWidth | None = None
    layers: list[ExpertRow] = field(default_factory=list)


@dataclass(frozen=True)
class TriedSize:
    """A vocabulary of ``size`` tokens: the ``params`` of the whole child with it, and its losses.

    ``tokens`` is the loss of fewer tokens, ``rest`` the predicted one of all else that is cut or rounded,
    ``measured`` the same after repair, for the best sizes. They are in bits per byte; for an encoder
    1 - cosine. ``bytes`` are those of its weights where they have types.
    """

    size: int
    params: int
    tokens: float
    rest: float
    bytes: int | None = None
    measured: float | None = None

    @property
    def loss(self) -> float:
        """Return the sum of both losses, measured if that is known."""
        return self.tokens + (self.rest if self.measured is None else self.measured)


@dataclass(frozen=True)
class CurveRow:
    """A size of the vocabulary, the parameters with it, and by what share held-out text ``grows``."""

    size: int
    params: int
    grows: float


@dataclass(frozen=True)
class StringsProof:
    """The number of compared strings, of those with the ``same`` tokens, and the distance of kept logits.

    ``difference`` is the largest one, ``relative`` is relative to the largest output of the parent.
    """

    strings: int
    same: int
    difference: float
    relative: float


@dataclass(frozen=True)
class ChildVocabulary:
    """The tokens of the ``parent`` and of the ``child``, and those ``used`` by the text, None without one.

    ``saves`` are the parameters less with these alone; no child has fewer than ``least``. The text has
    ``tokens``, and ``grows`` by some. ``sizes`` were compared within budgets. ``losses`` are of the
    ``parent`` and with fewer tokens, on a part of the text that is ``held_out`` of their choice. All losses
    are in ``unit``: bits a byte, or 1 - cosine of an encoder. ``curve`` shows how that part grows with fewer
    tokens.
    """

    parent: int
    child: int
    unit: str
    used: int | None = None
    saves: int | None = None
    least: int | None = None
    tokens: int = 0
    grows: int = 0
    sizes: list[TriedSize] = field(default_factory=list)
    losses: dict[str, float] = field(default_factory=dict)
    held_out: bool = False
    curve: list[CurveRow] = field(default_factory=list)
    proof: StringsProof | None = None


@dataclass(frozen=True, repr=False, eq=False, kw_only=True)
class CarvedChild:
    """The kept part of a parent, its costs, and the proof that the written child is the same.

    ``costs`` are those of ``parent`` and ``child`` by name, and of the ``stored`` child where zeros pad it;
    weights are counted at ``weight_bits``. ``optimal`` is None where nothing was planned.

    ``losses`` on held-out tokens are in ``unit``, KL or 1 - cosine: ``predicted`` from those of single cuts,
    or ``predicted_repaired`` where repair was predicted too, ``measured`` for the whole plan, and for
    the ``repaired`` one. ``notes`` state any deviation from the request. ``verified`` is None where nothing
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
    unit: str
    notes: list[str]
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
