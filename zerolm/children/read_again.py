"""Weight files, read again while they are written."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Final

import numpy as np

from zerolm.checkpoints import Outgoing, Span
from zerolm.checkpoints.headers import read_shard
from zerolm.checkpoints.rows import byte_blocks

BLOCK: Final = 1 << 18
"""Bytes to compare at a time: this number fits into a processor's cache."""


class ReadAgain(AbstractContextManager["ReadAgain"]):
    """Compares each tensor with the intended one, and computes the files' digests, in a separate thread.

    So files are read while the system's memory still holds them, and writing does not wait.
    """

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1)
        self._files: dict[Path, FileAgain] = {}
        self._done: list[Future[None]] = []

    def __exit__(self, *_: object) -> None:
        self._thread.shutdown(cancel_futures=True)
        for file in self._files.values():
            file.opened.close()

    def written(self, file: Path, tensor: Outgoing) -> None:
        """Add the next tensor of a file, which has been written."""
        if file not in self._files:
            self._files[file] = FileAgain(file)
        self._done.append(self._thread.submit(self._files[file].next, tensor))

    def digests(self) -> dict[Path, str]:
        """Return the SHA-256 of all files, which are complete; ``ValueError`` names a tensor that differs."""
        for future in self._done:
            future.result()
        return {path: file.digest() for path, file in self._files.items()}


class FileAgain:
    """A safetensors file that is compared tensor by tensor with the intended content."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.opened = path.open("rb")
        self.sum = hashlib.sha256()
        self.tensors: list[Outgoing] = []
        self.start = 0
        """Where the bytes of the first tensor begin."""

    def next(self, tensor: Outgoing) -> None:
        """Compare the bytes of the next tensor; ``ValueError`` where they differ."""
        if not self.tensors:
            length = self.opened.read(8)
            header = self.opened.read(int.from_bytes(length, "little"))
            self.start = len(length) + len(header)
            self.sum.update(length + header)
        self.tensors.append(tensor)
        for part in parts_of(tensor):
            stored = self.opened.read(len(part))
            if stored != part:
                raise ValueError(f"{tensor.name!r} of the written child differs from what its parent has")
            self.sum.update(stored)

    def digest(self) -> str:
        """Return the SHA-256 of the file; ``ValueError`` where it has other tensors than those compared."""
        inside, start = dict(read_shard(self.path).tensors), self.start
        for tensor in self.tensors:
            info = inside.pop(tensor.name, None)
            wanted = tensor.dtype, tensor.shape, start, start + tensor.bytes
            if info is None or (info.dtype, info.shape, info.start, info.end) != wanted:
                raise ValueError(f"{tensor.name!r} of the written child differs from what its parent has")
            start += tensor.bytes
        if inside or self.opened.read(1):
            name = self.path.name
            raise ValueError(f"{name!r} of the written child has tensors that were not to be written")
        return self.sum.hexdigest()


def parts_of(tensor: Outgoing) -> Iterator[bytes]:
    """Yield the bytes of a tensor to be written, some at a time."""
    for chunk in tensor.chunks():
        if isinstance(chunk, Span):
            yield from byte_blocks(chunk.file, chunk.start, chunk.end, BLOCK)
        else:
            yield chunk if isinstance(chunk, bytes) else np.ascontiguousarray(chunk).tobytes()
