"""A child whose matrices get types, in the form of its file: split, transposed, by expert.

All matrices of a layer's experts are one tensor of the file. All pieces of a tensor that is fused in the
checkpoint have one type. For a matrix W with inputs x and output gradients G, rounding costs
1/2 f sum_rc E[G_r^2] e_rc^2 E[x_c^2] (``zerolm.passes.matrix_moments``), from the errors of some rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Final

import numpy as np

from zerolm.architecture import Floats, Ints
from zerolm.carving.bits.directions import Directions
from zerolm.carving.bits.file_moments import LAYER_EMBEDDING, GradientMoments
from zerolm.carving.bits.file_units import COLUMNS, MATRICES, ROWS, UnitsAlong, units_along
from zerolm.carving.bits.kernels import Values, rounded, sum_of_squares
from zerolm.checkpoints.weight_types import BY_NAME, WeightType
from zerolm.children.child_tensors import Child
from zerolm.children.gguf.file_tensors import FileMatrix, entries, matrices
from zerolm.passes.fisher import Fisher
from zerolm.passes.matrix_moments import MatrixMoments, Place, outside_layers
from zerolm.units.kept_units import Cut
from zerolm.units.within_layers import NAMES

Types = Mapping[Place, str]
"""The names of types by the parent's layer and the role; None outside the layers."""
EMBEDDING: Final[Place] = (None, "embedding")
HEAD: Final[Place] = (None, "head")
MOST_ROWS: Final = 1024
WEIGHTS: Final = 1 << 18
FEWEST_ROWS: Final = 64
"""Errors are measured on ``MOST_ROWS`` rows of a tensor, evenly spread, or on fewer with about ``WEIGHTS``
weights, but at least this number."""
FEWEST: Final = 4
"""Least number of measured rows of each matrix in a tensor of many."""


@dataclass(frozen=True, eq=False)
class WeighedChild:
    """A child, with the ``moments`` of the matrices of its uncut file by name.

    Without tokens there are no moments, and errors count relative to the weights. ``fisher`` is needed where
    the stream is narrower. Children of one parent may share the ``uncut`` one.
    """

    child: Child
    moments: Mapping[str, list[GradientMoments]] | None = None
    fisher: Fisher | None = None
    threads: int = 1
    uncut: WeighedChild | None = None

    @property
    def cut(self) -> Cut:
        return self.child.cut

    @cached_property
    def whole(self) -> WeighedChild:
        """The same without a cut and without repair."""
        if self.uncut is not None:
            return self.uncut
        if self.cut.is_whole and self.child.weights is None and self.cut.narrowing is None:
            return self
        return replace(self, child=Child(self.child.parent, Cut.whole(self.cut.parent)))

    @cached_property
    def matrices(self) -> dict[Place, tuple[FileMatrix, ...]]:
        """The matrices whose types are chosen, by the parent's layer and the role of the stored tensor."""
        by_place: dict[Place, tuple[FileMatrix, ...]] = {}
        for matrix in matrices(self.child):
            layer, role = place = matrix.stack.place
            if layer is not None or role in (*self._ends, LAYER_EMBEDDING):
                by_place[place] = (*by_place.get(place, ()), matrix)
        return by_place

    @property
    def _ends(self) -> tuple[str, ...]:
        """The uses of matrices outside the layers that have moments."""
        return outside_layers(predicts=self.child.parent.family.task == "next")

    @cached_property
    def _sources(self) -> dict[str, FileMatrix]:
        """The matrices of the uncut file by the names of this one's; that of a new head is the embedding."""
        whole = self.whole.matrices
        pairs = ((every, whole.get(place) or whole[EMBEDDING]) for place, every in self.matrices.items())
        return {one.name: other for pair in pairs for one, other in zip(*pair, strict=True)}

    @cached_property
    def _along(self) -> dict[tuple[object, ...], UnitsAlong]:
        """The units along the uncut matrices so far; those of a role and shape are alike in all layers."""
        return {}

    def along(self, matrix: FileMatrix) -> UnitsAlong:
        first = matrix.stack.first
        key = first.role, first.info.shape, matrix.name.split(".", 2)[-1]  # without the number of the layer
        if key not in self._along:
            self._along[key] = units_along(matrix.stack, matrix.piece, self.cut.parent)
        return self._along[key]

    def is_as_stored(self, place: Place) -> bool:
        """Return whether the tensors of a place have all numbers of the parent's."""
        tensors = (tensor for matrix in self.matrices[place] for tensor in matrix.stack.tensors)
        return self.child.maps is None and not any(
            tensor.indices or tensor.source in self.child.new for tensor in tensors
        )

    @cached_property
    def plain_bytes(self) -> int:
        """The bytes of all tensors of the file that have no chosen type."""
        return sum(tensor.bytes for tensor in entries(self.child) if tensor.name not in self.names)

    @cached_property
    def names(self) -> frozenset[str]:
        """The file's names of the matrices whose types are chosen."""
        return frozenset(matrix.name for every in self.matrices.values() for matrix in every)

    def uses(self, place: Place) -> tuple[str, ...]:
        """Return the roles of a matrix; a tied embedding has two, its own and the head's."""
        is_tied = place == EMBEDDING and HEAD not in self.matrices
        return self._ends if is_tied else (place[1],)

    def parts(self, matrix: FileMatrix, number: int) -> list[MatrixMoments]:
        """Return the moments of one matrix of a tensor in each of its uses."""
        layer, _ = place = matrix.stack.place
        uses = self.uses(place)
        if self.moments is None:
            return [MatrixMoments(np.ones(matrix.columns), np.ones(matrix.rows), 1.0) for _ in uses]
        source = self._sources[matrix.name]
        every = self.moments[source.name]
        if layer is None:
            whole = self.whole.uses(source.stack.place)
            every = [every[whole.index(use)] for use in uses]
        kept, along = matrix.stack.first.kept, self.whole.along(source)
        if kept is None or along.unit is None:
            moments = [each.of(number) for each in every]
        else:
            moments = [_of_kept(each, number, along, kept[NAMES[along.unit]]) for each in every]
        if self.child.maps is None or along.stream is None:
            return moments
        return [self._along_stream(each, (layer, use)) for each, use in zip(moments, uses, strict=True)]

    def _along_stream(self, moments: MatrixMoments, use: Place) -> MatrixMoments:
        layer, role = use
        narrowing = self.cut.narrowing
        assert narrowing is not None
        turned = self._directions.moments(moments, role, layer, self.child.parent)
        if turned.inputs is moments.inputs or role == "embedding":
            return turned
        inputs = turned.inputs / narrowing.scale**2
        if role == "head" and narrowing.final_gain is not None:
            inputs = inputs * np.square(narrowing.final_gain)
        return replace(turned, inputs=inputs)

    @cached_property
    def _directions(self) -> Directions:
        assert self.fisher is not None
        assert self.cut.narrowing is not None
        return Directions.of(self.cut.narrowing.basis, self.fisher)

    def importances(self, matrix: FileMatrix, number: int) -> Values | None:
        """Return the weights of the squared errors by column of one matrix, (k,); None without tokens."""
        if self.moments is None:
            return None
        return importances_of(self.parts(matrix, number))

    def by_column(self) -> Iterator[tuple[str, Values]]:
        """Yield the importances of each tensor by its name, (m, k)."""
        for every in self.matrices.values():
            for matrix in every:
                rows = [self.importances(matrix, number) for number in range(matrix.count)]
                yield matrix.name, np.stack([row for row in rows if row is not None])

    def sizes(self, place: Place, types: Sequence[WeightType]) -> Ints:
        """Return the bytes of the stored tensors of a place by type, (t,)."""
        every = self.matrices[place]
        return np.array([sum(size_of(matrix, kind) for matrix in every) for kind in types], np.int64)

    def losses(self, place: Place, types: Sequence[WeightType]) -> Floats:
        """Return the losses of a place by use, matrix and type, (u, m, t), for types that fit it."""
        losses, whole = np.zeros((len(self.uses(place)), len(self.matrices[place]), len(types))), 0.0
        for row, matrix in enumerate(self.matrices[place]):
            for number, values in enumerate(matrix.values()):
                losses[:, row] += self._losses(matrix, number, values, types)
                whole += sum_of_squares(values) if self.moments is None else 0.0
        return losses / max(whole, 1e-300) if self.moments is None else losses

    def _losses(self, matrix: FileMatrix, number: int, values: Values, types: Sequence[WeightType]) -> Floats:
        """Return the loss of one matrix of a tensor by use and type, (u, t), from the errors of some rows."""
        taken = measured_rows(matrix.count, matrix.rows, matrix.columns)
        parts = self.parts(matrix, number)
        importances = None if self.moments is None else importances_of(parts)
        losses = np.zeros((len(parts), len(types)))
        used = [(use, part) for use, part in enumerate(parts) if part.gradients.sum() > 0.0]
        for place, _, errors in rounding(values[taken], types if used else (), importances, self.threads):
            squares = np.square(errors, dtype=np.float64)
            for use, part in used:
                losses[use, place] = loss_of_rows(squares, taken, part)
        return losses

    def bytes_of(self, types: Types) -> int:
        return sum(
            size_of(matrix, BY_NAME[types[place]])
            for place, every in self.matrices.items()
            for matrix in every
        )

    def holds(self, kind: WeightType) -> bool:
        return all(kind.holds(matrix.columns) for every in self.matrices.values() for matrix in every)


def _of_kept(every: GradientMoments, number: int, along: UnitsAlong, units: Ints) -> MatrixMoments:
    """Return the moments of one matrix where only some units along it are kept."""
    kept = along.kept(units)
    moments = every.of(int(kept[number]) if along.axis == MATRICES else number)
    return replace(
        moments,
        inputs=moments.inputs[kept] if along.axis == COLUMNS else moments.inputs,
        gradients=moments.gradients[kept] if along.axis == ROWS else moments.gradients,
    )


def size_of(matrix: FileMatrix, kind: WeightType) -> int:
    return kind.size(matrix.columns) * matrix.rows * matrix.count


def rows_measured(columns: int) -> int:
    """Return the number of rows of this length on which the errors of a tensor are measured."""
    return min(MOST_ROWS, max(FEWEST_ROWS, WEIGHTS // columns))


def measured_rows(matrices: int, rows: int, columns: int) -> Ints:
    """Return the rows on which errors are measured in each of ``matrices`` of the same tensor, ascending."""
    return spread_rows(rows, max(-(-rows_measured(columns) // matrices), FEWEST))


def spread_rows(rows: int, most: int) -> Ints:
    """Return at most ``most`` rows, evenly spread."""
    return np.unique(np.linspace(0, rows - 1, min(rows, most)).round().astype(np.int64))


def rounding(
    rows: Values, types: Sequence[WeightType], importances: Values | None, threads: int
) -> Iterator[tuple[int, Values, Values]]:
    """Yield the place of each type, the rows (n, k) as far as they fill its blocks, and their errors."""
    for place, kind in enumerate(types):
        columns = rows.shape[1] // kind.weights * kind.weights  # all, where the type fits
        if columns:
            some = np.ascontiguousarray(rows[:, :columns])
            weights = None if importances is None else importances[:columns]
            yield place, some, rounded(some, kind, weights, threads) - some


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
    """Return the weights (k,) of squared errors by column of a matrix with these moments.

    They are positive, of mean 1; all 1 where all inputs are 0.
    """
    moments = np.asarray(sum(part.gradients.sum() * part.factor * part.inputs for part in parts))
    mean = float(moments.mean())
    if not mean > 0.0:
        return np.ones(len(moments), np.float32)
    return np.maximum(moments / mean, 1e-6).astype(np.float32)
