"""A GGUF file of any architecture with experts, and the same with fewer, byte for byte.

It has tensors with a part for each expert. A child has a new header, and the kept part of each tensor.
"""

from __future__ import annotations

import os
import re
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from math import prod
from pathlib import Path
from typing import Any, Final

import numpy as np

from zerolm.architecture import Floats, Ints
from zerolm.carving.experts.expert_scores import spread
from zerolm.carving.experts.fewer_experts import AXIS
from zerolm.carving.experts.stock_mixture import Routing
from zerolm.checkpoints import Checkpoint
from zerolm.checkpoints.gguf.dequantise import dequantised, readable
from zerolm.checkpoints.gguf.header import SCALARS, GgufHeader, read_gguf_header
from zerolm.checkpoints.gguf.parts import COUNT, GgufModel, read_gguf
from zerolm.checkpoints.headers import Shard
from zerolm.checkpoints.weight_types import BLOCKS
from zerolm.checkpoints.writer import Span, copy_span
from zerolm.io.full_disk import check_room
from zerolm.progress import Progress, silent

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
BLOCK: Final = 1 << 20
"""Bytes to compare at a time."""
TENSORS_AT: Final = 8
"""The position of the number of tensors in a header, behind the magic bytes and the version."""


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


@dataclass(frozen=True, eq=False)
class FewerGgufExperts:
    """A file, and the numbers of the kept experts of each layer with experts, ascending."""

    parent: GgufMixture
    by_layer: Mapping[int, Ints]

    @property
    def count(self) -> int:
        """The number of experts that a layer keeps."""
        return len(next(iter(self.by_layer.values())))

    def shape(self, name: str) -> tuple[int, ...]:
        """Return the shape of the kept part of a tensor, the fastest axis first."""
        shape = self.parent.header.tensors[name]
        return (*shape[:-1], self.count) if name in self.parent.of_experts else shape

    def spans(self, name: str) -> list[Span]:
        """Return the spans of the kept part of a tensor in the parent's file."""
        (start, end), file = self.parent.header.places[name], self.parent.model.file_of[name]
        if name not in self.parent.of_experts:
            return [Span(file, start, end)]
        kept = self.by_layer[self.parent.of_experts[name][0]]
        size = (end - start) // self.parent.routing.experts
        runs = np.split(kept, np.flatnonzero(np.diff(kept) != 1) + 1)
        return [Span(file, start + int(r[0]) * size, start + (int(r[-1]) + 1) * size) for r in runs]

    def write(self, file: Path, progress: Progress = silent) -> None:
        """Write the new file, flushed to disk; ``DiskFull`` before writing where it does not fit."""
        header, spans = self._header(), {name: self.spans(name) for name in self._in_order()}
        total = len(header) + sum(map(self._padded, map(_size, spans.values())))
        check_room(file.parent, total)
        with file.open("xb") as opened:
            opened.write(header)
            for parts in spans.values():
                for span in parts:
                    copy_span(span, opened)
                opened.write(bytes(self._padded(_size(parts)) - _size(parts)))
                progress("writing the weights", opened.tell(), total)
            opened.flush()
            os.fsync(opened.fileno())

    def compare(self, file: Path) -> None:
        """Read the written file and its parent again; ``ValueError`` names what differs."""
        child, parent = read_gguf_header(file), self.parent.header
        if child.metadata != parent.metadata | self._changes or list(child.tensors) != list(parent.tensors):
            raise ValueError("the written child has other metadata or tensors than were to be written")
        for key in parent.entries.keys() - self._changes.keys():
            if _read(file, *child.entries[key]) != _read(self.parent.file, *parent.entries[key]):
                raise ValueError("the written child has other metadata than its parent")
        for name in parent.tensors:
            written, wanted = Span(file, *child.places[name]), self.spans(name)
            same = (child.tensors[name], child.types[name]) == (self.shape(name), parent.types[name])
            if not same or not _are_equal(written, wanted):
                raise ValueError(f"{name!r} of the written child differs from what its parent has")

    def _in_order(self) -> list[str]:
        """Return the tensors in the order of the file, or of its parts."""
        model = self.parent.model
        order = {file: number for number, file in enumerate(model.files)}
        places = model.header.places
        return sorted(places, key=lambda name: (order[model.file_of[name]], places[name]))

    @property
    def _changes(self) -> dict[str, int]:
        """Metadata that differ from the parent's: the number of experts, and that of parts, which is 0."""
        of_parts = {COUNT: 0} if COUNT in self.parent.header.metadata else {}
        return {self.parent.count_key: self.count, **of_parts}

    def _padded(self, size: int) -> int:
        alignment = self.parent.header.alignment
        return -(-size // alignment) * alignment

    def _header(self) -> bytes:
        """Return all before the tensors: the parent's metadata with ``_changes``, and new offsets."""
        header = self.parent.header
        end = max(last for _, last in header.entries.values())
        text = bytearray(_read(self.parent.file, 0, end))
        for key, value in self._changes.items():
            at = header.entries[key][0]
            at += 8 + struct.unpack_from("<Q", text, at)[0]
            code = SCALARS[struct.unpack_from("<I", text, at)[0]]
            struct.pack_into(f"<{code}", text, at + 4, value)
        struct.pack_into("<Q", text, TENSORS_AT, len(header.tensors))
        places, start = dict[str, int](), 0
        for name in self._in_order():
            places[name] = start
            start += self._padded(_size(self.spans(name)))
        for name in header.tensors:
            shape, encoded = self.shape(name), name.encode()
            text += struct.pack("<Q", len(encoded)) + encoded + struct.pack("<I", len(shape))
            text += struct.pack(f"<{len(shape)}QIQ", *shape, header.types[name], places[name])
        return bytes(text) + bytes(self._padded(len(text)) - len(text))


def _size(spans: list[Span]) -> int:
    return sum(span.end - span.start for span in spans)


def _read(file: Path, start: int, end: int) -> bytes:
    with file.open("rb") as opened:
        opened.seek(start)
        return opened.read(end - start)


def _are_equal(written: Span, wanted: list[Span]) -> bool:
    """Return whether a span has the bytes of others, read a block at a time."""
    at = written.start
    for span in wanted:
        for start, end in pairwise([*range(span.start, span.end, BLOCK), span.end]):
            if _read(span.file, start, end) != _read(written.file, at, at + end - start):
                return False
            at += end - start
    return at == written.end
