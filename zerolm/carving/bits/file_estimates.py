"""The loss of every possible type of a file's tensors, at every size that a cut allows.

The loss of a whole tensor is that of rounding some of its rows. A part of it loses its share of the weighted
squared weights, as in ``zerolm.carving.bits.estimates``: the errors of a type are nearly a constant share of
the weights of a tensor.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

import numpy as np

from zerolm.architecture import Bools, Floats, Ints
from zerolm.carving.bits.estimates import RoleEstimates, kept_units
from zerolm.carving.bits.file_child import WeighedFile
from zerolm.carving.bits.file_units import UnitsAlong, units_along
from zerolm.carving.bits.options import Options
from zerolm.carving.bits.plain_bytes import PlainBytes
from zerolm.carving.bits.row_blocks import Rows, types_of_any_rows, types_of_rows
from zerolm.checkpoints import Checkpoint
from zerolm.checkpoints.weight_types import BY_NAME, WeightType, from_largest
from zerolm.children.gguf.file_tensors import FileMatrix, stored_pieces
from zerolm.io.cache import ArrayCache
from zerolm.passes.matrix_moments import Place
from zerolm.planning.part_costs import Choices
from zerolm.progress import Counted, Progress, silent
from zerolm.units.importance.criterion import Criterion
from zerolm.units.kept_units import Dimensions, dimensions
from zerolm.units.stream.narrowing import Width
from zerolm.units.within_layers import UNITS


class PlaceLosses(NamedTuple):
    """Losses of an uncut place's matrices by type (m, t), and the shares in them of units (m, units).

    ``rest`` (m,) is the share of elements without a unit.
    """

    loss: Floats
    shares: Floats
    rest: Floats

    def of_kept(self, kept: Floats) -> Floats:
        """Return the losses (s, t) where units are kept, 1 each (s, units)."""
        return (kept @ self.shares.T + self.rest) @ self.loss


@dataclass(frozen=True, eq=False)
class FileEstimates:
    """Bytes and losses of the tensors of a file by type; ``weighed`` is the parent with all its units."""

    weighed: WeighedFile
    types: tuple[WeightType, ...]
    progress: Progress = silent
    cache: ArrayCache = field(default_factory=ArrayCache)

    @property
    def checkpoint(self) -> Checkpoint:
        return self.weighed.child.parent

    @property
    def parent(self) -> Dimensions:
        return dimensions(self.checkpoint)

    def in_layers(self, choices: Choices, by: Criterion | None) -> dict[str, RoleEstimates]:
        """Return the estimates of all roles in layers for the choices of sizes, with units chosen by ``by``.

        Without ``by`` losses are 0 where a type is possible.
        """
        places: dict[str, list[int]] = {}
        for layer, role in self.weighed.matrices:
            if layer is not None:
                places.setdefault(role, []).append(layer)
        return {role: self._of_role(role, sorted(layers), choices, by) for role, layers in places.items()}

    def outside(self, width: Width | None, *, measured: bool = True) -> dict[str, RoleEstimates]:
        """Return the estimates of embeddings and a head, as one layer with one size each.

        Unless ``measured`` losses are 0.
        """
        assert width is None
        estimates = {}
        for place in (each for each in self.weighed.matrices if each[0] is None):
            kinds = self.candidates(place)
            sizes, possible = self._bytes(place, np.zeros(1, np.int64), kinds)
            loss = self.measured[place].loss.sum(0) if measured else 0.0
            losses = np.where(possible, loss, np.inf)[None]
            estimates[place[1]] = RoleEstimates(kinds, sizes[None], losses, np.zeros(1, np.int64))
        return estimates

    def plain(self, choices: Choices) -> PlainBytes:
        """Return the bytes of tensors without a type for the choices of sizes."""
        depth, names = self.checkpoint.layout.depth, self._names
        units = [np.zeros((depth, len(counts)), np.int64) for counts in choices.units]
        layer, ends = np.zeros(depth, np.int64), 0
        for stack, piece, dtype in stored_pieces(self.weighed.child):
            number, _ = stack.place
            if piece.name in names:
                continue
            along = units_along(stack, piece, self.parent)
            size = BY_NAME[dtype].size
            rest = size(int(np.prod(along.shaped(0))))
            if number is None:
                ends += rest
                continue
            layer[number] += rest
            if along.unit is not None:
                counts = choices.units[along.unit]
                units[along.unit][number] += [size(int(np.prod(along.shaped(n)))) - rest for n in counts]
        return PlainBytes(units, layer, ends)

    def candidates(self, place: Place) -> tuple[WeightType, ...]:
        """Return the types that a place may have for some length of its rows, the largest first."""
        return types_of_any_rows(self.checkpoint, self.types, self._of(place)[0].stack.first.source)

    def able(self, weighed: WeighedFile, place: Place) -> tuple[WeightType, ...]:
        """Return the types that a place of a child may have: those that fit all of its pieces."""
        pairs = ((matrix.stack.first.source, matrix.columns) for matrix in weighed.matrices[place])
        every = [types_of_rows(self.checkpoint, self.types, *pair) for pair in pairs]
        return tuple(kind for kind in every[0] if all(kind in other for other in every))

    def options(
        self, weighed: WeighedFile, place: Place, kinds: Sequence[WeightType] | None = None
    ) -> tuple[Sequence[WeightType], Options]:
        """Return the possible types of a place of a child, or these ``kinds``, with bytes and losses.

        Losses are those of the parent where the place has its numbers.
        """
        kinds = kinds or self.able(weighed, place)
        if not weighed.is_as_stored(place):
            return kinds, weighed.losses(place, tuple(kinds))
        at = [self.candidates(place).index(kind) for kind in kinds]
        losses = self.measured[place].loss.sum(0)[at]
        return kinds, Options(place, weighed.sizes(place, kinds), losses)

    @cached_property
    def measured(self) -> dict[Place, PlaceLosses]:
        """The losses of all uncut places."""
        places = list(self.weighed.matrices)
        step = Counted(self.progress, "rounding every matrix to every type", len(places))
        results = {}
        for place in places:
            name = "-".join(map(str, place))
            row = self.cache.get(name)
            if row is None:
                row = self._measure(place)._asdict()
                self.cache.put(name, row)
            results[place] = PlaceLosses(**row)
            step()
        return results

    @cached_property
    def rows(self) -> list[Rows]:
        """The rows of matrices by their length in the parent."""
        roles: dict[int, list[str]] = {}
        for (_, role), every in self.weighed.matrices.items():
            for matrix in every:
                roles.setdefault(matrix.columns, []).append(role)
        return [
            Rows(str(length), tuple(dict.fromkeys(roles[length])), length, frozenset({length}))
            for length in sorted(roles)
        ]

    def _measure(self, place: Place) -> PlaceLosses:
        kinds = self.candidates(place)
        return PlaceLosses(self.weighed.losses_by_matrix(place, kinds), *self.weighed.energies(place))

    def _of_role(
        self, role: str, layers: Sequence[int], choices: Choices, by: Criterion | None
    ) -> RoleEstimates:
        """Return the estimates of a role in the layers that have it."""
        places: list[Place] = [(layer, role) for layer in layers]
        unit = self._along(places[0]).unit
        counts = np.zeros(1, np.int64) if unit is None else np.array(choices.units[unit])
        kinds = from_largest({kind for place in places for kind in self.candidates(place)})
        sizes, losses = (np.zeros((len(places), len(counts), len(kinds)), kind) for kind in (np.int64, float))
        for row, place in enumerate(places):
            sizes[row], possible = self._bytes(place, counts, kinds)
            if by is not None:
                losses[row] = self._losses(place, counts, kinds, by)
            losses[row][~possible] = np.inf
        return RoleEstimates(kinds, sizes, losses, np.array(layers), unit)

    def _losses(self, place: Place, counts: Ints, kinds: Sequence[WeightType], by: Criterion) -> Floats:
        """Return the losses (s, t) of a place for numbers of units chosen by ``by``."""
        layer, _ = place
        along, kept = self._along(place), np.ones((len(counts), 0))
        assert layer is not None
        if along.unit is not None:
            kept = kept_units(by, layer, UNITS[along.unit].name, counts, along.whole)
        losses, able = self.measured[place].of_kept(kept), self.candidates(place)
        every = np.full((len(counts), len(kinds)), np.inf)
        for column, kind in enumerate(kinds):
            if kind in able:
                every[:, column] = losses[:, able.index(kind)]
        return every

    def _bytes(self, place: Place, counts: Ints, kinds: Sequence[WeightType]) -> tuple[Ints, Bools]:
        """Return the bytes (s, t) of a place by number of units and type, and which are possible."""
        sizes = np.zeros((len(counts), len(kinds)), np.int64)
        possible = np.ones(sizes.shape, np.bool_)
        for matrix in self._of(place):
            along = self.weighed.along(matrix)
            for row, count in enumerate(counts.tolist()):
                m, n, k = along.shaped(count)
                able = types_of_rows(self.checkpoint, self.types, matrix.stack.first.source, k)
                sizes[row] += [kind.size(k) * n * m for kind in kinds]
                possible[row] &= [kind in able for kind in kinds]
        return sizes, possible

    def _of(self, place: Place) -> Sequence[FileMatrix]:
        return self.weighed.matrices[place]

    @cached_property
    def _names(self) -> frozenset[str]:
        return frozenset(matrix.name for every in self.weighed.matrices.values() for matrix in every)

    def _along(self, place: Place) -> UnitsAlong:
        """Return the units along the first piece of a place; ``ValueError`` where others have other units."""
        first, *others = map(self.weighed.along, self._of(place))
        if any(other.unit != first.unit for other in others):
            raise ValueError(f"{place[1]!r} has pieces with and without units, whose types are not planned")
        return first
