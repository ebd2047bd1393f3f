"""A child with quantisation types: the losses of its own weights, and its network."""

from __future__ import annotations

import copy
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from zerolm.architecture import Floats
from zerolm.carving.bits.estimates import (
    importances_of,
    loss_of_rows,
    rows_of_weights,
    shares_along,
    spread_rows,
    total_gradients,
)
from zerolm.carving.bits.kernels import Values, quantised, rounded, sum_of_squares
from zerolm.carving.bits.options import Options
from zerolm.carving.bits.plain_bytes import plain_bytes
from zerolm.carving.bits.row_blocks import WRITTEN
from zerolm.checkpoints.dtypes import widened
from zerolm.checkpoints.gguf.dequantise import dequantised
from zerolm.checkpoints.gguf.names import held_in_file
from zerolm.checkpoints.weight_types import BY_NAME, WeightType
from zerolm.children.child_tensors import Child, ChildTensor
from zerolm.children.gguf.file_tensors import FileMatrix, has_type, names_in
from zerolm.families.family import OUTPUT_ROLES
from zerolm.networks.blocks import Blocks, embedded
from zerolm.networks.roles import final_norm, places_of
from zerolm.passes.fisher import Fisher
from zerolm.passes.matrix_moments import MatrixMoments, Place
from zerolm.planning.sensitivity import Loss
from zerolm.units.kept_units import Cut, LayerCut
from zerolm.units.pruning import Repaired, carved_layer
from zerolm.units.stream.in_memory import put

ROWS: Final = 1024
WEIGHTS: Final = 1 << 18
"""Errors are measured on ``ROWS`` rows of a matrix, evenly spread, or on fewer with about ``WEIGHTS``
weights."""
Types = Mapping[Place, str]
"""The names of types by the parent's layer and the role; None outside the layers."""


@dataclass(frozen=True, eq=False)
class WeighedChild:
    """A child with the moments of its parent's matrices.

    ``moments`` is None without tokens; ``fisher`` is needed where the stream is narrower.
    """

    child: Child
    moments: Mapping[Place, MatrixMoments] | None
    fisher: Fisher | None = None
    threads: int = 1

    @property
    def cut(self) -> Cut:
        return self.child.cut

    @cached_property
    def tensors(self) -> dict[Place, ChildTensor]:
        """The child's matrices by the parent's layer and their role."""
        parent = self.child.parent
        held = held_in_file(parent.family)
        return {
            (None if tensor.kept is None else tensor.kept.layer, tensor.role): tensor
            for tensor in self.child.tensors()
            if has_type(tensor)
            and not (parent.layout.tied and tensor.role == "head" and not tensor.is_made_anew)
            and held(tensor.role)
        }

    def values(self, place: Place) -> Values:
        """Return a matrix of the child (n, k)."""
        tensor = self.tensors[place]
        return widened(tensor.array(), tensor.info.dtype)

    def parts(self, place: Place) -> list[MatrixMoments]:
        """Return the moments of a matrix; a tied embedding has two, its own and the head's."""
        layer, role = place
        predicts = self.child.parent.family.task == "next"
        if layer is None and role == "embedding" and predicts and (None, "head") not in self.tensors:
            return [self._outside("embedding"), self._outside("head")]
        return [self._outside(role) if layer is None else self._inside(layer, role)]

    def _inside(self, layer: int, role: str) -> MatrixMoments:
        tensor, narrowing = self.tensors[layer, role], self.cut.narrowing
        moments = self._of_parent((layer, role), tensor.info.shape)
        rows, columns = (tensor.indices.get(axis, slice(None)) for axis in (0, 1))
        if narrowing is None:
            return MatrixMoments(moments.inputs[columns], moments.gradients[rows], moments.factor)
        if role in WRITTEN:
            along = self._along("outputs", self._shares[layer, OUTPUT_ROLES.index(role)])
            return MatrixMoments(moments.inputs[columns], along, moments.factor)
        return MatrixMoments(
            self._along("energy") / narrowing.scale**2, moments.gradients[rows], moments.factor
        )

    def _outside(self, role: str) -> MatrixMoments:
        narrowing = self.cut.narrowing
        shape = next(t.info.shape for (layer, _), t in self.tensors.items() if layer is None)
        moments = self._of_parent((None, role), shape)
        if narrowing is None:
            return moments
        if role == "embedding":
            return MatrixMoments(
                self._along("outputs", float(moments.inputs.sum())), moments.gradients, moments.factor
            )
        gain = 1.0 if narrowing.final_gain is None else np.square(narrowing.final_gain)
        return MatrixMoments(
            self._along("last") * gain / narrowing.scale**2, moments.gradients, moments.factor
        )

    def _of_parent(self, place: Place, shape: tuple[int, ...]) -> MatrixMoments:
        """Return the moments of the parent's matrix (n, k); without tokens all ones."""
        if self.moments is None:
            return MatrixMoments(np.ones(shape[1]), np.ones(shape[0]), 1.0)
        return self.moments[place]

    @cached_property
    def _shares(self) -> Floats:
        assert self.fisher is not None
        return total_gradients(self.fisher)

    @cached_property
    def _direction_shares(self) -> dict[str, Floats]:
        """The shares of the directions of the child's stream, (k,), by the kind of second moments."""
        assert self.fisher is not None
        assert self.cut.narrowing is not None
        basis, fisher = self.cut.narrowing.basis, self.fisher
        moments = {
            "outputs": fisher.outputs,
            "energy": fisher.stream["energy"],
            "last": fisher.stream["last"],
        }
        return {name: shares_along(basis, each) for name, each in moments.items()}

    def _along(self, name: str, total: float | None = None) -> Floats:
        """Return second moments along the child's stream, (k,); ``total`` is the trace in the parent's."""
        return self._direction_shares[name] * (self.cut.parent.hidden if total is None else total)

    def importances(self, place: Place) -> Values | None:
        """Return the weights of the squared errors by column of a matrix, (k,); None without tokens."""
        if self.moments is None:
            return None
        return importances_of(self.parts(place))

    def by_column(self) -> Iterator[tuple[str, Values]]:
        """Yield the importances of each matrix by its name in a file, (1, k)."""
        names = names_in(self.child)
        for place in self.tensors:
            values = self.importances(place)
            assert values is not None
            yield names[place], values[None]

    def losses(self, place: Place, types: tuple[WeightType, ...]) -> Options:
        """Return the bytes and the loss of a matrix of the child by type, for types that fit it."""
        values, importances = self.values(place), self.importances(place)
        rows, columns = values.shape
        parts, taken = self.parts(place), spread_rows(rows, rows_of_weights(ROWS, columns, WEIGHTS))
        some, sizes, losses = values[taken], [], []
        whole = sum_of_squares(values) if self.moments is None else 1.0
        for kind in types:
            sizes.append(kind.size(columns) * rows)
            if not kind.holds(columns):
                losses.append(np.inf)
                continue
            squares = np.square(rounded(some, kind, importances, self.threads) - some, dtype=np.float64)
            loss = sum(loss_of_rows(squares, taken, part) for part in parts)
            losses.append(loss if self.moments is not None else 0.5 * loss / max(whole, 1e-300))
        return Options(place, np.array(sizes, np.int64), np.array(losses))

    def bytes_of(self, types: Types) -> int:
        """Return the bytes of all matrices with these types."""
        return sum(
            BY_NAME[kind].size(self.tensors[place].shape[1]) * self.tensors[place].shape[0]
            for place, kind in types.items()
        )

    @property
    def places(self) -> Collection[Place]:
        """The matrices whose types are chosen."""
        return self.tensors

    @cached_property
    def plain_bytes(self) -> int:
        """The bytes of all tensors that have no chosen type."""
        return plain_bytes(self.cut, self.child.parent)

    def holds(self, kind: WeightType) -> bool:
        """Return whether a type fits the rows of all matrices."""
        return all(kind.holds(tensor.shape[1]) for tensor in self.tensors.values())

    def typed(self, types: Types) -> TypedChild:
        """Return the child with these types."""
        return TypedChild(self, types)


@dataclass(frozen=True, eq=False)
class TypedChild:
    """A child whose matrices have these ``types``, rounded with the importances of their columns."""

    weighed: WeighedChild
    types: Types

    @property
    def bytes(self) -> int:
        """The bytes of all weights, including norms and biases."""
        return self.weighed.bytes_of(self.types) + self.weighed.plain_bytes

    def encoded(self, place: Place) -> NDArray[Any]:
        """Return the rows of a matrix in its type, (n, bytes of a row) uint8."""
        weighed = self.weighed
        kind, importances = BY_NAME[self.types[place]], weighed.importances(place)
        return quantised(weighed.values(place), kind, importances, weighed.threads)

    def in_file(self, matrix: FileMatrix) -> NDArray[Any]:
        """Return the rows of a matrix in its type in the order of a file, (n, bytes of a row)."""
        rows = self.encoded(matrix.stack.place)
        return rows[matrix.piece.rows]

    def rounded(self, place: Place) -> Values:
        """Return a matrix as read back, (n, k)."""
        return dequantised(self.encoded(place), BY_NAME[self.types[place]])

    def read_back(self, blocks: Blocks, repaired: Repaired) -> ReadBack:
        """Return the network as read back, on the batches of some blocks of the parent."""
        return ReadBack(blocks, self, repaired)

    def loss(self, loss: Loss, repaired: Repaired) -> float:
        """Return the loss of the network as read back."""
        network = self.read_back(loss.blocks, repaired)
        return loss.of_parts(network.cut, network.embed, network.layer, network.finish)

    def output(self, blocks: Blocks, repaired: Repaired) -> Tensor:
        """Return the output of the network as read back for the first batch."""
        return self.read_back(blocks, repaired)(0)


class ReadBack:
    """The network of a typed child on the batches of some blocks, one layer in memory at a time."""

    def __init__(self, blocks: Blocks, typed: TypedChild, repaired: Repaired) -> None:
        self.blocks, self.typed, self.repaired = blocks, typed, repaired
        self.cut = typed.weighed.cut

    @cached_property
    def embedding(self) -> Tensor:
        """The embedding, (v, k)."""
        return torch.from_numpy(self.typed.rounded((None, "embedding")))

    @cached_property
    def head(self) -> Tensor:
        """The head, (v, k)."""
        place = (None, "head")
        return torch.from_numpy(self.typed.rounded(place)) if place in self.typed.types else self.embedding

    @cached_property
    def norm(self) -> nn.Module:
        """The norm before the head."""
        norm = copy.deepcopy(final_norm(self.blocks.model)).float()
        gain = next((t for t in self.typed.weighed.child.tensors() if t.role == "final_norm"), None)
        if gain is not None:
            put(norm, "weight", torch.from_numpy(widened(gain.array(), gain.info.dtype)))
        return norm

    def embed(self, index: int) -> Tensor:
        """Return the input of the first layer for a batch, (b, t, k)."""
        ids, module = self.blocks.batches[index]["input_ids"].cpu(), self.blocks.model.get_input_embeddings()
        vectors = embedded(module, ids, self.embedding).to(self.blocks.device)
        narrowing = self.cut.narrowing
        if narrowing is not None and self.typed.weighed.child.parent.family.tensors.factors.rooted:
            # the parent multiplies by the root of its width, the child by that of the smaller one
            vectors = vectors * (narrowing.width.hidden / self.cut.parent.hidden) ** 0.5
        return self.blocks.embed(index, vectors)

    def layer(self, kept: LayerCut) -> nn.Module:
        """Return a kept layer with its matrices as read back."""
        model = self.blocks.model
        module = carved_layer(model, self.cut, kept, self.repaired).module
        for role, path in places_of(model).modules.projections.items():
            weight = module.get_submodule(path).get_parameter("weight")
            weight.data.copy_(torch.from_numpy(self.typed.rounded((kept.layer, role))))
        return module

    def finish(self, index: int, states: Tensor) -> Any:
        """Return the output for the states (b, t, k) behind the last layer: with ``logits``, or states."""
        if not self.blocks.predicts:
            return self.blocks.finish(index, states)
        head = self.head.to(states.device)
        with torch.no_grad():
            read = self.norm.to(states.device)(states.float())
        return self.blocks.head(
            index, read, head=lambda module, x: functional.linear(x, head, getattr(module, "bias", None))
        )

    def __call__(self, index: int) -> Tensor:
        """Return the logits (b, t, v) of a batch; for an encoder the states (b, t, d) of its tokens."""
        hidden = self.embed(index)
        for kept in self.cut.layers:
            hidden = self.blocks.call(index, kept.layer, hidden, self.layer(kept))
        output = self.finish(index, hidden)
        states: Tensor = output.logits if self.blocks.predicts else output.last_hidden_state
        return states
