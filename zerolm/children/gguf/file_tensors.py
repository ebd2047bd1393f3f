"""The tensors of a GGUF file: the child's, under the names and in the order of llama.cpp."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, Final, Protocol

import numpy as np
from numpy.typing import NDArray

from zerolm.checkpoints import Checkpoint
from zerolm.checkpoints.dtypes import narrowed, widened
from zerolm.checkpoints.gguf.names import ADDED, changes_places, form_in, neighbouring, roles_in
from zerolm.checkpoints.weight_types import BY_NAME
from zerolm.children.child_tensors import Child, ChildTensor
from zerolm.children.gguf.child_config import factors_by_row
from zerolm.children.gguf.pieces import Piece, pieces

ROUTER: Final = "router"
CARRIED: Final = "carried"

Place = tuple[int | None, str]
Values = NDArray[np.float32]


class Typed(Protocol):
    """Matrices of a child with chosen quantisation types, by the parent's layer and the role."""

    @property
    def types(self) -> Mapping[Place, str]:
        """Return the names of the types."""

    def in_file(self, matrix: FileMatrix) -> NDArray[Any]:
        """Return the rows of a matrix in its type, in the order of a file, (n, bytes of a row)."""


@dataclass(frozen=True)
class GgufTensor:
    """A tensor of the file; ``values`` returns its numbers as stored there (16 bits as raw integers)."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    values: Callable[[], NDArray[Any]]

    @property
    def bytes(self) -> int:
        return BY_NAME[self.dtype].size(math.prod(self.shape))


@dataclass(frozen=True, eq=False)
class StoredStack:
    """A stored tensor of a child, or those of all experts of a layer, that become tensors of a file.

    ``name`` is the file's name for it; where the file splits it, the names of the pieces are joined by ``+``.
    """

    tensors: tuple[ChildTensor, ...]
    name: str

    @property
    def first(self) -> ChildTensor:
        """The tensor, or that of the first expert."""
        return self.tensors[0]

    @property
    def place(self) -> Place:
        """The parent's layer and the role."""
        return None if self.first.kept is None else self.first.kept.layer, self.first.role

    def pieces(self) -> Iterator[Piece]:
        """Yield the file's tensors that it becomes."""
        first = self.first
        experts = None if first.slot.expert is None else len(self.tensors)
        if not changes_places(first.child.parent.family, first.role):
            return pieces(first, experts, self.name)
        order = neighbouring(first.shape[0], first.child.cut.parent.head_size)
        return pieces(first, experts, self.name, order)


@dataclass(frozen=True, eq=False)
class FileMatrix:
    """A matrix of a file (n, k), or one for each expert or head (m, n, k): a ``piece`` of a stored tensor."""

    stack: StoredStack
    piece: Piece

    @property
    def name(self) -> str:
        return self.piece.name

    @property
    def count(self) -> int:
        """The number of matrices."""
        return self.piece.shape[0] if len(self.piece.shape) == 3 else 1

    @property
    def rows(self) -> int:
        """The number of rows of one matrix."""
        return self.piece.shape[-2]

    @property
    def columns(self) -> int:
        return self.piece.shape[-1]

    @property
    def is_by_expert(self) -> bool:
        """Whether each matrix is made from the stored tensor of one expert."""
        return self.stack.first.slot.of_experts

    @cached_property
    def factors(self) -> NDArray[np.float32]:
        """The factors of rows in the file, (n, 1) or (1, 1)."""
        first = self.stack.first
        by_row = factors_by_row(first.child.parent, first.child.cut, first.role)
        return by_row.astype(np.float32)[:, None]

    @property
    def slopes(self) -> Values:
        """The inverse factors, (n, 1) or (1, 1): derivatives of stored numbers by those of the file."""
        return np.reciprocal(np.where(self.factors == 0, np.float32(1), self.factors))

    def values(self, expert: int | None = None) -> Iterator[Values]:
        """Yield the matrices (n, k) of a child that keeps all units, one by one, or that of one expert."""
        if not self.is_by_expert:
            first = self.stack.first
            yield from self.factors * self.of(widened(first.array(), first.info.dtype))
            return
        for number in range(self.count) if expert is None else (expert,):
            yield self.factors * self.of(self._stored(number))[0]

    def of(self, stored: NDArray[Any]) -> NDArray[Any]:
        """Return the matrices (m, n, k) in a stored tensor, which may be that of one expert."""
        return self.piece.of(stored).reshape(-1, self.rows, self.columns)

    def _stored(self, expert: int) -> Values:
        first = self.stack.first
        if first.slot.expert is None:
            return widened(first.of_expert(expert), first.info.dtype)
        return widened(self.stack.tensors[expert].array(), first.info.dtype)[None]

    def put(self, stored: Values, values: Values) -> None:
        """Put matrices (m, n, k) of a file into a stored tensor, in place: the inverse of ``of``."""
        self.piece.put(stored, values * self.slopes)


def stacks(child: Child) -> Iterator[StoredStack]:
    """Yield the stored tensors of a child's file, those outside the layers first; a tied head is omitted.

    Readers then use the embedding. Experts that are stored one by one are in one stack.
    """
    layout, names = child.parent.layout, roles_in(child.parent.family, child.parent.config)
    places = {kept.layer: place for place, kept in enumerate(child.cut.layers)}
    order = {name: place for place, name in enumerate(layout.slots)}

    def rank(tensor: ChildTensor) -> tuple[int, bool, int]:
        return _place(tensor, places), tensor.is_made_anew, order[tensor.source]

    one_by_one: dict[tuple[int, str], list[ChildTensor]] = {}
    for tensor in sorted((each for each in child.tensors() if each.role != CARRIED), key=rank):
        is_tied_head = layout.tied and tensor.role == "head" and not tensor.is_made_anew
        if is_tied_head or tensor.role not in names:
            continue
        together = [tensor]
        if tensor.slot.expert is not None:
            together = one_by_one.setdefault((_place(tensor, places), tensor.role), [])
            together.append(tensor)
            if len(together) < layout.sizes["experts"]:
                continue
        yield StoredStack(tuple(together), names[tensor.role].replace("{layer}", str(_place(tensor, places))))


def entries(child: Child, typed: Typed | None = None) -> Iterator[GgufTensor]:
    """Yield the tensors of a child's file.

    Matrices keep their types, or get those of ``typed``. Norms, biases, routers and the tensors that are
    added to token embeddings become float32. Experts that are stored one by one become one tensor.
    """
    for stack, piece, dtype in stored_pieces(child):
        kind = None if typed is None else typed.types.get(stack.place)
        if typed is not None and kind is not None:
            rows = partial(typed.in_file, FileMatrix(stack, piece))
            yield GgufTensor(piece.name, kind, piece.shape, rows)
        else:
            yield GgufTensor(piece.name, dtype, piece.shape, partial(_values, stack, piece, dtype))


def stored_pieces(child: Child) -> Iterator[tuple[StoredStack, Piece, str]]:
    """Yield the pieces of a child's file with the types that they have where none is chosen."""
    for stack in stacks(child):
        dtype = stack.first.info.dtype if _keeps_type(stack.first) else "F32"
        for piece in stack.pieces():
            yield stack, piece, dtype


def matrices(child: Child) -> Iterator[FileMatrix]:
    """Yield the matrices of a child's file that may have any type: those multiplied with activations."""
    for stack in stacks(child):
        if _keeps_type(stack.first):
            for piece in stack.pieces():
                if len(piece.shape) > 1:
                    yield FileMatrix(stack, piece)


def _keeps_type(tensor: ChildTensor) -> bool:
    """Return whether a tensor keeps its stored type in the file when none is chosen: most matrices do."""
    is_computed = bool(form_in(tensor.child.parent.family, tensor.role).values)
    is_matrix = tensor.slot.is_matrix and tensor.role not in ADDED
    return is_matrix and not tensor.role.startswith(ROUTER) and not is_computed


def check_names(checkpoint: Checkpoint, layers: Iterable[int]) -> None:
    """Raise ``ValueError`` for tensors of these layers that llama.cpp has no name for."""
    family, kept = checkpoint.family, set(layers)
    names = roles_in(family, checkpoint.config)
    for slot in checkpoint.layout.slots.values():
        if slot.layer in kept and slot.role not in names and form_in(family, slot.role).key is None:
            architecture = family.gguf.architecture if family.gguf else "of none"
            raise ValueError(f"llama.cpp has no {slot.role} in its architecture {architecture}")


def _place(tensor: ChildTensor, places: Mapping[int, int]) -> int:
    """Return the number of a tensor's layer in the child, -1 outside the layers."""
    return -1 if tensor.kept is None else places[tensor.kept.layer]


def _values(stack: StoredStack, piece: Piece, dtype: str) -> NDArray[Any]:
    first = stack.first
    stored, family = first.info.dtype, first.child.parent.family
    raw = first.array() if first.slot.expert is None else np.stack([each.array() for each in stack.tensors])
    raw, form = piece.of(raw), form_in(family, first.role)
    values = form.values
    if not values and first.role.endswith("norm"):
        values = family.tensors.factors.gain  # readers multiply by the stored values
    if form.times:
        factors = factors_by_row(first.child.parent, first.child.cut, first.role)
        scaled = widened(raw, stored) * factors.reshape(-1, *[1] * (raw.ndim - 1)).astype(np.float32)
        return scaled if dtype == "F32" else narrowed(scaled, dtype)
    if values == "1+w":
        return widened(raw, stored) + np.float32(1)
    if values == "-exp(w)":
        return -np.exp(widened(raw, stored))
    return raw if dtype == stored else widened(raw, stored)
