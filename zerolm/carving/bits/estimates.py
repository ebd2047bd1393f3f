"""The loss of every possible type of a matrix, at every size that a cut allows.

For a matrix W with inputs x and output gradients G, rounding costs 1/2 f sum_rc E[G_r^2] e_rc^2 E[x_c^2]
(``zerolm.passes.matrix_moments``). The errors of a type are a share of the weights, nearly constant within a
matrix. So the ratio of the sum with e to that with w is measured once, on some rows. The sum with w splits
over units, and over the directions of a narrower stream, so that adding gives the loss of a matrix of any
size.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from zerolm.architecture import Floats, Ints
from zerolm.carving.bits.kernels import Values, rounded, sum_of_squares
from zerolm.carving.bits.options import Options
from zerolm.carving.bits.plain_bytes import PlainBytes
from zerolm.carving.bits.row_blocks import (
    WRITTEN,
    first_part,
    roles_of,
    types_of_any_rows,
    types_of_rows,
)
from zerolm.checkpoints import Checkpoint
from zerolm.checkpoints.weight_types import WeightType
from zerolm.families.family import OUTPUT_ROLES
from zerolm.io.cache import ArrayCache
from zerolm.passes.fisher import Fisher
from zerolm.passes.matrix_moments import EMBEDDING, UNTIED, MatrixMoments, Place, outside_layers
from zerolm.planning.part_costs import Choices
from zerolm.progress import Counted, Progress, silent
from zerolm.units.importance.criterion import Criterion
from zerolm.units.kept_units import Dimensions, dimensions
from zerolm.units.layer_unit import LayerUnit
from zerolm.units.stream.maps import stored_gain
from zerolm.units.stream.narrowing import Basis, Width, energies, norm_before
from zerolm.units.within_layers import UNITS, unit_of_role

SAMPLED: Final = 128
"""Rows of a matrix whose errors are measured; of the embedding and the head those with the largest
gradients."""
SAMPLED_WEIGHTS: Final = 1 << 17
FEWEST_ROWS: Final = 64
"""Fewer long rows are measured, with about ``SAMPLED_WEIGHTS`` weights, but at least this number of rows."""
ROWS_AT_ONCE: Final = 1024


@dataclass(frozen=True, eq=False)
class Directions:
    """A basis of the stream, as columns of ``vectors`` (d, d), with second moments along each, (d,).

    ``inputs`` are those of the normalised stream in the layers, ``last`` those before the head. ``gradients``
    are those of the gradients in the outputs that are added to the stream, scaled to a trace of 1; ``shares``
    (layers, 2) are the total squared gradients of ``o`` and ``down`` of a layer.
    """

    vectors: Floats
    inputs: Floats
    last: Floats
    gradients: Floats
    shares: Floats

    @classmethod
    def of(cls, basis: Basis, fisher: Fisher) -> Directions:
        """Return the moments along a basis, from the Fisher information."""
        vectors, whole = basis.vectors, len(basis.vectors)
        inputs, last = (shares_along(vectors, each) * whole for each in (fisher.stream["energy"], basis.last))
        return cls(vectors, inputs, last, shares_along(vectors, fisher.outputs), total_gradients(fisher))


def shares_along(vectors: Floats, moments: Floats) -> Floats:
    """Return the share of each direction in second ``moments``, (k,), clamped to at least 0."""
    return np.maximum(energies(vectors, moments), 0.0)


def total_gradients(fisher: Fisher) -> Floats:
    """Return the total squared gradients of the outputs of ``o`` and ``down``, (layers, 2)."""
    return np.asarray(fisher.shares * float(np.trace(fisher.outputs)))


@dataclass(frozen=True, eq=False)
class Weighed:
    """A matrix's ``energy`` (units, widths), its weighted squared weights, and error ``ratio`` (types,).

    The widths are those of the stream, the whole last; the whole has a separate ratio, ``ratio_whole``. With
    a tied head the kept directions are rotated among themselves, which spreads inputs and gradients evenly
    over them: ``turned`` (units, widths) are the energies then.
    """

    energy: Floats
    turned: Floats
    ratio: Floats
    ratio_whole: Floats

    def at_width(self, width: Width | None, at: int) -> tuple[Floats, Floats]:
        """Return the energies (units,) and ratios for a width with the place ``at``."""
        if width is None:
            return self.energy[:, at], self.ratio_whole
        return (self.turned if width.tied else self.energy)[:, at], self.ratio


@dataclass(frozen=True, eq=False)
class TypeEstimates:
    """Bytes and losses of the matrices of a checkpoint by type, for each of the ``hidden`` widths.

    ``moments`` has the moments of each matrix; without it errors of a matrix count relative to its weights.
    ``hidden`` ascend, the parent's last; ``directions`` are needed where there are others.
    """

    checkpoint: Checkpoint
    types: tuple[WeightType, ...]
    moments: Mapping[Place, MatrixMoments] | None
    hidden: tuple[int, ...]
    directions: Directions | None = None
    progress: Progress = silent
    cache: ArrayCache = field(default_factory=ArrayCache)

    @cached_property
    def parent(self) -> Dimensions:
        return dimensions(self.checkpoint)

    def roles(self, unit: LayerUnit) -> tuple[str, ...]:
        """Return the roles of the matrices of some units, ``q+k+v`` where they are fused."""
        return roles_of(self.checkpoint, unit.matrices)

    @property
    def _ends(self) -> tuple[str, ...]:
        """The roles outside the layers that have moments."""
        return outside_layers(predicts=self.checkpoint.family.task == "next")

    def candidates(self, name: str) -> tuple[WeightType, ...]:
        """Return the types that a tensor of the parent may have for some length of its rows."""
        return types_of_any_rows(self.checkpoint, self.types, name)

    def of_rows(self, name: str, row: int) -> tuple[WeightType, ...]:
        """Return the types that a tensor of the parent may have with rows of this length."""
        return types_of_rows(self.checkpoint, self.types, name, row)

    def options(
        self, weighed: Any, place: Place, kinds: Sequence[WeightType] | None = None
    ) -> tuple[Sequence[WeightType], Options]:
        """Return the possible types of a child's matrix, or these ``kinds``, with bytes and losses."""
        if kinds is None:
            tensor = weighed.tensors[place]
            kinds = self.of_rows(tensor.source, tensor.shape[1])
        return kinds, weighed.losses(place, tuple(kinds))

    def in_layers(self, choices: Choices, by: Criterion | None) -> dict[str, RoleEstimates]:
        """Return the estimates of all roles in layers for the choices of sizes, with units chosen by ``by``.

        Without ``by`` losses are 0 where a type is possible.
        """
        return {
            role: self.of_layers(choices.width, role, np.array(choices.units[place]), by)
            for place, unit in enumerate(UNITS)
            for role in self.roles(unit)
        }

    def of_layers(self, width: Width | None, role: str, counts: Ints, by: Criterion | None) -> RoleEstimates:
        """Return the estimates of a role in all layers, for numbers of units (s,) chosen by ``by``."""
        unit, depth = unit_of_role(role), self.parent.depth
        types, sizes, possible = self._sizes(width, role, counts)
        losses = np.zeros((depth, len(counts), len(types)))
        for layer in range(depth if by is not None else 0):
            assert by is not None
            measured = self.measured[layer, role]
            kept = kept_units(by, layer, unit.name, counts, len(measured.energy))
            energy, ratio = measured.at_width(width, self.hidden.index(self._hidden(width)))
            losses[layer] = np.outer(kept @ energy, ratio)
        losses = np.where(possible, losses, np.inf)
        every = np.broadcast_to(sizes, losses.shape)
        return RoleEstimates(types, every, losses, np.arange(depth), UNITS.index(unit))

    def _sizes(
        self, width: Width | None, role: str, counts: Ints
    ) -> tuple[tuple[WeightType, ...], Ints, NDArray[np.bool_]]:
        """Return the types of a role, its bytes (s, types) by number of units, and which are possible."""
        layout, hidden = self.checkpoint.layout, self._hidden(width)
        in_layer = role not in UNTIED
        name = layout.name(role, 0 if in_layer else None) or layout.name("embedding")
        assert name is not None
        types = self.candidates(name)
        unit = self._unit(role) if in_layer else self.checkpoint.tensors[name].shape[0]
        rows, columns = (hidden, counts * unit) if role in WRITTEN else (counts * unit, hidden)
        across = np.broadcast_arrays(rows, columns, counts)
        return types, *self._bytes(name, across[0], across[1])

    def _bytes(self, name: str, rows: Ints, columns: Ints) -> tuple[Ints, NDArray[np.bool_]]:
        """Return the bytes (s, types) of a tensor cut to these sizes (s,), and a mask of possible types."""
        types, pairs = self.candidates(name), list(zip(rows.tolist(), columns.tolist(), strict=True))
        sizes = np.array([[one.size(column) * row for one in types] for row, column in pairs])
        able = [self.of_rows(name, column) for _, column in pairs]
        return sizes.astype(np.int64), np.array([[one in each for one in types] for each in able])

    def outside(self, width: Width | None, *, measured: bool = True) -> dict[str, RoleEstimates]:
        """Return the estimates of the embedding and of an untied head, as one layer with one size each.

        A tied embedding has the losses of both. Unless ``measured`` losses are 0.
        """
        tied = self.checkpoint.layout.tied if width is None else width.tied
        estimates = {}
        for role in EMBEDDING if tied else self._ends:
            types, sizes, possible = self._sizes(width, role, np.array([1]))
            losses = np.zeros(len(types))
            for part in (self._ends if tied else (role,)) if measured else ():
                at = self.hidden.index(self._hidden(width))
                energy, ratio = self.measured[None, part].at_width(width, at)
                losses += energy[0] * ratio
            estimates[role] = RoleEstimates(
                types, sizes[None], np.where(possible, losses, np.inf)[None], np.zeros(1, np.int64)
            )
        return estimates

    def plain(self, choices: Choices) -> PlainBytes:
        """Return the bytes of tensors without a type for the choices of sizes."""
        return PlainBytes.of(self.checkpoint, choices)

    def _hidden(self, width: Width | None) -> int:
        return self.parent.hidden if width is None else width.hidden

    def _unit(self, role: str) -> int:
        """Return the number of elements of a unit along the role's axis."""
        return sum(self._parts(role))

    def _parts(self, role: str) -> list[int]:
        """Return the number of elements of each part of a unit, in the order in which they are fused."""
        unit = unit_of_role(role)
        return [unit.row(self.parent, part) for part in role.split("+")]

    def _by_unit(self, role: str, rows: int) -> Ints:
        """Return the row order of a fused matrix by unit, where rows are stored by part."""
        parts = self._parts(role)
        units, starts = rows // sum(parts), np.cumsum([0, *parts[:-1]]) * (rows // sum(parts))
        places = [np.arange(units * size).reshape(units, size) + start
                  for size, start in zip(parts, starts, strict=True)]  # fmt: skip
        return np.concatenate(places, axis=1).ravel()

    @cached_property
    def measured(self) -> dict[Place, Weighed]:
        """The energies and ratios of all matrices."""
        depth = self.parent.depth
        places: list[Place] = [
            (layer, role) for layer in range(depth) for unit in UNITS for role in self.roles(unit)
        ]
        places += [(None, role) for role in self._ends]
        step = Counted(self.progress, "rounding every matrix to every type", len(places))
        measured = {}
        for place in places:
            name = "-".join(map(str, place))
            row = self.cache.get(name)
            if row is None:
                result = self._measure(place)
                row = vars(result)
                self.cache.put(name, row)
            measured[place] = Weighed(**row)
            step()
        return measured

    def _measure(self, place: Place) -> Weighed:
        """Return the energies and ratios of a matrix, in the parent's channels and along the directions."""
        layer, role = place
        name = self.checkpoint.layout.name(role, layer) or self.checkpoint.layout.name("embedding")
        assert name is not None
        values, types = self.checkpoint.read(name), self.candidates(name)
        moments = self._moments_of(place, values)
        if "+" in role:
            order = self._by_unit(role, len(values))
            values, moments = values[order], replace(moments, gradients=moments.gradients[order])
        units, is_written = self._units(place, values), role in WRITTEN
        energy, turned = np.zeros((2, units, len(self.hidden)))
        energy[:, -1:] = _energies(
            values, moments.inputs, moments.gradients, units, self.hidden[-1:], across=is_written
        )
        ratio = whole = _ratios(
            values, moments.inputs, moments.gradients, types, largest_gradients=layer is None
        )
        if len(self.hidden) > 1:
            assert self.directions is not None
            along, inputs, rows = self._turned(place, values, moments)
            widths = self.hidden[:-1]
            energy[:, :-1] = _energies(along, inputs, rows, units, widths, across=is_written)
            stream = rows if is_written else inputs
            evenly = np.ones(len(stream))
            pair = (inputs, evenly) if is_written else (evenly, rows)
            turned[:, :-1] = _energies(along, pair[0], pair[1], units, widths, across=is_written)
            turned[:, :-1] *= (stream.cumsum() / np.arange(1, len(stream) + 1))[np.array(widths) - 1]
            ratio = _ratios(along, inputs, rows, types, largest_gradients=layer is None)
        half = 0.5 * moments.factor
        return Weighed(half * energy, half * turned, ratio, whole)

    def _moments_of(self, place: Place, values: Values) -> MatrixMoments:
        if self.moments is None:
            rows, columns = values.shape
            return MatrixMoments(np.ones(columns), np.ones(rows), 1.0 / max(sum_of_squares(values), 1e-300))
        return self.moments[place]

    def _turned(self, place: Place, values: Values, moments: MatrixMoments) -> tuple[Values, Floats, Floats]:
        """Return a matrix along the directions of the stream, with its input and gradient moments there."""
        layer, role = place
        directions = self.directions
        assert directions is not None
        vectors = directions.vectors.astype(np.float32)
        if role in WRITTEN:
            assert layer is not None
            share = directions.shares[layer, OUTPUT_ROLES.index(role)]
            return vectors.T @ values, moments.inputs, directions.gradients * share
        if role == "embedding":
            return values @ vectors, directions.gradients * moments.inputs.sum(), moments.gradients
        gain = stored_gain(self.checkpoint, norm_before(first_part(role)), layer)
        inputs = directions.last if role == "head" else directions.inputs
        return np.asarray((values * gain) @ vectors, np.float32), inputs, moments.gradients

    def _units(self, place: Place, values: Values) -> int:
        layer, role = place
        axis = 1 if role in WRITTEN else 0
        return 1 if layer is None else values.shape[axis] // self._unit(role)


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


def _energies(
    values: Values, inputs: Floats, gradients: Floats, units: int, widths: Sequence[int], *, across: bool
) -> Floats:
    """Return gradients_r inputs_c w_rc^2 summed within each unit and the first components, (units, w).

    Units of a matrix (n, k) are its rows and the stream its columns; with ``across`` the opposite.
    """
    along, weights = (gradients, inputs) if across else (inputs, gradients)
    turned = values.T if across else values
    ends = np.array(widths) - 1
    summed = np.empty((len(turned), len(ends)))
    for start in range(0, len(turned), ROWS_AT_ONCE):
        part = np.square(turned[start : start + ROWS_AT_ONCE]) * along.astype(np.float32)
        columns = np.add.accumulate(part, axis=1, dtype=np.float64)[:, ends]
        summed[start : start + ROWS_AT_ONCE] = columns * weights[start : start + ROWS_AT_ONCE, None]
    total: Floats = summed.reshape(units, -1, len(ends)).sum(1)
    return total


def kept_units(by: Criterion, layer: int, kind: str, counts: Ints, whole: int) -> Floats:
    """Return 1 for each unit that a number of units keeps, 0 for others, (sizes, units)."""
    kept = np.ones((len(counts), whole))
    for place, count in enumerate(counts.tolist()):
        if count < whole:
            kept[place] = 0.0
            kept[place, by.choose(layer, kind, count)] = 1.0
    return kept


def _ratios(
    values: Values, inputs: Floats, gradients: Floats, types: Sequence[WeightType], *, largest_gradients: bool
) -> Floats:
    """Return the weighted squared errors of each type divided by the weighted squared weights, (types,)."""
    most = rows_of_weights(SAMPLED, values.shape[1], SAMPLED_WEIGHTS)
    first = (
        np.argsort(-gradients, kind="stable")[:most] if largest_gradients else spread_rows(len(values), most)
    )
    taken = np.sort(first)
    some, weights = values[taken], gradients[taken]
    return np.array([_ratio(some, inputs, weights, each) for each in types])


def rows_of_weights(most: int, columns: int, weights: int) -> int:
    """Return the number of rows with about ``weights`` weights, between ``FEWEST_ROWS`` and ``most``."""
    return min(most, max(FEWEST_ROWS, weights // columns))


def spread_rows(rows: int, most: int) -> Ints:
    """Return at most ``most`` rows, evenly spread."""
    return np.unique(np.linspace(0, rows - 1, min(rows, most)).round().astype(np.int64))


def _ratio(values: Values, inputs: Floats, gradients: Floats, kind: WeightType) -> float:
    columns = values.shape[1] // kind.weights * kind.weights
    if columns == 0:
        return np.inf
    some, importances = np.ascontiguousarray(values[:, :columns]), inputs[:columns]
    whole = float(gradients @ (np.square(some, dtype=np.float64) @ importances))
    errors = rounded(some, kind, as_importances(importances)) - some
    return float(gradients @ (np.square(errors, dtype=np.float64) @ importances)) / max(whole, 1e-300)


def loss_of_rows(squares: Floats, taken: Ints, moments: MatrixMoments) -> float:
    """Return the loss of a matrix from the squared errors (n, k) of the rows ``taken`` (n,).

    Columns that are left out at the end of the rows count in proportion to their inputs.
    """
    columns = squares.shape[1]
    weights, inputs = moments.gradients[taken], moments.inputs[:columns]
    share = float(weights.sum() / moments.gradients.sum()) or 1.0
    if columns < len(moments.inputs):
        share *= float(inputs.sum() / moments.inputs.sum()) or 1.0
    return 0.5 * moments.factor * float(weights @ (squares @ inputs)) / share


def importances_of(parts: Sequence[MatrixMoments]) -> Values:
    """Return the weights (k,) of squared errors by column of a matrix with these moments."""
    return as_importances(np.asarray(sum(part.gradients.sum() * part.factor * part.inputs for part in parts)))


def as_importances(moments: Floats) -> Values:
    """Return importances (k,) for the quantiser: positive, of mean 1; all 1 where all inputs are 0."""
    mean = float(moments.mean())
    if not mean > 0.0:
        return np.ones(len(moments), np.float32)
    return np.maximum(moments / mean, 1e-6).astype(np.float32)
