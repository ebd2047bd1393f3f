"""A GGUF file with fewer experts, byte for byte: a new header, and the kept part of each tensor."""

from __future__ import annotations

import os
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Final

import numpy as np

from zerolm.architecture import Ints
from zerolm.carving.experts.gguf_mixture import GgufMixture
from zerolm.checkpoints.gguf.header import SCALARS, read_gguf_header
from zerolm.checkpoints.gguf.parts import COUNT
from zerolm.checkpoints.writer import Span, copy_span
from zerolm.io.full_disk import check_room
from zerolm.progress import Progress, silent

BLOCK: Final = 1 << 20
"""Bytes to compare at a time."""
TENSORS_AT: Final = 8
"""The position of the number of tensors in a header, behind the magic bytes and the version."""


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
