"""A GGUF file of any architecture with experts: the tensors with a part for each expert, and its router."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from math import prod
from pathlib import Path
from typing import Any, Final

import numpy as np

from zerolm.architecture import Floats
from zerolm.carving.experts.expert_scores import spread
from zerolm.carving.experts.fewer_experts import AXIS
from zerolm.carving.experts.stock_mixture import Routing
from zerolm.checkpoints import Checkpoint
from zerolm.checkpoints.gguf.dequantise import dequantised, readable
from zerolm.checkpoints.gguf.header import GgufHeader
from zerolm.checkpoints.gguf.parts import GgufModel, read_gguf
from zerolm.checkpoints.headers import Shard
from zerolm.checkpoints.weight_types import BLOCKS

OF_EXPERTS: Final = re.compile(
    r"blk\.(\d+)\.(ffn_(?:gate|up|down|gate_up)_exps\.(?:weight|bias|scale|input_scale)"
    r"|ffn_gate_inp\.(?:weight|bias)|exp_probs_b(?:\.bias|\.weight)?)"
)
"""Tensors whose slowest axis has a part for each expert: matrices, biases, scales, routers and their biases.

Source: the names of ``gguf`` (``TENSOR_NAMES``) and of llama.cpp's ``llama-arch.cpp``.
"""
OF_ALL: Final = re.compile(r"blk\.\d+\.(.*_shexp\..*|ffn_norm_exps\..*|ffn_gate_inp\.scale)")
"""Tensors with similar names that have no such axis."""
LIKE_THEM: Final = re.compile(r"blk\.\d+\..*(exp|gate_inp)")
ROUTER: Final = "ffn_gate_inp.weight"
MATRICES: Final = re.compile(r"ffn_\w+_exps\.weight")
WEIGHTS: Final = 1 << 22
"""Approximate number of weights to dequantise at a time."""


@dataclass(frozen=True, eq=False)
class GgufMixture:
    """A model, and its tensors with a part for each expert: layer, and the rest of the name.

    ``file`` is its only file, or the first of its parts; ``shards`` are all of them as they were opened.
    """

    file: Path
    model: GgufModel
    of_experts: dict[str, tuple[int, str]]
    shards: tuple[Shard, ...]

    @classmethod
    def open(cls, file: Path) -> GgufMixture:
        """Read the headers; ``ValueError``, in one line, for a file that is invalid or has no experts."""
        try:
            model = read_gguf(file)
            matches = {name: OF_EXPERTS.fullmatch(name) for name in model.header.tensors}
            of_experts = {name: (int(match[1]), match[2]) for name, match in matches.items() if match}
            mixture = cls(file, model, of_experts, model.shards())
            mixture._check()
        except ValueError as error:
            raise ValueError(f"{str(file)!r}: {error}") from None
        return mixture

    @property
    def header(self) -> GgufHeader:
        """The combined header of all parts."""
        return self.model.header

    @property
    def count_key(self) -> str:
        """The key of the number of experts."""
        return f"{self.header.architecture}.expert_count"

    @cached_property
    def routing(self) -> Routing:
        """The experts of a layer and the choice by its router; ``ValueError`` for invalid numbers."""
        experts, active = self._size("expert_count"), self._size("expert_used_count")
        groups, chosen = self._size("expert_group_count", 1), self._size("expert_group_used_count", 1)
        if experts % groups or active > experts or chosen > groups:
            raise ValueError(f"it has {experts} experts, {active} active, {chosen} of {groups} groups")
        return Routing(experts, active, groups, chosen if groups > 1 else 1)

    @cached_property
    def layers(self) -> list[int]:
        """The layers with experts, ascending."""
        return sorted({layer for layer, _ in self.of_experts.values()})

    @property
    def sizes(self) -> dict[str, int]:
        """The number of experts of a layer; neurons of them are stored in blocks, and are not counted."""
        return {AXIS: self.routing.experts}

    @cached_property
    def checkpoint(self) -> Checkpoint:
        """The file in the stock class; ``ValueError`` for an architecture that is not read so."""
        try:
            return Checkpoint.open(self.file, packed=True)
        except ValueError as error:
            raise ValueError(f"{error}; --criterion aimer needs no text") from None

    def costs(self, count: int, neurons: int | None = None) -> dict[str, int]:
        """Return the costs that tensors determine, with ``count`` experts in a layer and all ``neurons``."""
        del neurons
        params = active = size = 0
        for name, (start, end) in self.header.places.items():
            numbers, whole = prod(self.header.tensors[name]), end - start
            used = numbers
            if name in self.of_experts:
                numbers, whole = (each * count // self.routing.experts for each in (numbers, whole))
                is_routed = "_exps." in name
                used = numbers * self.routing.active // count if is_routed else numbers
            params, active, size = params + numbers, active + used, size + whole
        return {"params": params, "active_params": active, "weight_bytes": size}

    def by_weights(self, layer: int) -> Floats:
        """Return the scores (e,) of a layer's experts from their weights alone (``spread``).

        Some rows are dequantised at a time. Raises ``ValueError`` for weights that are not finite, or of a
        type that cannot be dequantised.
        """
        count, absolute, squares = (np.zeros(self.routing.experts) for _ in range(3))
        for name, (number, rest) in self.of_experts.items():
            if number == layer and MATRICES.fullmatch(rest):
                for expert, rows in self._rows(name):
                    count[expert] += rows.size
                    absolute[expert] += np.abs(rows).sum()
                    squares[expert] += np.square(rows).sum()
        if not np.isfinite(squares).all():
            raise ValueError(f"layer {layer} of {str(self.file)!r} has weights that are not finite")
        return spread(count, absolute, squares)

    def _rows(self, name: str) -> Iterator[tuple[int, Floats]]:
        """Yield the rows of a stack of matrices, some at a time, each with the number of its expert."""
        kind = readable(self.header.types[name])
        if kind is None:
            raise ValueError(
                f"tensor {name!r} has type number {self.header.types[name]}, whose numbers are not read: "
                "--criterion random needs none"
            )
        columns, rows, experts = self.header.tensors[name]
        start, _ = self.header.places[name]
        shape = (experts, rows, kind.size(columns))
        raw: Any = np.memmap(self.model.file_of[name], np.uint8, "r", start, shape)
        step = max(1, WEIGHTS // columns)
        for expert in range(experts):
            for first in range(0, rows, step):
                yield expert, dequantised(np.asarray(raw[expert, first : first + step]), kind).astype(float)

    def _size(self, key: str, missing: int | None = None) -> int:
        value = self.header.metadata.get(f"{self.header.architecture}.{key}", missing)
        if type(value) is not int or not 0 < value < 1 << 20:
            raise ValueError(f"its {self.header.architecture}.{key} is {str(value)[:40]}, which is no size")
        return value

    def _check(self) -> None:
        """Raise ``ValueError`` for files that would be cut incorrectly."""
        header = self.header
        if self.count_key not in header.metadata or not self.of_experts:
            raise ValueError(f"a {header.architecture} like this one has no experts to take out (ffn_*_exps)")
        experts = self.routing.experts
        for name in header.tensors:
            if "\ufffd" in name:
                raise ValueError(f"tensor {name!r} has a name that is no text")
            if header.types[name] not in BLOCKS:
                raise ValueError(
                    f"tensor {name!r} has type number {header.types[name]}, whose size is not known"
                )
            if name not in self.of_experts and LIKE_THEM.match(name) and not OF_ALL.fullmatch(name):
                raise ValueError(f"tensor {name!r} may be one of experts, and how it is cut is not known")
        for name, (_, rest) in self.of_experts.items():
            shape, blocks = header.tensors[name], BLOCKS[header.types[name]]
            matrix = MATRICES.fullmatch(rest) is not None
            if shape[-1] != experts or (len(shape) == 1 and blocks[0] > 1) or (matrix and len(shape) != 3):
                raise ValueError(
                    f"tensor {name!r} of {list(shape)} has no part for each of {experts} experts"
                )
        for layer in self.layers:
            present = {rest for number, rest in self.of_experts.values() if number == layer}
            joined = "ffn_gate_up_exps.weight" in present or "ffn_up_exps.weight" in present
            if ROUTER not in present or "ffn_down_exps.weight" not in present or not joined:
                raise ValueError(f"layer {layer} has experts without a router, or not all of their matrices")
