"""The parent of an MoE quantised to its child's bytes, by the types with the least total error."""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from transformers import PreTrainedModel

from zerolm.architecture import Floats
from zerolm.carving.bits.kernels import rounded
from zerolm.carving.bits.options import All, Options, least_bytes, least_loss
from zerolm.carving.bits.weighed_child import FEWEST_ROWS, spread_rows
from zerolm.carving.experts.fewer_experts import ROUTER
from zerolm.checkpoints import Checkpoint
from zerolm.checkpoints.weight_types import BY_NAME, QUANTISED, WeightType, from_largest
from zerolm.networks.mapped import parameters
from zerolm.networks.roles import body_prefix
from zerolm.progress import Progress, silent

QUANTISED_PARENT: Final = "quantised parent"
ROWS: Final = 256
WEIGHTS: Final = 1 << 16
"""Errors are measured on ``ROWS`` rows of a matrix, evenly spread; on fewer, of about ``WEIGHTS`` weights, if
rows are long."""
PLAIN: Final = 4
"""Bytes of a number that is in no matrix, as GGUF files have it, and of a router's."""


@dataclass(frozen=True)
class TypedMatrix:
    """A parameter of all its rows, stacked ones of experts too, and the type that it is stored in."""

    rows: int
    columns: int
    stored: WeightType

    def size(self, kind: WeightType) -> int:
        """Return its bytes in a type."""
        return self.rows * kind.size(self.columns)

    @property
    def candidates(self) -> list[WeightType]:
        """Return the types that it may have, from the largest: as stored, or smaller without importances."""
        smaller = [BY_NAME["F16"], *(kind for kind in QUANTISED if not kind.needs_importances)]
        able = {kind for kind in smaller if kind.bits < self.stored.bits and kind.holds(self.columns)}
        return list(from_largest({self.stored, *able}))


@dataclass(frozen=True, eq=False)
class QuantisedParent:
    """The types of a parent's matrices by the names of its parameters, and the ``bytes`` of all weights."""

    matrices: Mapping[str, TypedMatrix]
    types: Mapping[str, WeightType]
    bytes: int

    def applied(self, parent: PreTrainedModel) -> PreTrainedModel:
        """Return a copy of the parent with its matrices as they are read back."""
        model = copy.deepcopy(parent)
        for name, weight in model.named_parameters():
            kind = self.types.get(name)
            if kind is not None and kind != self.matrices[name].stored:
                values = weight.detach().float().cpu().numpy()
                read = rounded(values.reshape(-1, values.shape[-1]), kind, None, torch.get_num_threads())
                weight.data.copy_(torch.from_numpy(read.reshape(values.shape)))
        return model

    @property
    def text(self) -> str:
        """Return the number of matrices by type, from the largest type."""
        counts = Counter(self.types.values())
        return ", ".join(f"{kind.name} {counts[kind]}" for kind in from_largest(counts))


def quantised_parent(
    parent: Checkpoint, model: PreTrainedModel, room: int, progress: Progress = silent
) -> QuantisedParent:
    """Return the parent in ``room`` bytes, with the types whose relative errors add up to the least.

    Errors are of weights alone, each matrix's relative to its own squares; all experts of a layer have one
    type for each of their matrices. What is no matrix counts as float32. ``ValueError`` where no types are
    few bytes enough, ``ModuleNotFoundError`` where llama.cpp is not there to make them.
    """
    matrices = matrices_of(parent, model)
    plain = _plain_bytes(parent, matrices)
    weights, tables = dict(model.named_parameters()), list[Options]()
    for number, (name, matrix) in enumerate(matrices.items()):
        progress("estimating types for the parent's matrices", number, len(matrices))
        kinds = matrix.candidates
        sizes = np.array([matrix.size(kind) for kind in kinds], np.int64)
        tables.append(Options(name, sizes, _errors(weights[name], matrix, kinds)))
    best = least_loss(All(tuple(tables)), room - plain)
    if best is None:
        least = least_bytes(All(tuple(tables))) + plain
        raise ValueError(f"it has {least:,} bytes at least, the child {room:,}")
    types = {name: matrices[name].candidates[row] for name, row in best.picks.items()}
    return QuantisedParent(matrices, types, best.bytes + plain)


def matrices_of(parent: Checkpoint, model: PreTrainedModel) -> dict[str, TypedMatrix]:
    """Return the matrices of a model that may have types, by their names; routers have none."""
    stored = dict[str, str]()  # of stacked experts the first
    for tensor, names in parameters(parent, body_prefix(model)).items():
        for name in names:
            stored.setdefault(name, tensor)
    weights, matrices = dict(model.named_parameters()), dict[str, TypedMatrix]()
    for name, tensor in stored.items():
        weight, slot = weights.get(name), parent.layout.slots[tensor]
        if weight is None or not slot.is_matrix or slot.role == ROUTER or weight.dim() not in (2, 3):
            continue
        columns, kind = weight.shape[-1], BY_NAME.get(parent.tensors[tensor].dtype)
        if kind is not None:
            matrices[name] = TypedMatrix(weight.numel() // columns, columns, kind)
    return matrices


def _plain_bytes(parent: Checkpoint, matrices: Mapping[str, TypedMatrix]) -> int:
    """Return the bytes of all that is in none of these matrices; carried tensors count as they are stored."""
    carried = (parent.tensors[name] for name in parent.layout.carried)
    numbers = sum(parent.tensors[name].count for name in parameters(parent))
    inside = sum(matrix.rows * matrix.columns for matrix in matrices.values())
    return PLAIN * (numbers - inside) + sum(info.end - info.start for info in carried)


def stored_bytes(checkpoint: Checkpoint) -> int:
    """Return the bytes of all weights of a checkpoint as they are stored."""
    return sum(info.end - info.start for info in checkpoint.tensors.values())


def _errors(weight: Tensor, matrix: TypedMatrix, kinds: list[WeightType]) -> Floats:
    """Return the squared error of some rows in each type by their squares; 0 as stored."""
    flat = weight.detach().reshape(matrix.rows, matrix.columns)
    taken = spread_rows(matrix.rows, min(ROWS, max(FEWEST_ROWS, WEIGHTS // matrix.columns)))
    some = flat[torch.as_tensor(taken, device=flat.device)].float().cpu().numpy()

    def squares(values: NDArray[np.float32]) -> float:
        return float(np.square(values, dtype=np.float64).sum())

    errors = [0.0 if kind == matrix.stored else squares(rounded(some, kind, None) - some) for kind in kinds]
    return np.array(errors) / max(squares(some), 1e-300)
