"""Files of weights read again as soon as they are on the disk, while the next one is written."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path
from types import TracebackType
from typing import Final, Self

import numpy as np

from zerolm.checkpoints import Outgoing, Span
from zerolm.checkpoints.headers import read_shard

BLOCK: Final = 1 << 20
"""Bytes that are compared at a time."""
FILES: Final = 2
"""Files that are read at a time: the sums of one take longer than the writing of the next."""


class ReadAgain:
    """Compares each file with what was to be written into it, in threads of its own.

    So a file is read while the memory of the system still holds it, and writing does not wait for that.
    """

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(FILES)
        self._files: dict[Path, Future[str]] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._threads.shutdown(cancel_futures=True)

    def written(self, file: Path, tensors: Sequence[Outgoing]) -> None:
        """Take a file that has these tensors, in their order."""
        self._files[file] = self._threads.submit(compared, file, tensors)

    def digests(self) -> dict[Path, str]:
        """Return the SHA-256 of all files; ``ValueError`` names the first tensor that differs."""
        return {file: digest.result() for file, digest in self._files.items()}


def compared(file: Path, tensors: Sequence[Outgoing]) -> str:
    """Return the SHA-256 of a safetensors file; ``ValueError`` names a tensor that is not as it should be."""
    inside, whole = read_shard(file).tensors, hashlib.sha256()
    if list(inside) != [tensor.name for tensor in tensors if tensor.name in inside]:
        raise ValueError(f"{file.name!r} of the written child has tensors that were not to be written")
    with file.open("rb") as opened:
        whole.update(opened.read(min((each.start for each in inside.values()), default=-1)))
        for tensor in tensors:
            info = inside.get(tensor.name)
            same = info is not None and (info.dtype, info.shape) == (tensor.dtype, tensor.shape)
            for part in bytes_of(tensor) if same else ():
                ours = opened.read(len(part))
                whole.update(ours)
                same = same and ours == part
            if info is None or not same or opened.tell() != info.end:
                raise ValueError(f"{tensor.name!r} of the written child differs from what its parent has")
    return whole.hexdigest()


def bytes_of(tensor: Outgoing) -> Iterator[bytes]:
    """Yield the bytes of a tensor that is to be written."""
    for chunk in tensor.chunks():
        if isinstance(chunk, Span):
            with chunk.file.open("rb") as file:
                file.seek(chunk.start)
                for start, end in pairwise([*range(chunk.start, chunk.end, BLOCK), chunk.end]):
                    yield file.read(end - start)
        else:
            yield chunk if isinstance(chunk, bytes) else np.ascontiguousarray(chunk).tobytes()
