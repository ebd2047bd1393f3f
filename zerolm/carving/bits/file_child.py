"""An uncut child whose matrices have types in the form of its file: split, transposed, by expert.

Families whose files store matrices differently from their checkpoints get types without cuts. All matrices of
a layer's experts are one tensor of the file. All pieces of a tensor that is fused in the checkpoint have one
type.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any, Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from zerolm.carving.bits.estimates import as_importances, rows_of_weights, spread_rows
from zerolm.carving.bits.file_moments import LAYER_EMBEDDING, GradientMoments
from zerolm.carving.bits.kernels import Values, quantised, rounded, sum_of_squares
from zerolm.carving.bits.options import Options
from zerolm.checkpoints import Checkpoint
from zerolm.checkpoints.gguf.dequantise import dequantised
from zerolm.checkpoints.replaced import ReplacedTensor
from zerolm.checkpoints.weight_types import BY_NAME, WeightType
from zerolm.children.child_tensors import Child
from zerolm.children.gguf.file_tensors import FileMatrix, entries, matrices
from zerolm.children.verify import outputs
from zerolm.networks.blocks import Blocks
from zerolm.networks.compute import computed
from zerolm.networks.mapped import assembled, is_in_parts
from zerolm.networks.opener import mapped_model
from zerolm.networks.roles import layer_list
from zerolm.passes.matrix_moments import MatrixMoments, Place, outside_layers
from zerolm.planning.sensitivity import Loss
from zerolm.units.kept_units import Cut
from zerolm.units.pruning import Repaired

ROWS: Final = 1024
WEIGHTS: Final = 1 << 18
"""Errors are measured on ``ROWS`` rows of a tensor, evenly spread, or on fewer with about ``WEIGHTS``
weights."""
FEWEST: Final = 4
"""Least number of measured rows of each matrix in a tensor of many."""
Types = Mapping[Place, str]


@dataclass(frozen=True, eq=False)
class WeighedFile:
    """An uncut child, with the ``moments`` of the matrices of its file by name.

    Without tokens there are no moments, and errors count relative to the weights.
    """

    child: Child
    moments: Mapping[str, list[GradientMoments]] | None
    threads: int = 1

    @property
    def cut(self) -> Cut:
        return self.child.cut

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
    def plain_bytes(self) -> int:
        """The bytes of all tensors of the file that have no chosen type."""
        names = {matrix.name for every in self.matrices.values() for matrix in every}
        return sum(tensor.bytes for tensor in entries(self.child) if tensor.name not in names)

    def parts(self, matrix: FileMatrix, number: int) -> list[MatrixMoments]:
        """Return the moments of one matrix of a tensor; a tied embedding has two, its own and the head's."""
        if self.moments is None:
            return [MatrixMoments(np.ones(matrix.columns), np.ones(matrix.rows), 1.0)]
        return [each.of(number) for each in self.moments[matrix.name]]

    def importances(self, matrix: FileMatrix, number: int) -> Values | None:
        """Return the weights of the squared errors by column of one matrix, (k,); None without tokens."""
        if self.moments is None:
            return None
        parts = self.parts(matrix, number)
        return as_importances(
            np.asarray(sum(part.gradients.sum() * part.factor * part.inputs for part in parts))
        )

    def by_column(self) -> Iterator[tuple[str, Values]]:
        """Yield the importances of each tensor by its name, (m, k)."""
        for every in self.matrices.values():
            for matrix in every:
                rows = [self.importances(matrix, number) for number in range(matrix.count)]
                yield matrix.name, np.stack([row for row in rows if row is not None])

    def losses(self, place: Place, types: tuple[WeightType, ...]) -> Options:
        """Return the bytes and the loss of the stored tensors of a place by type."""
        every = self.matrices[place]
        sizes = [sum(size_of(matrix, kind) for matrix in every) for kind in types]
        losses, whole = np.zeros(len(types)), 0.0
        for matrix in every:
            for number, values in enumerate(matrix.values()):
                losses += self._losses(matrix, number, values, types)
                whole += sum_of_squares(values) if self.moments is None else 0.0
        if self.moments is None:
            losses = losses / max(whole, 1e-300)
        return Options(place, np.array(sizes, np.int64), losses)

    def _losses(
        self, matrix: FileMatrix, number: int, values: Values, types: tuple[WeightType, ...]
    ) -> NDArray[np.float64]:
        """Return the loss of one matrix of a tensor by type, from the errors of some rows."""
        most = rows_of_weights(ROWS, matrix.columns, WEIGHTS)
        taken = spread_rows(matrix.rows, max(-(-most // matrix.count), FEWEST))
        parts = [part for part in self.parts(matrix, number) if part.gradients.sum() > 0.0]
        losses, importances = np.zeros(len(types)), self.importances(matrix, number)
        for place, kind in enumerate(types if parts else ()):
            errors = rounded(values[taken], kind, importances, self.threads) - values[taken]
            squares = np.square(errors, dtype=np.float64)
            for part in parts:
                weights = part.gradients[taken]
                share = float(weights.sum() / part.gradients.sum()) or 1.0
                losses[place] += 0.5 * part.factor * float(weights @ (squares @ part.inputs)) / share
        return losses

    def bytes_of(self, types: Types) -> int:
        """Return the bytes of all weights with these types."""
        typed = sum(
            size_of(matrix, BY_NAME[types[place]])
            for place, every in self.matrices.items()
            for matrix in every
        )
        return self.plain_bytes + typed


def size_of(matrix: FileMatrix, kind: WeightType) -> int:
    """Return the bytes of a tensor of a file in a type."""
    return kind.size(matrix.columns) * matrix.rows * matrix.count


@dataclass(frozen=True, eq=False)
class TypedFile:
    """An uncut child whose file has these ``types``."""

    weighed: WeighedFile
    types: Types

    @property
    def bytes(self) -> int:
        """The bytes of all weights, including norms and biases."""
        return self.weighed.bytes_of(self.types)

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

    @cached_property
    def checkpoint(self) -> Checkpoint:
        """The child as a checkpoint with the matrices as read back from the file."""
        parent, pieces = self.weighed.child.parent, dict[str, list[tuple[FileMatrix, int | None]]]()
        for place in self.types:
            for matrix in self.weighed.matrices[place]:
                for number, tensor in enumerate(matrix.stack.tensors):
                    expert = number if tensor.slot.expert is not None else None
                    pieces.setdefault(tensor.source, []).append((matrix, expert))
        replaced = {
            name: ReplacedTensor.of(parent.tensors[name], partial(self._read_back, name, every))
            for name, every in pieces.items()
        }
        return replace(parent, tensors={**parent.tensors, **replaced})

    def _read_back(self, name: str, every: list[tuple[FileMatrix, int | None]]) -> Values:
        """Return a stored tensor with the numbers of its pieces in the file."""
        stored = np.empty(self.weighed.child.parent.tensors[name].shape, np.float32)
        for matrix, expert in every:
            if expert is None and matrix.is_by_expert:
                for number, values in enumerate(self.rounded(matrix)):
                    matrix.put(stored[number : number + 1], values[None])
            else:
                values = np.stack(list(self.rounded(matrix, expert)))
                matrix.put(stored if expert is None else stored[None], values)
        return stored

    def blocks(self, like: Blocks) -> Blocks:
        """Return the network as read back, on the batches and with the compute settings of ``like``."""
        model = computed(mapped_model(self.checkpoint), like.compute)
        layers = {id(weight) for weight in layer_list(model).parameters()}
        embedding: nn.Module = model.get_input_embeddings()
        weight = embedding.get_parameter("weight")
        if is_in_parts(weight) and id(weight) not in layers:  # rows of it are looked up
            embedding.weight = nn.Parameter(assembled(weight, torch.float32), requires_grad=False)
            model.tie_weights()
        return Blocks(model, like.batches)

    def loss(self, loss: Loss, repaired: Repaired) -> float:
        """Return the loss of the network as read back; ``repaired`` is empty because nothing is cut."""
        del repaired
        return loss.of_network(self.blocks(loss.blocks))

    def output(self, blocks: Blocks, repaired: Repaired) -> Tensor:
        """Return the output of the network as read back for the first batch."""
        del repaired
        others = self.blocks(blocks)
        hidden = others.embed(0)
        for layer in range(len(self.weighed.cut.layers)):
            hidden = others.call(0, layer, hidden)
        return outputs(others.finish(0, hidden))
