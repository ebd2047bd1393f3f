"""A child with types: the bytes of its matrices, its network as read back, and its file."""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from zerolm.carving.bits.kernels import Values, quantised, sum_of_squares
from zerolm.carving.bits.weighed_child import EMBEDDING, HEAD, Types, WeighedChild
from zerolm.checkpoints.dtypes import widened
from zerolm.checkpoints.gguf.dequantise import dequantised
from zerolm.checkpoints.gguf.header import read_gguf_header
from zerolm.checkpoints.headers import ReplacedTensor
from zerolm.checkpoints.weight_types import BY_NAME, BY_NUMBER, WeightType
from zerolm.children.gguf.file_tensors import FileMatrix
from zerolm.networks.blocks import Blocks, Head, embedded
from zerolm.networks.compute import computed
from zerolm.networks.mapped import assembled, is_in_parts, put_tensors
from zerolm.networks.opener import mapped_model
from zerolm.networks.roles import StockLayer, body_prefix, final_norm, layer_list, places_of
from zerolm.networks.states import HiddenStates
from zerolm.networks.stream import Stream
from zerolm.passes.loss_moments import MOMENT_TOKENS
from zerolm.passes.matrix_moments import Place
from zerolm.units.pruning import CarvedNetwork, Repaired
from zerolm.units.stream.in_memory import put

LARGEST_ERROR: Final = 0.5
"""Largest relative squared error of a matrix from rounding to the coarsest type; a different matrix has 2."""


@dataclass(eq=False)
class LastLayer:
    """The encoded rows of the layer that was encoded last: a repair encodes most of its matrices again."""

    layer: int | None = None
    rows: dict[tuple[str, int], tuple[bytes, NDArray[Any]]] = field(default_factory=dict)

    def encoded(
        self, matrix: FileMatrix, number: int, values: Values, encode: Callable[[], NDArray[Any]]
    ) -> NDArray[Any]:
        """Return the rows of one matrix of a tensor, by ``encode`` where its ``values`` are new."""
        layer, _ = matrix.stack.place
        if layer != self.layer:
            self.layer, self.rows = layer, {}
        digest, key = hashlib.blake2b(np.ascontiguousarray(values).data).digest(), (matrix.name, number)
        if key not in self.rows or self.rows[key][0] != digest:
            self.rows[key] = digest, encode()
        return self.rows[key][1]


@dataclass(frozen=True, eq=False)
class TypedChild:
    """A child whose matrices have these ``types``, rounded with the importances of their columns.

    Children of the same cut and types, repaired one matrix after the other, may share the ``last`` layer.
    """

    weighed: WeighedChild
    types: Types
    last: LastLayer | None = field(default=None, kw_only=True)

    @property
    def bytes(self) -> int:
        """The bytes of all weights, including norms and biases."""
        return self.weighed.plain_bytes + self.weighed.bytes_of(self.types)

    def in_file(self, matrix: FileMatrix) -> NDArray[Any]:
        """Return the rows of all matrices of a tensor in its type, (m x n, bytes of a row)."""
        return np.concatenate(list(self.encoded(matrix)))

    def encoded(self, matrix: FileMatrix, expert: int | None = None) -> Iterator[NDArray[Any]]:
        """Yield the rows of each matrix of a tensor, or of one expert's, in its type, (n, bytes of a row)."""
        for number, values in enumerate(matrix.values(expert), expert or 0):
            encode = partial(self._encoded, matrix, number, values)
            yield encode() if self.last is None else self.last.encoded(matrix, number, values, encode)

    def _encoded(self, matrix: FileMatrix, number: int, values: Values) -> NDArray[Any]:
        importances = self.weighed.importances(matrix, number)
        return quantised(values, self.kind(matrix), importances, self.weighed.threads)

    def kind(self, matrix: FileMatrix) -> WeightType:
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
        return {name: partial(self.stored, name, every) for name, every in pieces.items()}

    def stored(self, name: str, every: list[tuple[FileMatrix, int | None]]) -> Values:
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


class ReadBack(CarvedNetwork):
    """The network of a typed child with its weights as read back."""

    def __init__(self, blocks: Blocks, typed: TypedChild, repaired: Repaired) -> None:
        super().__init__(blocks, typed.weighed.cut, repaired)
        self.typed = typed

    @cached_property
    def ends(self) -> Blocks:
        """The parent with embeddings and a head as read back."""
        if self.cut.narrowing is not None:
            return NarrowEnds(self.blocks, self.typed)
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
        return self.ends.embed(index)

    def layer(self, number: int) -> StockLayer:
        model, layer = self.blocks.model, super().layer(number)
        place = f"{body_prefix(model)}{places_of(model).modules.layers}.{number}."
        parameters = {place + name: parameter.data for name, parameter in layer.module.named_parameters()}
        values = {name: torch.from_numpy(read()) for name, read in self.typed.tensors(number).items()}
        put_tensors(self.typed.weighed.child.parent, values, parameters, body_prefix(model))
        return layer

    def states(self) -> HiddenStates:
        return Stream(self.ends, self.module).before(self.cut.parent.depth)

    def finish(self, index: int, hidden: Tensor) -> Any:
        return self.ends.finish(index, hidden)


class NarrowEnds(Blocks):
    """The parent's blocks with the embedding, the last norm and the head of a child of a narrower stream."""

    def __init__(self, blocks: Blocks, typed: TypedChild) -> None:
        super().__init__(blocks.model, blocks.batches)
        self.typed = typed

    @cached_property
    def _embedding(self) -> Tensor:
        return self._rounded(EMBEDDING)

    @cached_property
    def _head(self) -> Tensor:
        return self._rounded(HEAD) if HEAD in self.typed.types else self._embedding

    def _rounded(self, place: Place) -> Tensor:
        (matrix,) = self.typed.weighed.matrices[place]
        return torch.from_numpy(self.typed.stored(matrix.stack.first.source, [(matrix, None)]))

    @cached_property
    def _norm(self) -> nn.Module:
        norm = copy.deepcopy(final_norm(self.model)).float()
        gain = next(each for each in self.typed.weighed.child.tensors() if each.role == "final_norm")
        put(norm, "weight", torch.from_numpy(widened(gain.array(), gain.info.dtype)))
        return norm.to(self.device)

    def embed(self, index: int, vectors: Tensor | None = None, *, gradients: bool = False) -> Tensor:
        if vectors is None:
            ids, module = self.batches[index]["input_ids"].cpu(), self.model.get_input_embeddings()
            vectors = embedded(module, ids, self._embedding).to(self.device)
            if self.typed.weighed.child.parent.family.tensors.factors.rooted:
                # the parent multiplies by the root of its width, the child by that of the smaller one
                vectors = vectors * (vectors.shape[-1] / self.typed.weighed.cut.parent.hidden) ** 0.5
        return super().embed(index, vectors, gradients=gradients)

    def finish(self, index: int, hidden: Tensor, *, head: Head | None = None, gradients: bool = False) -> Any:
        weight = self._head.to(hidden.device)
        with torch.no_grad():
            read = self._norm(hidden.float())
        linear = head or (lambda module, x: functional.linear(x, weight, getattr(module, "bias", None)))
        return self.head(index, read, head=linear, gradients=gradients)


@dataclass(frozen=True, eq=False)
class WrittenChild(TypedChild):
    """A typed child with the matrices of its own ``file``."""

    file: Path

    @cached_property
    def _tensors(self) -> dict[str, Any]:
        from gguf import GGUFReader

        read_gguf_header(self.file)  # checked before any library opens the file
        return {str(tensor.name): tensor for tensor in GGUFReader(self.file).tensors}

    def encoded(self, matrix: FileMatrix, expert: int | None = None) -> Iterator[NDArray[Any]]:
        raw = np.asarray(self._tensors[matrix.name].data).view(np.uint8)
        by_expert = raw.reshape(matrix.count, matrix.rows, -1)
        yield from by_expert if expert is None else by_expert[expert : expert + 1]

    def check(self) -> None:
        """Raise ``ValueError`` where a matrix has another type than planned, or other numbers."""
        for place, kind in self.types.items():
            for matrix in self.weighed.matrices[place]:
                tensor, name = self._tensors.get(matrix.name), f"{matrix.name!r} of {str(self.file)!r}"
                if tensor is None or int(tensor.tensor_type) != BY_NAME[kind].number:
                    stored = "absent" if tensor is None else BY_NUMBER[int(tensor.tensor_type)].name
                    raise ValueError(f"{name} is {stored}, not {kind} as planned")
                for values, read in zip(matrix.values(), self.rounded(matrix), strict=True):
                    if not sum_of_squares(values, read) <= LARGEST_ERROR * sum_of_squares(values):
                        raise ValueError(f"{name} has other numbers than the child")


def write_imatrix(weighed: WeighedChild, file: Path, text: str) -> None:
    """Write the importances of every matrix of a child by llama.cpp's names; ``text`` names their source.

    The file holds the importances of columns, scaled to mean 1, as sums over one token: readers divide by the
    count.
    """
    from gguf import GGUFValueType, GGUFWriter

    writer = GGUFWriter(file, "")
    writer.add_key_value("general.type", "imatrix", GGUFValueType.STRING)
    writer.add_array("imatrix.datasets", [text])
    writer.add_uint32("imatrix.chunk_count", 1)
    writer.add_uint32("imatrix.chunk_size", MOMENT_TOKENS)
    for name, values in weighed.by_column():
        writer.add_tensor(f"{name}.in_sum2", values)
        writer.add_tensor(f"{name}.counts", np.ones((len(values), 1), np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
