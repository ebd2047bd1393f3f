"""The header of a GGUF file, checked by hand before any library is given the file."""

from __future__ import annotations

import hashlib
import mmap
import struct
from collections.abc import Collection
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any, Final

from zerolm.checkpoints.weight_types import BLOCKS

MAGIC: Final = b"GGUF"
VERSIONS: Final = (2, 3)
MAX_ENTRIES: Final = 1 << 20
MAX_GGUF_HEADER: Final = 256 << 20
KEPT: Final = 4096
"""Values of longer arrays (vocabularies) are passed over."""
SCALARS: Final = dict(zip((0, 1, 2, 3, 4, 5, 6, 7, 10, 11, 12), "BbHhIif?Qqd", strict=True))
STRING, ARRAY = 8, 9
ALIGNMENT: Final = "general.alignment"
UNKNOWN: Final = (1, 0)
"""Weights and bytes of a block of other types: their tensors are checked for where they begin only."""


@dataclass(frozen=True)
class GgufHeader:
    """Short metadata by key, and the shape of each tensor (the fastest axis first, as GGUF has it).

    ``types`` are the numbers of the tensors' types, ``places`` their first bytes and those behind their last.
    ``digest`` is the SHA-256 of all that is before the tensors. ``entries`` are the first byte of each entry
    of metadata and that behind its last.
    """

    metadata: dict[str, Any]
    tensors: dict[str, tuple[int, ...]]
    types: dict[str, int]
    places: dict[str, tuple[int, int]]
    digest: str
    entries: dict[str, tuple[int, int]]

    @property
    def alignment(self) -> int:
        """The number of bytes that the place of each tensor is a multiple of."""
        return int(self.metadata.get(ALIGNMENT, 32))

    @property
    def architecture(self) -> str:
        return str(self.metadata.get("general.architecture"))

    def of_layers(self, key: str) -> tuple[int, ...] | None:
        """Return a value of the architecture for each layer, repeated if one; None where it is unsound."""
        depth = self.metadata.get(f"{self.architecture}.block_count")
        value = self.metadata.get(f"{self.architecture}.{key}")
        if type(depth) is not int or not 0 < depth <= KEPT:
            return None
        values: list[Any] = value if isinstance(value, list) else [value] * depth
        return tuple(values) if len(values) == depth and all(type(v) is int for v in values) else None


def read_gguf_header(file: Path, whole: Collection[str] = ()) -> GgufHeader:
    """Read and check a header; ``ValueError`` names the file and what is wrong with it.

    ``whole`` are the keys of long arrays that are wanted, too.
    """
    try:
        with file.open("rb") as opened, mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ) as data:
            return _header(_Cursor(data, whole), len(data))
    except (OSError, ValueError, struct.error) as error:
        reason = "it ends within its header" if isinstance(error, struct.error) else error
        raise ValueError(f"{str(file)!r} is not a sound GGUF file: {reason}") from None


class _Cursor:
    """Reads little-endian values one after another, never beyond the header's largest size."""

    def __init__(self, data: mmap.mmap, whole: Collection[str]) -> None:
        self._data, self.at, self._whole = data, 0, whole

    @property
    def digest(self) -> str:
        """The SHA-256 of what was read."""
        return hashlib.sha256(self._data[: self.at]).hexdigest()

    def _claim(self, size: int) -> int:
        start, self.at = self.at, self.at + size
        if self.at > min(len(self._data), MAX_GGUF_HEADER):
            raise ValueError("it ends within its header, or has one that is absurdly large")
        return start

    def number(self, code: str) -> Any:
        return self.numbers(code, 1)[0]

    def numbers(self, code: str, count: int) -> tuple[Any, ...]:
        start = self._claim(count * struct.calcsize(f"<{code}"))
        return struct.unpack_from(f"<{count}{code}", self._data, start)

    def text(self) -> str:
        size = self.number("Q")
        start = self._claim(size)
        return self._data[start : start + size].decode("utf-8", "replace")

    def entry(self) -> tuple[str, Any]:
        """Return the key and the value of one entry of metadata; None for a long array that is not wanted."""
        key, kind = self.text(), self.number("I")
        return key, self._value(kind, 1 << 62 if key in self._whole else KEPT)

    def _value(self, kind: int, most: int) -> Any:
        if kind in SCALARS:
            return self.number(SCALARS[kind])
        if kind == STRING:
            return self.text()
        if kind != ARRAY:
            raise ValueError(f"its metadata has a value of type {kind}, which is none")
        kind, count = self.number("I"), self.number("Q")
        if kind == STRING:
            if count <= most:
                return [self.text() for _ in range(count)]
            for _ in range(count):
                self._claim(self.number("Q"))
            return None
        if kind not in SCALARS:
            raise ValueError(f"its metadata has an array of type {kind}")
        if count <= most:
            return list(self.numbers(SCALARS[kind], count))
        self._claim(count * struct.calcsize(f"<{SCALARS[kind]}"))
        return None


def _header(cursor: _Cursor, size: int) -> GgufHeader:
    if bytes(cursor.numbers("B", 4)) != MAGIC:
        raise ValueError("it does not begin with GGUF")
    version, tensors, entries = cursor.number("I"), cursor.number("Q"), cursor.number("Q")
    if version not in VERSIONS:
        raise ValueError(f"it has version {version}; read are {' and '.join(map(str, VERSIONS))}")
    if max(tensors, entries) > MAX_ENTRIES:
        raise ValueError(f"it claims {tensors} tensors and {entries} entries; {MAX_ENTRIES} are read")
    metadata, spans = dict[str, Any](), dict[str, tuple[int, int]]()
    for _ in range(entries):
        start = cursor.at
        key, value = cursor.entry()
        if key in metadata:
            raise ValueError(f"two entries of its metadata are {key!r}")
        metadata[key], spans[key] = value, (start, cursor.at)
    placed = [_tensor(cursor) for _ in range(tensors)]
    alignment = metadata.get(ALIGNMENT, 32)
    if type(alignment) is not int or not 0 < alignment <= 1 << 20:
        raise ValueError(f"it has alignment {alignment!r}")
    data = -(-cursor.at // alignment) * alignment
    for name, _, _, start, length in placed:
        if start % alignment:
            raise ValueError(f"tensor {name!r} does not begin at a multiple of {alignment}")
        if data + start + length > size:
            raise ValueError(f"it is cut off: tensor {name!r} ends at byte {data + start + length} of {size}")
    shapes = {name: shape for name, shape, *_ in placed}
    if len(shapes) < len(placed):
        raise ValueError("two of its tensors have one name")
    places = {name: (data + start, data + start + length) for name, _, _, start, length in placed}
    reached = 0
    for name, (start, end) in sorted(places.items(), key=lambda item: item[1]):
        if start < reached:
            raise ValueError(f"tensor {name!r} overlaps another")
        reached = max(reached, end)
    types = {name: kind for name, _, kind, *_ in placed}
    return GgufHeader(metadata, shapes, types, places, cursor.digest, spans)


def _tensor(cursor: _Cursor) -> tuple[str, tuple[int, ...], int, int, int]:
    """Return name, shape, type, first byte (after the header) and bytes of a tensor."""
    name, axes = cursor.text(), cursor.number("I")
    if not 0 < axes <= 4:
        raise ValueError(f"tensor {name!r} has {axes} axes")
    shape = cursor.numbers("Q", axes)
    kind, start = cursor.number("I"), cursor.number("Q")
    weights, size = BLOCKS.get(kind, UNKNOWN)
    if shape[0] % weights:
        raise ValueError(f"tensor {name!r} has rows of {shape[0]}, not in blocks of {weights}")
    return name, shape, kind, start, prod(shape) // weights * size
