"""Writing safetensors shard by shard, never more than a chunk in memory."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, BinaryIO, Final, Self

import numpy as np
from numpy.typing import NDArray

from zerolm.checkpoints.headers import ITEM_BYTES, TensorInfo
from zerolm.checkpoints.rows import byte_blocks
from zerolm.checkpoints.shards import INDEX, SINGLE
from zerolm.io.full_disk import check_room
from zerolm.progress import Progress, silent

SHARD_BYTES: Final = 5_000_000_000
COPY_BYTES: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class Span:
    """Bytes ``start`` to ``end`` of another file, copied by the kernel where it can."""

    file: Path
    start: int
    end: int


Chunk = bytes | NDArray[Any] | Span


@dataclass(frozen=True, slots=True)
class Outgoing:
    """A tensor to write: ``chunks`` is called when its turn comes, and again to compare; it yields its bytes.

    Arrays are written as they lie in memory, raw; ``dtype`` is the name that safetensors has for it.
    ``stored`` is the tensor that it copies whole, if it does.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    chunks: Callable[[], Iterable[Chunk]]
    stored: TensorInfo | None = None

    @classmethod
    def copied(cls, info: TensorInfo, name: str | None = None) -> Self:
        """Return a stored tensor as it is, under this or its own name."""
        stored = replace(info, name=name or info.name)
        span = Span(info.file, info.start, info.end)
        return cls(stored.name, info.dtype, info.shape, lambda: [span], stored)

    @property
    def bytes(self) -> int:
        return int(np.prod(self.shape, dtype=object)) * ITEM_BYTES[self.dtype]


def write_shards(
    folder: Path,
    tensors: Sequence[Outgoing],
    max_bytes: int = SHARD_BYTES,
    progress: Progress = silent,
    written: Callable[[Path, Outgoing], None] | None = None,
) -> list[Path]:
    """Write ``model.safetensors``, or shards of at most ``max_bytes`` of data with their index.

    Everything is on the disk when it returns; a file gets there while the next is written. The folder exists,
    and nothing in it is replaced. ``progress`` gets bytes written and bytes in all, ``written`` each tensor
    with its file as soon as it can be read there, in their order. Returns the files. Raises ``DiskFull``
    before anything is written where it does not fit, and ``ValueError`` when a tensor's chunks are more or
    fewer bytes than its type and shape say.
    """
    shards = _divided(tensors, max_bytes)
    total = sum(tensor.bytes for tensor in tensors)
    check_room(folder, total)
    names = [f"model-{n:05d}-of-{len(shards):05d}.safetensors" for n in range(1, len(shards) + 1)]
    paths = [folder / name for name in (names if len(shards) > 1 else [SINGLE])]
    done = 0
    with ThreadPoolExecutor(1) as behind:
        settled: list[Future[None]] = []
        for path, shard in zip(paths, shards, strict=True):
            with path.open("xb") as file:
                file.write(_header(shard))
                for tensor in shard:
                    _write(file, tensor)
                    done += tensor.bytes
                    progress("writing the weights", done, total)
                    if written is not None:
                        file.flush()
                        written(path, tensor)
            settled.append(behind.submit(_settle, path))
        for future in settled:
            future.result()
    if len(shards) > 1:
        places = {
            tensor.name: path.name for path, shard in zip(paths, shards, strict=True) for tensor in shard
        }
        index = {"metadata": {"total_size": total}, "weight_map": dict(sorted(places.items()))}
        paths.append(folder / INDEX)
        with paths[-1].open("xb") as file:
            file.write(json.dumps(index, indent=2).encode() + b"\n")
        _settle(paths[-1])
    _flush_folder(folder)
    return paths


def _divided(tensors: Sequence[Outgoing], max_bytes: int) -> list[list[Outgoing]]:
    """The tensors of each shard, in their order; one that is too large for any has its own."""
    if len({tensor.name for tensor in tensors}) < len(tensors):
        raise ValueError("two tensors to write have the same name")
    shards: list[list[Outgoing]] = [[]]
    filled = 0
    for tensor in tensors:
        if shards[-1] and filled + tensor.bytes > max_bytes:
            shards.append([])
            filled = 0
        shards[-1].append(tensor)
        filled += tensor.bytes
    for shard in shards:  # readers map numbers in place: wide ones first, all are then aligned
        shard.sort(key=lambda tensor: -ITEM_BYTES[tensor.dtype])
    return shards


def _header(shard: Sequence[Outgoing]) -> bytes:
    entries: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    at = 0
    for tensor in shard:
        entries[tensor.name] = {
            "dtype": tensor.dtype,
            "shape": list(tensor.shape),
            "data_offsets": [at, at + tensor.bytes],
        }
        at += tensor.bytes
    text = json.dumps(entries, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text


def _write(file: BinaryIO, tensor: Outgoing) -> None:
    begin = file.tell()
    for chunk in tensor.chunks():
        if isinstance(chunk, Span):
            copy_span(chunk, file)
        else:
            file.write(chunk if isinstance(chunk, bytes) else np.ascontiguousarray(chunk).data)
    written = file.tell() - begin
    if written != tensor.bytes:
        raise ValueError(f"tensor {tensor.name!r} came as {written} bytes instead of {tensor.bytes}")


def copy_span(span: Span, target: BinaryIO) -> None:
    """Append a span, within the kernel if both file systems allow."""
    at = span.start
    target.flush()
    with span.file.open("rb", buffering=0) as source:
        try:
            while at < span.end:
                copied = os.copy_file_range(source.fileno(), target.fileno(), span.end - at, at)
                if not copied:
                    break
                at += copied
        except (OSError, AttributeError):
            pass  # a file system or platform without it; a full disk shows again below
    target.seek(0, os.SEEK_END)
    for block in byte_blocks(span.file, at, span.end, COPY_BYTES):
        target.write(block)


def _settle(path: Path) -> None:
    with path.open("r+b") as file:
        os.fsync(file.fileno())


def _flush_folder(folder: Path) -> None:
    """Make new names in a folder last, where the platform can."""
    if os.name == "posix":
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
