"""The tensors of a GGUF file: the parent's, cut, under the names and in the order of llama.cpp."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, Protocol

import numpy as np
from numpy.typing import NDArray

from zerolm.architecture import Ints
from zerolm.carving.export.child_tensors import Child, ChildTensor
from zerolm.carving.export.gguf.child_config import factors_by_row
from zerolm.carving.export.gguf.pieces import Piece, pieces
from zerolm.checkpoints import Checkpoint
from zerolm.checkpoints.dtypes import narrowed, widened
from zerolm.checkpoints.gguf.names import (
    ADDED,
    changes_places,
    form_in,
    neighbouring,
    rearrangement,
    roles_in,
)
from zerolm.checkpoints.weight_types import BY_NAME
from zerolm.families.family import Family

ROUTER: Final = "router"
CARRIED: Final = "carried"

Place = tuple[int | None, str]


class Typed(Protocol):
    """Matrices of a child whose types are chosen, by the parent's layer and the role."""

    @property
    def types(self) -> Mapping[Place, str]:
        """Return the names of the types."""

    def encoded(self, place: Place) -> NDArray[Any]:
        """Return the rows of a matrix in its type, (n, bytes of a row)."""


@dataclass(frozen=True)
class GgufTensor:
    """A tensor of the file; ``values`` reads its numbers as the file holds them (16 bits as raw integers)."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    values: Callable[[], NDArray[Any]]

    @property
    def bytes(self) -> int:
        return BY_NAME[self.dtype].size(math.prod(self.shape))


def entries(child: Child, typed: Typed | None = None) -> Iterator[GgufTensor]:
    """Yield the tensors of a child, those outside the layers first; a tied head is left out.

    Readers then take the embedding. Matrices keep their types, or have those of ``typed``; norms, biases,
    routers and what is added to the embeddings of tokens become float32. Experts that are stored one by one
    become one tensor.
    """
    layout, names = child.parent.layout, roles_in(child.parent.family, child.parent.config)
    if typed is not None:
        check_types(child.parent.family)
    places = {kept.layer: place for place, kept in enumerate(child.cut.layers)}
    order = {name: place for place, name in enumerate(layout.slots)}

    def rank(tensor: ChildTensor) -> tuple[int, bool, int]:
        return _place(tensor, places), tensor.is_made_anew, order[tensor.source]

    one_by_one: dict[tuple[int, str], list[ChildTensor]] = {}
    for tensor in sorted((each for each in child.tensors() if each.role != CARRIED), key=rank):
        is_tied_head = layout.tied and tensor.role == "head" and not tensor.is_made_anew
        if is_tied_head or tensor.role not in names:
            continue
        stacked = [tensor]
        if tensor.slot.expert is not None:
            stacked = one_by_one.setdefault((_place(tensor, places), tensor.role), [])
            stacked.append(tensor)
            if len(stacked) < layout.sizes["experts"]:
                continue
        name = names[tensor.role].replace("{layer}", str(_place(tensor, places)))
        if typed is not None and has_type(tensor):
            place = None if tensor.kept is None else tensor.kept.layer, tensor.role
            yield GgufTensor(name, typed.types[place], tensor.shape, partial(_typed, tensor, typed, place))
            continue
        experts = len(stacked) if tensor.slot.expert is not None else None
        dtype = tensor.info.dtype if _keeps_type(tensor) else "F32"
        for piece in pieces(tensor, experts, name, _order(tensor, tensor.shape[0])):
            yield GgufTensor(piece.name, dtype, piece.shape, partial(_values, stacked, piece, dtype))


def has_type(tensor: ChildTensor) -> bool:
    """Return whether a file may have a tensor in any type: it is a matrix that tokens are multiplied by."""
    return len(tensor.shape) == 2 and tensor.role not in ADDED


def _keeps_type(tensor: ChildTensor) -> bool:
    """Return whether a tensor has its type in the file, if none is chosen: matrices as they are stored."""
    is_computed = bool(form_in(tensor.child.parent.family, tensor.role).values)
    is_matrix = tensor.slot.is_matrix and tensor.role not in ADDED
    return is_matrix and not tensor.role.startswith(ROUTER) and not is_computed


def check_types(family: Family) -> None:
    """Refuse types of weights where files hold matrices otherwise than the checkpoint."""
    different = rearrangement(family)
    if different:
        raise ValueError(
            f"types of weights are not chosen for a {family.name}: a gguf file holds {different}; leave the "
            "budget of bytes and the types out"
        )


def check_names(checkpoint: Checkpoint, layers: Iterable[int]) -> None:
    """Refuse tensors of these layers that llama.cpp has no name for, with ``ValueError``."""
    family, kept = checkpoint.family, set(layers)
    names = roles_in(family, checkpoint.config)
    for slot in checkpoint.layout.slots.values():
        if slot.layer in kept and slot.role not in names and form_in(family, slot.role).key is None:
            architecture = family.gguf.architecture if family.gguf else "of none"
            raise ValueError(f"llama.cpp has no {slot.role} in its architecture {architecture}")


def names_in(child: Child) -> dict[Place, str]:
    """Return what a file calls the matrices of a child, by the parent's layer and the role."""
    names = roles_in(child.parent.family, child.parent.config)
    places = {kept.layer: place for place, kept in enumerate(child.cut.layers)}
    return {
        (None if tensor.kept is None else tensor.kept.layer, tensor.role): names[tensor.role].replace(
            "{layer}", str(_place(tensor, places))
        )
        for tensor in child.tensors()
        if len(tensor.shape) == 2 and tensor.role in names
    }


def _place(tensor: ChildTensor, places: Mapping[int, int]) -> int:
    """Return the number of a tensor's layer in the child, -1 outside the layers."""
    return -1 if tensor.kept is None else places[tensor.kept.layer]


def _typed(tensor: ChildTensor, typed: Typed, place: Place) -> NDArray[Any]:
    """Return the rows of a matrix as a file holds them that has it in its type."""
    rows = typed.encoded(place)
    return rows[_order(tensor, len(rows))]


def _values(stacked: list[ChildTensor], piece: Piece, dtype: str) -> NDArray[Any]:
    """Return the numbers of a piece as a file with this ``dtype`` holds them."""
    first = stacked[0]
    stored = first.info.dtype
    raw = first.array() if first.slot.expert is None else np.stack([each.array() for each in stacked])
    raw = piece.of(raw)
    family = first.child.parent.family
    form = form_in(family, first.role)
    values = form.values
    if not values and first.role.endswith("norm"):
        values = family.tensors.factors.gain  # readers multiply by what is stored
    if form.times:
        factors = factors_by_row(first.child.parent, first.child.cut, first.role)
        scaled = widened(raw, stored) * factors.reshape(-1, *[1] * (raw.ndim - 1)).astype(np.float32)
        return scaled if dtype == "F32" else narrowed(scaled, dtype)
    if values == "1+w":
        return widened(raw, stored) + np.float32(1)
    if values == "-exp(w)":
        return -np.exp(widened(raw, stored))
    return raw if dtype == stored else widened(raw, stored)


def _order(tensor: ChildTensor, rows: int) -> Ints | slice:
    """Return the order in which a file has the rows of a tensor."""
    if not changes_places(tensor.child.parent.family, tensor.role):
        return slice(None)
    return neighbouring(rows, tensor.child.cut.parent.head_size)
