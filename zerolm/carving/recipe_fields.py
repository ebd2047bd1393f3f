"""The fields of a recipe as JSON has them, checked one by one and against the parent."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Final

import numpy as np
from annotated_types import Ge, Gt, Lt, MaxLen

from zerolm.architecture import Ints
from zerolm.carving.experts.fewer_experts import AXIS, NEURONS
from zerolm.carving.request import MAX_TOKENS, Plan
from zerolm.carving.result import ChildStream, TypeRow
from zerolm.checkpoints import Checkpoint
from zerolm.checkpoints.weight_types import BY_NAME
from zerolm.families.family import OUTPUT_ROLES
from zerolm.repairing.rules import Repair
from zerolm.settings import check_known, shown
from zerolm.units.kept_units import Dimensions
from zerolm.units.ridges import Place, Ridges
from zerolm.units.stream.narrowing import Width

MAX_NAME: Final = 80
MAX_STAGES: Final = 1000
IN_LAYER: Final = (*OUTPUT_ROLES, "attention_norm", "ffn_norm")
BASES: Final = ("loss", "weights")
Name = Annotated[str, MaxLen(MAX_NAME)]
Share = Annotated[float, Gt(0), Lt(1e6)]
ExpertsAndNeurons = tuple[dict[int, Ints], dict[int, Ints]]
"""The kept experts by layer, ascending, and the kept neurons (e, n) of each; none where all are kept."""


@dataclass(frozen=True)
class RecipeTokens:
    """The tokens of a recipe: the SHA-256 of a text, a seed, and the digest of generated tokens."""

    text: Name | None
    seed: int | None
    sequences: Annotated[int, Ge(1)]
    length: Annotated[int, Ge(2)]
    generated: Name | None = None


@dataclass(frozen=True)
class ExpertsRow:
    """The kept experts of a layer, and in hexadecimal digits the kept neurons of each, if any are removed."""

    layer: int
    kept: list[int]
    neurons: list[str] | None = None


@dataclass(frozen=True)
class TrainedText:
    """A text that a child was healed on: its source, the number of its tokens, and its SHA-256."""

    source: str
    trained_on: int
    sha256: str


@dataclass(frozen=True)
class LossesOnHeldOut:
    """Losses by name on held-out tokens, before and after healing, and those of the parent."""

    before: dict[str, float]
    after: dict[str, float]
    parent: dict[str, float]


@dataclass(frozen=True)
class HealingStage:
    """A stage of healing, as a card shows it."""

    tokens: int
    batch: int
    length: int
    seed: int
    held_out: int
    teacher: str
    rate: float
    losses: list[str]
    texts: list[TrainedText]
    losses_on_held_out: LossesOnHeldOut
    lora: int | None = None


@dataclass(frozen=True)
class RecipeFields:
    """The fields of a recipe that are read, as JSON has them; their values still have to fit the parent."""

    family: Name
    criterion: Name
    repair: Repair
    plan: Plan
    shape: Name
    written_as: Name
    space: Name | None
    calibration: RecipeTokens | None
    ridges: dict[str, tuple[Share, Share]]
    sha256: dict[str, Name]
    versions: dict[str, Name]
    stream: ChildStream | None
    layers: list[Any]
    types: list[TypeRow] | None = None
    experts: list[ExpertsRow] | None = None
    criterion_of_experts: Name | None = None
    repair_of_experts: Repair | None = None
    healing: Annotated[list[HealingStage], MaxLen(MAX_STAGES)] = field(default_factory=list)
    tokens: str | None = None

    def check(self) -> None:
        """Raise ``ValueError`` for too many tokens, and for losses of a stage with different names."""
        tokens = self.calibration
        if tokens is not None and tokens.sequences * tokens.length > MAX_TOKENS:
            raise ValueError(f"its calibration has {tokens.sequences} sequences of {tokens.length} tokens")
        for stage in self.healing:
            losses = stage.losses_on_held_out
            if not set(losses.before) <= set(losses.after) & set(losses.parent):
                raise ValueError(f"a stage of its healing has no {', '.join(losses.before)} after it")

    def kept_experts(self, sizes: Mapping[str, int]) -> ExpertsAndNeurons | None:
        """Return the kept experts and neurons of a parent of these sizes; None where all are kept."""
        rows, whole = self.experts, sizes.get(NEURONS, 0)
        if rows is None:
            return None
        experts = {
            row.layer: ascending(row.kept, sizes.get(AXIS, 0), f"its experts of layer {row.layer}")
            for row in rows
        }
        if not any(row.neurons for row in rows):
            return experts, {}
        neurons = {}
        for row in rows:
            kept = [from_hex(text, whole, "its neurons") for text in row.neurons or ()]
            if len(kept) != len(row.kept):
                raise ValueError(
                    f"its neurons of layer {row.layer} are not those of each expert that is kept"
                )
            if len({len(each) for each in kept}) != 1:
                raise ValueError("its experts keep different numbers of neurons, and all have one")
            neurons[row.layer] = np.array(kept)
        return experts, neurons

    def by_place(self, depth: int) -> dict[Place, Ridges]:
        """Return the ridges by layer and role; ``ValueError`` for a matrix that is not refitted."""
        ridges: dict[Place, Ridges] = {}
        for place, pair in self.ridges.items():
            role, _, text = place.partition(" ")
            layer = int(text) if text.isdecimal() and len(text) < 9 else depth + 1
            if not (role in IN_LAYER and layer < depth) and (role, layer) != ("final_norm", depth):
                raise ValueError(f"its ridges of {place[:40]!r} are of no matrix that is refitted")
            ridges[layer, role] = Ridges(*pair)
        return ridges

    def type_by_place(self, depth: int) -> dict[tuple[int | None, str], str] | None:
        """Return the quantisation types by layer and role; ``ValueError`` for an unknown type."""
        for row in self.types or ():
            if row.layer is not None and not 0 <= row.layer < depth:
                raise ValueError(f"its types are of layer {row.layer}, and there are {depth}")
            check_known("its type", row.type, BY_NAME)
        return None if self.types is None else {(row.layer, row.role): row.type for row in self.types}

    def width(self, parent: Dimensions, checkpoint: Checkpoint) -> Width | None:
        """Return the width of the stream; ``ValueError`` where it does not fit."""
        stream = self.stream
        if stream is None:
            return None
        if stream.basis not in BASES:
            raise ValueError(f"stream.basis must be 'loss' or 'weights', not {shown(stream.basis)}")
        if not checkpoint.family.cut.hidden or not 1 <= stream.hidden <= parent.hidden:
            raise ValueError(f"its stream is {stream.hidden} wide, that of the parent {parent.hidden}")
        if stream.tied and not checkpoint.layout.tied:
            raise ValueError("its stream has a tied head, and the parent has none")
        return Width(stream.hidden, stream.tied)


def ascending(numbers: Any, whole: int, words: str) -> Ints:
    """Return a list of numbers as an array; ``ValueError`` unless they ascend from 0 to below ``whole``.

    It may be empty only if ``whole`` is 0.
    """
    if not isinstance(numbers, list) or numbers != sorted(set(numbers)) or (whole and not numbers):
        raise ValueError(f"{words} must ascend within 0 to {whole - 1}")
    if numbers and not 0 <= numbers[0] <= numbers[-1] < whole:  # before int64 could overflow
        raise ValueError(f"{words} must ascend within 0 to {whole - 1}")
    return np.array(numbers, np.int64)


def to_hex(kept: Ints, whole: int) -> str:
    """Return the kept units (n,) of ``whole`` as hexadecimal digits, the first as the highest bit."""
    mask = np.zeros(whole, bool)
    mask[kept] = True
    return np.packbits(mask).tobytes().hex()


def from_hex(text: str, whole: int, words: str) -> Ints:
    """Return the units, ascending, that ``to_hex`` wrote; ``ValueError`` for other text."""
    digits = 2 * -(-whole // 8)
    sound = re.fullmatch(f"[0-9a-f]{{{digits}}}", text) is not None
    bits = np.unpackbits(np.frombuffer(bytes.fromhex(text if sound else ""), np.uint8))
    if not bits.any() or bits[whole:].any():
        raise ValueError(f"{words} are {text[:40]!r}, not bits of {whole} as {digits} digits")
    return np.flatnonzero(bits)
