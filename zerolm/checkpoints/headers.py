"""The headers of safetensors files: which tensor lies where, checked before a byte of it is used."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, Self

import numpy as np
from numpy.typing import NDArray

from zerolm.checkpoints.dtypes import RAW_TYPES, widened
from zerolm.io.brief import brief
from zerolm.io.files import parse_json

MAX_HEADER: Final = 100_000_000
MAX_DIMENSION: Final = 1 << 40
ITEM_BYTES: Final = {
    **dict.fromkeys(("BOOL", "U8", "I8", "F8_E4M3", "F8_E5M2", "F8_E8M0"), 1),
    **dict.fromkeys(("U16", "I16", "F16", "BF16"), 2),
    **dict.fromkeys(("U32", "I32", "F32"), 4),
    **dict.fromkeys(("U64", "I64", "F64"), 8),
}
FLOATS: Final = ("BF16", "F16", "F32")
"""The dtypes that weights are computed in."""


@dataclass(frozen=True, slots=True)
class TensorInfo:
    """Where a tensor lies: bytes ``start`` to ``end`` of ``file``, counted from its beginning.

    ``dtype`` is the name that safetensors has for it: BF16, F16, F32, ... A matrix that several tensors hold
    is a ``PackedTensor``, one that is in a type of GGUF a ``TypedTensor``.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    file: Path
    start: int
    end: int

    @property
    def item_bytes(self) -> int:
        return ITEM_BYTES[self.dtype]

    @property
    def count(self) -> int:
        """How many numbers it holds."""
        return math.prod(self.shape)

    @property
    def stored(self) -> tuple[TensorInfo, ...]:
        """The tensors of files that hold its numbers: itself."""
        return (self,)

    @property
    def is_packed(self) -> bool:
        """Whether its numbers are stored quantised."""
        return False

    @property
    def bits(self) -> int:
        """The bits of a number."""
        return 8 * self.item_bytes

    def bytes_of(self, count: int) -> int:
        """Return the bytes of ``count`` of its numbers."""
        return count * self.item_bytes

    def raw(self) -> NDArray[Any]:
        """Return it as it is stored, mapped and read-only: uint16 for BF16 and F16, float32 for F32."""
        kind = RAW_TYPES[self.dtype]
        if not self.count:
            return np.empty(self.shape, kind)
        return np.memmap(self.file, kind, "r", self.start, self.shape)

    def numbers(self) -> NDArray[np.float32]:
        """Return its numbers in its shape, all in memory, exact for BF16, F16 and F32."""
        return widened(np.asarray(self.raw()), self.dtype)

    def one(self, index: int) -> Self:
        """Return the tensor at this index of the first axis, at its place in the file."""
        size = (self.end - self.start) // self.shape[0]
        start = self.start + index * size
        return replace(self, shape=self.shape[1:], start=start, end=start + size)


@dataclass(frozen=True, slots=True)
class ReplacedTensor(TensorInfo):
    """A tensor in the place of a stored one of its shape, whose numbers ``read`` makes when they are used."""

    read: Callable[[], NDArray[np.float32]]

    @classmethod
    def of(cls, info: TensorInfo, read: Callable[[], NDArray[np.float32]]) -> Self:
        """Return a tensor in the place of a stored one, with other numbers."""
        return cls(info.name, info.dtype, info.shape, info.file, info.start, info.end, read)

    @property
    def is_packed(self) -> bool:
        return True

    def numbers(self) -> NDArray[np.float32]:
        return self.read()


@dataclass(frozen=True, slots=True, repr=False)
class Shard:
    """One safetensors file: its tensors in the order in which they lie.

    ``header`` is the SHA-256 of its header, ``size`` in bytes, ``modified`` in nanoseconds. Names are those
    in the file without the ``wrapper`` that stands before all of them there.
    """

    file: Path
    tensors: dict[str, TensorInfo]
    header: str
    size: int
    modified: int
    wrapper: str = ""

    def __repr__(self) -> str:
        return brief(self, str(self.file), f"{len(self.tensors)} tensors, {self.size:,} bytes")


def read_shard(file: Path) -> Shard:
    """Read and check the header of a safetensors file; ``ValueError`` names the file and what is wrong."""
    try:
        if not file.is_file():
            raise ValueError("it is not a regular file")
        with file.open("rb") as opened:
            state = file.stat()
            length = int.from_bytes(opened.read(8), "little")
            if length > MAX_HEADER:
                raise ValueError(f"its header claims {length} bytes; at most {MAX_HEADER} are read")
            if not 2 <= length <= state.st_size - 8:
                raise ValueError(f"its header claims {length} bytes, but the file has {state.st_size}")
            header = opened.read(length)
        document = parse_json(header.decode("utf-8"))
        tensors = _tensors(file, document, 8 + length, state.st_size)
    except (OSError, ValueError, RecursionError) as error:
        is_json = not isinstance(error, json.JSONDecodeError | RecursionError)
        reason = error if is_json else "its header is no JSON"
        raise ValueError(f"{str(file)!r} is not a sound safetensors file: {reason}") from None
    return Shard(file, tensors, hashlib.sha256(header).hexdigest(), state.st_size, state.st_mtime_ns)


def _tensors(file: Path, document: Any, data: int, size: int) -> dict[str, TensorInfo]:
    """Return the tensors of a header whose data begins at byte ``data``, without gap, overlap or rest."""
    if not isinstance(document, dict):
        raise ValueError("its header is not an object")
    metadata = document.pop("__metadata__", None)
    is_texts = isinstance(metadata, dict) and all(isinstance(text, str) for text in metadata.values())
    if metadata is not None and not is_texts:
        raise ValueError("its __metadata__ is not an object of texts")
    tensors = [_tensor(file, name, entry, data) for name, entry in document.items()]
    tensors.sort(key=lambda tensor: (tensor.start, tensor.end))
    reached = data
    for tensor in tensors:
        if tensor.start != reached:
            what = "overlaps another" if tensor.start < reached else "leaves a gap before it"
            raise ValueError(f"tensor {tensor.name!r} {what}")
        reached = tensor.end
    if reached != size:
        what = "is cut off" if reached > size else "has bytes that belong to no tensor"
        raise ValueError(f"it {what}: its tensors end at byte {reached}, the file at {size}")
    return {tensor.name: tensor for tensor in tensors}


def _tensor(file: Path, name: str, entry: Any, data: int) -> TensorInfo:
    if not isinstance(entry, dict) or set(entry) != {"dtype", "shape", "data_offsets"}:
        raise ValueError(f"tensor {name!r} is not described by dtype, shape and data_offsets")
    dtype, shape, offsets = entry["dtype"], entry["shape"], entry["data_offsets"]
    if not isinstance(dtype, str) or dtype not in ITEM_BYTES:
        raise ValueError(f"tensor {name!r} has dtype {dtype!r}; known are {', '.join(ITEM_BYTES)}")
    if not _is_sizes(shape) or len(shape) > 8:
        raise ValueError(f"tensor {name!r} has shape {shape!r}")
    if not _is_sizes(offsets) or len(offsets) != 2:
        raise ValueError(f"tensor {name!r} has data_offsets {offsets!r}")
    start, end = offsets
    needed = math.prod(shape) * ITEM_BYTES[dtype]
    if end - start != needed:
        raise ValueError(f"tensor {name!r} has {end - start} bytes, but {dtype} {shape} needs {needed}")
    return TensorInfo(name, dtype, tuple(shape), file, data + start, data + end)


def _is_sizes(value: Any) -> bool:
    return isinstance(value, list) and all(type(n) is int and 0 <= n <= MAX_DIMENSION for n in value)
