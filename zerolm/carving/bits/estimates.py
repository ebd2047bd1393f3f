"""The loss of every possible type of a file's tensors, at every size that a cut allows.

The loss of a whole tensor is that of rounding some of its rows. The errors of a type are a share of the
weights, nearly constant within a tensor. So a part of it loses its share of the weighted squared weights,
which splits over units, and over the directions of a narrower stream.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Final, NamedTuple

import numpy as np

from zerolm.architecture import Bools, Floats, Ints
from zerolm.carving.bits.directions import Directions
from zerolm.carving.bits.file_units import COLUMNS, MATRICES, ROWS, UnitsAlong, units_along
from zerolm.carving.bits.kernels import Values
from zerolm.carving.bits.options import Options
from zerolm.carving.bits.row_blocks import RolesByLength, types_of_any_rows, types_of_rows
from zerolm.carving.bits.weighed_child import (
    EMBEDDING,
    HEAD,
    WeighedChild,
    importances_of,
    measured_rows,
    rounding,
)
from zerolm.checkpoints import Checkpoint
from zerolm.checkpoints.weight_types import BY_NAME, WeightType, from_largest
from zerolm.children.gguf.file_tensors import FileMatrix, stored_pieces
from zerolm.io.cache import ArrayCache, Arrays
from zerolm.passes.matrix_moments import MatrixMoments, Place
from zerolm.planning.part_costs import Choices
from zerolm.progress import Counted, Progress, silent
from zerolm.units.importance.criterion import Criterion
from zerolm.units.kept_units import Dimensions
from zerolm.units.stream.narrowing import Width
from zerolm.units.within_layers import UNITS

ROWS_AT_ONCE: Final = 1024


@dataclass(frozen=True, eq=False)
class RoleEstimates:
    """A role's ``bytes`` and ``loss`` (layers, sizes, types), infinite where a type is impossible.

    ``layers`` are those with the role, ascending; ``unit`` is the place of its units in ``UNITS``, None where
    it is not cut and has one size.
    """

    types: tuple[WeightType, ...]
    bytes: Ints
    loss: Floats
    layers: Ints
    unit: int | None = None

    def of(self, layer: int, size: int) -> tuple[Ints, Floats]:
        """Return the bytes and losses (types,) of a layer with the role at a size."""
        row = int(self.layers.searchsorted(layer))
        return self.bytes[row, size], self.loss[row, size]


@dataclass(frozen=True, eq=False)
class PlainBytes:
    """The bytes of tensors without a type in a file, for the choices of sizes.

    Those of ``units`` (layers, n) by kind and number of units, of the rest of each ``layer`` (layers,), and
    at the ``ends``.
    """

    units: list[Ints]
    layer: Ints
    ends: int


class PlaceLosses(NamedTuple):
    """Losses of an uncut place's m matrices by t types, and how they split over units and widths.

    ``error`` (2, m, t) is the loss of whole matrices, and before it the error of matrices that are turned
    into the directions of the stream, relative to the weighted squared weights. ``energy``
    (2, widths, m, 1 + units) has these squares, first of elements without a unit, and for the widest stream
    their share. With a tied head the kept directions are rotated among themselves, which spreads inputs and
    gradients evenly over them: the second row has the squares then.
    """

    error: Floats
    energy: Floats

    def of_kept(self, kept: Floats, width: Width | None, at: int) -> Floats:
        """Return the losses (s, t) where elements are kept, 1 each (s, 1 + units), at a width's place."""
        is_tied = width is not None and width.tied
        loss: Floats = (kept @ self.energy[int(is_tied), at].T) @ self.error[int(width is None)]
        return loss


@dataclass(frozen=True, eq=False)
class TypeEstimates:
    """Bytes and losses of the tensors of a file by type; ``weighed`` is the parent with all its units.

    ``hidden`` are the possible widths of the stream, ascending, the parent's last; ``directions`` (d,) are
    needed where there are others.
    """

    weighed: WeighedChild
    types: tuple[WeightType, ...]
    hidden: tuple[int, ...] = ()
    directions: Directions | None = None
    progress: Progress = silent
    cache: ArrayCache = field(default_factory=ArrayCache)

    @property
    def checkpoint(self) -> Checkpoint:
        return self.weighed.child.parent

    @property
    def parent(self) -> Dimensions:
        return self.weighed.cut.parent

    def in_layers(self, choices: Choices, by: Criterion | None) -> dict[str, RoleEstimates]:
        """Return the estimates of roles in layers, with units chosen by ``by``; without it losses are 0."""
        places: dict[str, list[int]] = {}
        for layer, role in self.weighed.matrices:
            if layer is not None:
                places.setdefault(role, []).append(layer)
        return {role: self._of_role(role, sorted(layers), choices, by) for role, layers in places.items()}

    def outside(self, width: Width | None, *, measured: bool = True) -> dict[str, RoleEstimates]:
        """Return the estimates of embeddings and a head, as one layer with one size each.

        A tied embedding has the losses of both. Unless ``measured`` losses are 0.
        """
        ends = {place: [place] for place in self._places if place[0] is None}
        if HEAD in ends and (HEAD not in self.weighed.matrices if width is None else width.tied):
            ends[EMBEDDING] += ends.pop(HEAD)
        estimates = {}
        for (_, role), uses in ends.items():
            kinds = self.candidates((None, role))
            sizes, possible = self._bytes((None, role), np.zeros(1, np.int64), kinds, width)
            loss = np.zeros((1, len(kinds)))
            for use in uses if measured else ():
                loss += self.measured[use].of_kept(np.ones((1, 1)), width, self._at(width))
            losses = np.where(possible, loss, np.inf)
            estimates[role] = RoleEstimates(kinds, sizes[None], losses[None], np.zeros(1, np.int64))
        return estimates

    def plain(self, choices: Choices) -> PlainBytes:
        depth, hidden = self.checkpoint.layout.depth, self._hidden(choices.width)
        units = [np.zeros((depth, len(counts)), np.int64) for counts in choices.units]
        layer, ends = np.zeros(depth, np.int64), 0
        for along, number, dtype in self._plain:
            size = BY_NAME[dtype].size
            rest = size(int(np.prod(along.shaped(0, hidden))))
            if number is None:
                ends += rest
                continue
            layer[number] += rest
            if along.unit is not None:
                counts = choices.units[along.unit]
                units[along.unit][number] += [
                    size(int(np.prod(along.shaped(n, hidden)))) - rest for n in counts
                ]
        return PlainBytes(units, layer, ends)

    @cached_property
    def _plain(self) -> list[tuple[UnitsAlong, int | None, str]]:
        """The units along each piece without a chosen type, with its layer and stored type."""
        return [
            (units_along(stack, piece, self.parent), stack.place[0], dtype)
            for stack, piece, dtype in stored_pieces(self.weighed.child)
            if piece.name not in self.weighed.names
        ]

    def rows(self, sizes: Iterable[Choices]) -> RolesByLength:
        """Return the roles of matrices by the lengths that their rows have with any of these sizes."""
        roles: dict[int, dict[str, None]] = {}
        chosen = list(sizes)
        for (_, role), matrices in sorted(self.weighed.matrices.items(), key=lambda each: each[0][0] is None):
            for along in map(self.weighed.along, matrices):
                for choices in chosen:
                    for n in (0,) if along.unit is None else choices.units[along.unit]:
                        length = along.shaped(n, self._hidden(choices.width))[COLUMNS]
                        roles.setdefault(length, {})[role] = None
        return {length: tuple(roles[length]) for length in sorted(roles)}

    def candidates(self, place: Place) -> tuple[WeightType, ...]:
        """Return the types that a place may have for some length of its rows, the largest first."""
        return types_of_any_rows(self.checkpoint, self.types, self._of(place)[0].stack.first.source)

    def able(self, weighed: WeighedChild, place: Place) -> tuple[WeightType, ...]:
        """Return the types that a place of a child may have: those that fit all of its pieces."""
        pairs = ((matrix.stack.first.source, matrix.columns) for matrix in weighed.matrices[place])
        every = [types_of_rows(self.checkpoint, self.types, *pair) for pair in pairs]
        return tuple(kind for kind in every[0] if all(kind in other for other in every))

    def options(
        self, weighed: WeighedChild, place: Place, kinds: Sequence[WeightType] | None = None
    ) -> tuple[Sequence[WeightType], Options]:
        """Return the possible types of a place of a child, or these ``kinds``, with bytes and losses.

        Losses are those of the parent where the place has its numbers.
        """
        kinds, sizes = kinds or self.able(weighed, place), weighed.sizes
        if not weighed.is_as_stored(place):
            return kinds, Options(place, sizes(place, kinds), weighed.losses(place, kinds).sum((0, 1)))
        at = [self.candidates(place).index(kind) for kind in kinds]
        uses: list[Place] = [(place[0], use) for use in weighed.uses(place)]
        losses = np.asarray(sum(self.measured[use].error[1].sum(0)[at] for use in uses))
        return kinds, Options(place, sizes(place, kinds), losses)

    @property
    def _places(self) -> list[Place]:
        """The places of the file, and the head where it is the embedding."""
        whole = self.weighed
        uses = whole.uses(EMBEDDING) if EMBEDDING in whole.matrices else ()
        return list(dict.fromkeys([*whole.matrices, *((None, use) for use in uses)]))

    @cached_property
    def measured(self) -> dict[Place, PlaceLosses]:
        places = self._places
        step = Counted(self.progress, "rounding every matrix to every type", len(places))
        results = {}
        for place in places:
            row = self.cache.once("-".join(map(str, place)), partial(self._measure, place))
            results[place] = PlaceLosses(**row)
            step()
        return results

    def _measure(self, place: Place) -> Arrays:
        kinds, every, weighed = self.candidates(place), self._of(place), self.weighed
        of_file = every[0].stack.place
        use = weighed.uses(of_file).index(place[1])
        units, narrower = self._along(of_file).whole, self.hidden[:-1]
        energy = np.zeros((2, 1 + len(narrower), len(every), 1 + units))
        error = np.zeros((2, len(every), len(kinds)))
        error[1] = weighed.losses(of_file, kinds)[use]
        for row, matrix in enumerate(every):
            along, sampled = weighed.along(matrix), np.zeros((2, len(kinds)))
            for number, values in enumerate(matrix.values()):
                part = weighed.parts(matrix, number)[use]
                energy[:, -1, row] += _by_unit(values, part, along, number)
                if narrower and along.stream is not None:
                    turned = self._turned(place, values, part)
                    energy[:, :-1, row] += _of_widths(*turned, along, number, narrower)
                    sampled += self._errors(*turned, kinds, matrix.count)
            energy[:, -1, row] /= np.maximum(energy[:, -1, row].sum(-1, keepdims=True), 1e-300)
            error[0, row] = sampled[0] / np.maximum(sampled[1], 1e-300)
            if along.stream is None:
                energy[:, :-1, row], error[0, row] = energy[:, -1:, row], error[1, row]
        return {"error": error, "energy": energy}

    def _turned(self, place: Place, values: Values, moments: MatrixMoments) -> tuple[Values, MatrixMoments]:
        assert self.directions is not None
        layer, role = place
        turned = self.directions.matrix(values, role, layer, self.checkpoint)
        return turned, self.directions.moments(moments, role, layer, self.checkpoint)

    def _errors(
        self, values: Values, moments: MatrixMoments, kinds: Sequence[WeightType], count: int
    ) -> Floats:
        """Return the weighted squared errors of some rows by type, and their weighted squares, (2, t)."""
        taken = measured_rows(count, *values.shape)
        importances, sums = importances_of([moments]), np.zeros((2, len(kinds)))
        weights = moments.factor * moments.gradients[taken]
        for place, some, errors in rounding(values[taken], kinds, importances, self.weighed.threads):
            inputs = moments.inputs[: some.shape[1]]
            sums[:, place] = [
                weights @ (np.square(each, dtype=np.float64) @ inputs) for each in (errors, some)
            ]
        return sums

    def _of_role(
        self, role: str, layers: Sequence[int], choices: Choices, by: Criterion | None
    ) -> RoleEstimates:
        places: list[Place] = [(layer, role) for layer in layers]
        unit = self._along(places[0]).unit
        counts = np.zeros(1, np.int64) if unit is None else np.array(choices.units[unit])
        kinds = from_largest({kind for place in places for kind in self.candidates(place)})
        sizes, losses = (np.zeros((len(places), len(counts), len(kinds)), kind) for kind in (np.int64, float))
        for row, place in enumerate(places):
            sizes[row], possible = self._bytes(place, counts, kinds, choices.width)
            if by is not None:
                losses[row] = self._losses(place, counts, kinds, by, choices.width)
            losses[row][~possible] = np.inf
        return RoleEstimates(kinds, sizes, losses, np.array(layers), unit)

    def _losses(
        self, place: Place, counts: Ints, kinds: Sequence[WeightType], by: Criterion, width: Width | None
    ) -> Floats:
        """Return the losses (s, t) of a place for numbers of units chosen by ``by``."""
        layer, _ = place
        along, kept = self._along(place), np.ones((len(counts), 1))
        assert layer is not None
        if along.unit is not None:
            units = kept_units(by, layer, UNITS[along.unit].name, counts, along.whole)
            kept = np.hstack([kept, units])
        losses, able = self.measured[place].of_kept(kept, width, self._at(width)), self.candidates(place)
        every = np.full((len(counts), len(kinds)), np.inf)
        for column, kind in enumerate(kinds):
            if kind in able:
                every[:, column] = losses[:, able.index(kind)]
        return every

    def _bytes(
        self, place: Place, counts: Ints, kinds: Sequence[WeightType], width: Width | None
    ) -> tuple[Ints, Bools]:
        """Return the bytes (s, t) of a place by number of units and type, and which are possible."""
        sizes = np.zeros((len(counts), len(kinds)), np.int64)
        possible = np.ones(sizes.shape, np.bool_)
        for matrix in self._of(place):
            along, source = self.weighed.along(matrix), matrix.stack.first.source
            shapes = [along.shaped(count, self._hidden(width)) for count in counts.tolist()]
            lengths = {k for _, _, k in shapes}
            able = {k: types_of_rows(self.checkpoint, self.types, source, k) for k in lengths}
            sizes += [[kind.size(k) * n * m for kind in kinds] for m, n, k in shapes]
            possible &= [[kind in able[k] for kind in kinds] for _, _, k in shapes]
        return sizes, possible

    def _of(self, place: Place) -> Sequence[FileMatrix]:
        """Return the matrices of a place; of a tied head those of the embedding."""
        return self.weighed.matrices.get(place) or self.weighed.matrices[EMBEDDING]

    def _at(self, width: Width | None) -> int:
        return -1 if width is None else self.hidden.index(width.hidden)

    def _hidden(self, width: Width | None) -> int:
        return self.parent.hidden if width is None else width.hidden

    def _along(self, place: Place) -> UnitsAlong:
        """Return the units along the first piece of a place; ``ValueError`` where others have other units."""
        first, *others = map(self.weighed.along, self._of(place))
        if any(other.unit != first.unit for other in others):
            raise ValueError(f"{place[1]!r} has pieces with and without units, whose types are not planned")
        return first


def kept_units(by: Criterion, layer: int, kind: str, counts: Ints, whole: int) -> Floats:
    """Return 1 for each unit that a number of units keeps, 0 for others, (sizes, units)."""
    kept = np.ones((len(counts), whole))
    for place, count in enumerate(counts.tolist()):
        if count < whole:
            kept[place] = 0.0
            kept[place, by.choose(layer, kind, count)] = 1.0
    return kept


def _of_widths(
    values: Values, moments: MatrixMoments, along: UnitsAlong, number: int, widths: Sequence[int]
) -> Floats:
    """Return the loss of a matrix along directions by unit and width, without error, (2, widths, 1 + units).

    In the second row inputs and gradients are spread evenly over the first directions.
    """
    is_written = along.stream == ROWS
    stream = moments.gradients if is_written else moments.inputs
    ones = np.ones(len(stream))
    evenly = replace(moments, gradients=ones) if is_written else replace(moments, inputs=ones)
    means = (stream.cumsum() / np.arange(1, len(stream) + 1))[np.array(widths) - 1]
    separately, spread = (_by_unit(values, each, along, number, widths) for each in (moments, evenly))
    return 0.5 * np.stack([separately, spread * means[:, None]])


def _by_unit(
    values: Values, moments: MatrixMoments, along: UnitsAlong, number: int, widths: Sequence[int] = ()
) -> Floats:
    """Return f E[G_r^2] w_rc^2 E[x_c^2] of a matrix (n, k), summed by unit, (widths, 1 + units).

    Elements without a unit come first. Each row counts the first components of the stream, as many as one of
    the ``widths``; without widths there is one row for all. ``number`` is that of the matrix in its tensor.
    """
    across = along.stream if widths else ROWS if along.axis == COLUMNS else COLUMNS
    rows, columns = moments.gradients, moments.inputs
    lines, outer, inner = (values.T, columns, rows) if across == ROWS else (values, rows, columns)
    scale = float(inner.max()) or 1.0  # small numbers vanish in float32
    weights, ends = (inner / scale).astype(np.float32), np.array(widths, np.int64) - 1
    sums = np.empty((len(lines), max(1, len(ends))))
    for start in range(0, len(lines), ROWS_AT_ONCE):
        squares = np.square(lines[start : start + ROWS_AT_ONCE])
        sums[start : start + ROWS_AT_ONCE] = (
            np.add.accumulate(squares * weights, axis=1, dtype=np.float64)[:, ends]
            if widths
            else (squares @ weights)[:, None]
        )
    sums *= (moments.factor * scale * outer)[:, None]
    units = np.full(len(lines), -1) if along.unit is None else along.numbers
    if along.axis == MATRICES and along.unit is not None:
        units = np.full(len(lines), units[number])
    return np.stack([np.bincount(units + 1, column, 1 + along.whole) for column in sums.T])
