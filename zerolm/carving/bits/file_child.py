"""A child whose matrices have types in the form of its file: split, transposed, by expert.

All matrices of a layer's experts are one tensor of the file. All pieces of a tensor that is fused in the
checkpoint have one type. The stream is the parent's.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any, Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from zerolm.architecture import Floats, Ints
from zerolm.carving.bits.estimates import importances_of, loss_of_rows, rows_of_weights, spread_rows
from zerolm.carving.bits.file_moments import LAYER_EMBEDDING, GradientMoments
from zerolm.carving.bits.file_units import COLUMNS, MATRICES, ROWS, UnitsAlong, units_along
from zerolm.carving.bits.kernels import Values, quantised, rounded, sum_of_squares
from zerolm.carving.bits.options import Options
from zerolm.checkpoints.gguf.dequantise import dequantised
from zerolm.checkpoints.replaced import ReplacedTensor
from zerolm.checkpoints.weight_types import BY_NAME, WeightType
from zerolm.children.child_tensors import Child
from zerolm.children.gguf.file_tensors import FileMatrix, entries, matrices
from zerolm.children.verify import outputs
from zerolm.networks.blocks import Blocks
from zerolm.networks.compute import computed
from zerolm.networks.mapped import assembled, is_in_parts, put_tensors
from zerolm.networks.opener import mapped_model
from zerolm.networks.roles import body_prefix, layer_list, places_of
from zerolm.networks.stream import Stream
from zerolm.passes.matrix_moments import MatrixMoments, Place, outside_layers
from zerolm.planning.sensitivity import Loss
from zerolm.repairing.walk import Absent
from zerolm.units.kept_units import Cut, LayerCut
from zerolm.units.pruning import Repaired, carved_layer
from zerolm.units.within_layers import NAMES

MOST_ROWS: Final = 1024
WEIGHTS: Final = 1 << 18
"""Errors are measured on ``MOST_ROWS`` rows of a tensor, evenly spread, or on fewer with about ``WEIGHTS``
weights."""
FEWEST: Final = 4
"""Least number of measured rows of each matrix in a tensor of many."""
Types = Mapping[Place, str]


@dataclass(frozen=True, eq=False)
class WeighedFile:
    """A child, with the ``moments`` of the matrices of its uncut file by name.

    Without tokens there are no moments, and errors count relative to the weights.
    """

    child: Child
    moments: Mapping[str, list[GradientMoments]] | None
    threads: int = 1

    @property
    def cut(self) -> Cut:
        return self.child.cut

    @cached_property
    def whole(self) -> WeighedFile:
        """The same without a cut and without repair."""
        if self.cut.is_whole and self.child.weights is None:
            return self
        return WeighedFile(Child(self.child.parent, Cut.whole(self.cut.parent)), self.moments, self.threads)

    @cached_property
    def matrices(self) -> dict[Place, tuple[FileMatrix, ...]]:
        """The matrices whose types are chosen, by the parent's layer and the role of the stored tensor."""
        by_place: dict[Place, tuple[FileMatrix, ...]] = {}
        ends = outside_layers(predicts=self.child.parent.family.task == "next")
        for matrix in matrices(self.child):
            layer, role = place = matrix.stack.place
            if layer is not None or role in (*ends, LAYER_EMBEDDING):
                by_place[place] = (*by_place.get(place, ()), matrix)
        return by_place

    @cached_property
    def _uncut(self) -> dict[str, FileMatrix]:
        """The matrices of the uncut file by the names of this one's."""
        pairs = ((self.matrices[place], self.whole.matrices[place]) for place in self.matrices)
        return {one.name: other for pair in pairs for one, other in zip(*pair, strict=True)}

    @cached_property
    def _along(self) -> dict[tuple[object, ...], UnitsAlong]:
        """The units along the uncut matrices so far; those of a role and shape are alike in all layers."""
        return {}

    def along(self, matrix: FileMatrix) -> UnitsAlong:
        """Return the units along a matrix of an uncut file."""
        first = matrix.stack.first
        key = first.role, first.info.shape, matrix.name.split(".", 2)[-1]  # without the number of the layer
        if key not in self._along:
            self._along[key] = units_along(matrix.stack, matrix.piece, self.cut.parent)
        return self._along[key]

    def is_as_stored(self, place: Place) -> bool:
        """Return whether the tensors of a place have all numbers of the parent's."""
        tensors = (tensor for matrix in self.matrices[place] for tensor in matrix.stack.tensors)
        return not any(tensor.indices or tensor.source in self.child.new for tensor in tensors)

    @cached_property
    def plain_bytes(self) -> int:
        """The bytes of all tensors of the file that have no chosen type."""
        names = {matrix.name for every in self.matrices.values() for matrix in every}
        return sum(tensor.bytes for tensor in entries(self.child) if tensor.name not in names)

    def parts(self, matrix: FileMatrix, number: int) -> list[MatrixMoments]:
        """Return the moments of one matrix of a tensor; a tied embedding has two, its own and the head's."""
        if self.moments is None:
            return [MatrixMoments(np.ones(matrix.columns), np.ones(matrix.rows), 1.0)]
        uncut, layer = self._uncut[matrix.name], matrix.stack.first.kept
        along = self.whole.along(uncut)
        if layer is None or along.unit is None:
            return [each.of(number) for each in self.moments[uncut.name]]
        kept = along.kept(layer[NAMES[along.unit]])
        every = [each.of(int(kept[number]) if along.axis == MATRICES else number)
                 for each in self.moments[uncut.name]]  # fmt: skip
        return [
            replace(
                each,
                inputs=each.inputs[kept] if along.axis == COLUMNS else each.inputs,
                gradients=each.gradients[kept] if along.axis == ROWS else each.gradients,
            )
            for each in every
        ]

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

    def losses(self, place: Place, types: tuple[WeightType, ...]) -> Options:
        """Return the bytes and the loss of the stored tensors of a place by type."""
        return Options(place, self.sizes(place, types), self.losses_by_matrix(place, types).sum(0))

    def sizes(self, place: Place, types: Sequence[WeightType]) -> Ints:
        """Return the bytes of the stored tensors of a place by type, (t,)."""
        every = self.matrices[place]
        return np.array([sum(size_of(matrix, kind) for matrix in every) for kind in types], np.int64)

    def losses_by_matrix(self, place: Place, types: tuple[WeightType, ...]) -> Floats:
        """Return the loss of each matrix of a place by type, (m, t)."""
        losses, whole = np.zeros((len(self.matrices[place]), len(types))), 0.0
        for row, matrix in enumerate(self.matrices[place]):
            for number, values in enumerate(matrix.values()):
                losses[row] += self._losses(matrix, number, values, types)
                whole += sum_of_squares(values) if self.moments is None else 0.0
        return losses / max(whole, 1e-300) if self.moments is None else losses

    def _losses(
        self, matrix: FileMatrix, number: int, values: Values, types: tuple[WeightType, ...]
    ) -> NDArray[np.float64]:
        """Return the loss of one matrix of a tensor by type, from the errors of some rows."""
        most = rows_of_weights(MOST_ROWS, matrix.columns, WEIGHTS)
        taken = spread_rows(matrix.rows, max(-(-most // matrix.count), FEWEST))
        parts = [part for part in self.parts(matrix, number) if part.gradients.sum() > 0.0]
        losses, importances = np.zeros(len(types)), self.importances(matrix, number)
        for place, kind in enumerate(types if parts else ()):
            columns = matrix.columns // kind.weights * kind.weights  # all, where the type fits
            if not columns:
                continue
            some = np.ascontiguousarray(values[taken, :columns])
            weighing = None if importances is None else importances[:columns]
            errors = np.square(rounded(some, kind, weighing, self.threads) - some, dtype=np.float64)
            losses[place] = sum(loss_of_rows(errors, taken, part) for part in parts)
        return losses

    def energies(self, place: Place) -> tuple[Floats, Floats]:
        """Return by matrix of an uncut place the shares of units (m, units) in its squares, and the rest's.

        Squares are weighted by the moments. A place without units has the rest alone, of 1.
        """
        shares, rests = [], []
        for matrix in self.matrices[place]:
            along = self.along(matrix)
            if along.unit is None:
                shares.append(np.zeros(0))
                rests.append(1.0)
                continue
            totals = np.zeros(along.whole + 1)
            for number, values in enumerate(matrix.values()):
                squares = np.square(values)
                for part in self.parts(matrix, number):
                    sums = part.factor * weighted_sums(squares, part, by_column=along.axis == COLUMNS)
                    numbers = along.numbers
                    if along.axis == MATRICES:
                        numbers, sums = numbers[[number]], sums.sum(keepdims=True)
                    totals += np.bincount(numbers + 1, sums, len(totals))
            totals /= totals.sum() or 1.0
            shares.append(totals[1:])
            rests.append(float(totals[0]))
        return np.array(shares), np.array(rests)

    def bytes_of(self, types: Types) -> int:
        """Return the bytes of all matrices with these types."""
        return sum(
            size_of(matrix, BY_NAME[types[place]])
            for place, every in self.matrices.items()
            for matrix in every
        )

    @property
    def places(self) -> Collection[Place]:
        """The stored tensors whose types are chosen."""
        return self.matrices

    def holds(self, kind: WeightType) -> bool:
        """Return whether a type fits the rows of all matrices."""
        return all(kind.holds(matrix.columns) for every in self.matrices.values() for matrix in every)

    def typed(self, types: Types) -> TypedFile:
        """Return the child with these types."""
        return TypedFile(self, types)


def weighted_sums(squares: Values, moments: MatrixMoments, *, by_column: bool) -> Floats:
    """Return gradients_r inputs_c w_rc^2 of squares (n, k), summed by row, (n,), or by column, (k,)."""
    rows, columns = moments.gradients, moments.inputs
    along, across = (columns, rows) if by_column else (rows, columns)
    scale = float(across.max()) or 1.0  # small numbers vanish in float32
    weights = (across / scale).astype(np.float32)
    return scale * along * np.asarray(weights @ squares if by_column else squares @ weights, np.float64)


def size_of(matrix: FileMatrix, kind: WeightType) -> int:
    """Return the bytes of a tensor of a file in a type."""
    return kind.size(matrix.columns) * matrix.rows * matrix.count


@dataclass(frozen=True, eq=False)
class TypedFile:
    """A child whose file has these ``types``."""

    weighed: WeighedFile
    types: Types

    @property
    def bytes(self) -> int:
        """The bytes of all weights, including norms and biases."""
        return self.weighed.plain_bytes + self.weighed.bytes_of(self.types)

    def in_file(self, matrix: FileMatrix) -> NDArray[Any]:
        """Return the rows of all matrices of a tensor in its type, (m x n, bytes of a row)."""
        return np.concatenate(list(self.encoded(matrix)))

    def encoded(self, matrix: FileMatrix, expert: int | None = None) -> Iterator[NDArray[Any]]:
        """Yield the rows of each matrix of a tensor, or of one expert's, in its type, (n, bytes of a row)."""
        kind, threads = self.kind(matrix), self.weighed.threads
        for number, values in enumerate(matrix.values(expert), expert or 0):
            yield quantised(values, kind, self.weighed.importances(matrix, number), threads)

    def kind(self, matrix: FileMatrix) -> WeightType:
        """Return the type of a tensor of the file."""
        return BY_NAME[self.types[matrix.stack.place]]

    def rounded(self, matrix: FileMatrix, expert: int | None = None) -> Iterator[Values]:
        """Yield each matrix of a tensor, or that of one expert, as read back, (n, k)."""
        kind = self.kind(matrix)
        return (dequantised(rows, kind) for rows in self.encoded(matrix, expert))

    def tensors(self, layer: int | None) -> dict[str, Callable[[], Values]]:
        """Return by name the stored tensors of a layer, or outside the layers, as read back and cut."""
        pieces: dict[str, list[tuple[FileMatrix, int | None]]] = {}
        places = (place for place in self.types if place[0] == layer)
        for matrix in (matrix for place in places for matrix in self.weighed.matrices[place]):
            for number, tensor in enumerate(matrix.stack.tensors):
                expert = number if tensor.slot.expert is not None else None
                pieces.setdefault(tensor.source, []).append((matrix, expert))
        return {name: partial(self._read_back, name, every) for name, every in pieces.items()}

    def _read_back(self, name: str, every: list[tuple[FileMatrix, int | None]]) -> Values:
        """Return a tensor of the child with the numbers of its pieces in the file."""
        tensor = next(tensor for tensor in every[0][0].stack.tensors if tensor.source == name)
        stored = np.empty(tensor.shape, np.float32)
        for matrix, expert in every:
            if expert is None and matrix.is_by_expert:
                for number, values in enumerate(self.rounded(matrix)):
                    matrix.put(stored[number : number + 1], values[None])
            else:
                values = np.stack(list(self.rounded(matrix, expert)))
                matrix.put(stored if expert is None else stored[None], values)
        return stored

    def read_back(self, blocks: Blocks, repaired: Repaired) -> FileReadBack:
        """Return the network as read back, with the batches and compute settings of some blocks."""
        return FileReadBack(blocks, self, repaired)

    def loss(self, loss: Loss, repaired: Repaired) -> float:
        """Return the loss of the network as read back."""
        network = self.read_back(loss.blocks, repaired)
        return loss.of_network(network.ends, network.module)

    def output(self, blocks: Blocks, repaired: Repaired) -> Tensor:
        """Return the output of the network as read back for the first batch."""
        network = self.read_back(blocks, repaired)
        states = Stream(network.ends, network.module).before(self.weighed.cut.parent.depth)
        return outputs(network.ends.finish(0, states[0]))


class FileReadBack:
    """The network of a typed file on the batches of the parent's blocks, a layer in memory at a time."""

    def __init__(self, blocks: Blocks, typed: TypedFile, repaired: Repaired) -> None:
        self.blocks, self.typed, self.repaired = blocks, typed, repaired
        self.cut = typed.weighed.cut
        self.kept = {kept.layer: kept for kept in self.cut.layers}

    @cached_property
    def ends(self) -> Blocks:
        """The parent with embeddings and a head as read back."""
        parent = self.typed.weighed.child.parent
        replaced = {
            name: ReplacedTensor.of(parent.tensors[name], read)
            for name, read in self.typed.tensors(None).items()
        }
        checkpoint = replace(parent, tensors={**parent.tensors, **replaced})
        model = computed(mapped_model(checkpoint), self.blocks.compute)
        layers = {id(weight) for weight in layer_list(model).parameters()}
        embedding: nn.Module = model.get_input_embeddings()
        weight = embedding.get_parameter("weight")
        if is_in_parts(weight) and id(weight) not in layers:  # rows of it are looked up
            embedding.weight = nn.Parameter(assembled(weight, torch.float32), requires_grad=False)
            model.tie_weights()
        return Blocks(model, self.blocks.batches)

    def embed(self, index: int) -> Tensor:
        """Return the input of the first layer for a batch, (b, t, d)."""
        return self.ends.embed(index)

    def layer(self, kept: LayerCut) -> nn.Module:
        """Return a kept layer with its matrices as read back."""
        model = self.blocks.model
        module = carved_layer(model, self.cut, kept, self.repaired).module
        place = f"{body_prefix(model)}{places_of(model).modules.layers}.{kept.layer}."
        parameters = {place + name: parameter.data for name, parameter in module.named_parameters()}
        values = {name: torch.from_numpy(read()) for name, read in self.typed.tensors(kept.layer).items()}
        put_tensors(self.typed.weighed.child.parent, values, parameters, body_prefix(model))
        return module

    def module(self, layer: int) -> nn.Module:
        """Return the module in the place of a layer of the parent."""
        return self.layer(self.kept[layer]) if layer in self.kept else Absent()
