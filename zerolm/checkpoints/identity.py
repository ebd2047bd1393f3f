"""Telling one state of weights from another: cheaply by their files, or surely by all their bytes."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Final

import numpy as np

from zerolm.checkpoints.checkpoint import Checkpoint
from zerolm.checkpoints.headers import Shard, TensorInfo
from zerolm.checkpoints.rows import byte_blocks
from zerolm.io.cache import ArrayCache
from zerolm.progress import Progress, silent

FINGERPRINT_VERSION: Final = "1"
SAMPLE_BLOCK: Final = 4096
SAMPLED: Final = 4 << 20
"""Bytes of a shard that are sampled: all of a smaller one; at least one block of each tensor."""
HASHED_BYTES: Final = 1 << 20


def state_of(shard: Shard) -> tuple[object, ...]:
    """Return an identity of the current state of a shard, in some milliseconds whatever its size.

    That is its path and inode, size, times of change, the SHA-256 of its header, and one of ``SAMPLED`` bytes
    taken evenly from all tensors, the first and the last of each among them. A copy is another file, even
    one with all its times (``cp -p``). An edit in place counts where it moves a time of change, which the
    system does with every write, or where it meets a sampled byte. What is not seen: bytes between the
    samples, changed on a system that keeps no such times, or whose clock was set back for it.
    """
    state = shard.file.stat()
    times = state.st_mtime_ns, state.st_ctime_ns
    path = os.path.realpath(shard.file)
    return (path, state.st_ino, state.st_size, *times, shard.header, sampled(shard))


def sampled(shard: Shard) -> str:
    """Return the SHA-256 of the sampled bytes of a shard."""
    digest = hashlib.sha256()
    with shard.file.open("rb", buffering=0) as file:
        for tensor in shard.tensors.values():
            for start, end in _blocks(tensor, max(1, SAMPLED // (SAMPLE_BLOCK * len(shard.tensors)))):
                file.seek(start)
                digest.update(file.read(end - start))
    return digest.hexdigest()


def _blocks(tensor: TensorInfo, count: int) -> Iterator[tuple[int, int]]:
    """Yield where the sampled blocks of a tensor begin and end: evenly, or all of it where it is short."""
    if tensor.end - tensor.start <= count * SAMPLE_BLOCK:
        yield tensor.start, tensor.end
        return
    for step in range(count):
        start = tensor.start + step * (tensor.end - tensor.start - SAMPLE_BLOCK) // max(count - 1, 1)
        yield start, start + SAMPLE_BLOCK


def fingerprint(checkpoint: Checkpoint, *, progress: Progress = silent) -> str:
    """Return the SHA-256 of all weights: by name their types, shapes and bytes, wherever the files lie.

    It does not depend on how tensors are spread over files. All bytes are read once; the cache holds the
    SHA-256 of each tensor as long as ``state_of`` its shard is the same.
    """
    digests: dict[str, bytes] = {}
    done, of = 0, sum(shard.size for shard in checkpoint.shards)
    for shard in checkpoint.shards:
        cache = ArrayCache.of("fingerprints", FINGERPRINT_VERSION, *state_of(shard))
        stored = (cache.get("tensors") or {}).get("sha256")
        if stored is None or stored.shape != (len(shard.tensors), 32) or stored.dtype != np.uint8:
            progress("hashing the weights", done, of)
            stored = _hashed(shard)
            cache.put("tensors", {"sha256": stored})
        done += shard.size
        digests |= {name: row.tobytes() for name, row in zip(shard.tensors, stored, strict=True)}
    hashed = {
        part.name: part
        for name, info in checkpoint.tensors.items()
        if name in checkpoint.layout.slots
        for part in info.stored
    }
    lines = (
        f"{name} {info.dtype} {info.shape} {digests[name].hex()}" for name, info in sorted(hashed.items())
    )
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


def _hashed(shard: Shard) -> np.ndarray[tuple[int, int], np.dtype[np.uint8]]:
    """Return the SHA-256 of each tensor, (tensors, 32), several threads reading."""
    with ThreadPoolExecutor(threads()) as pool:
        digests = list(pool.map(_digest, shard.tensors.values()))
    check_unchanged(shard)
    return np.frombuffer(b"".join(digests), np.uint8).reshape(-1, 32)


def _digest(tensor: TensorInfo) -> bytes:
    digest = hashlib.sha256()
    for block in byte_blocks(tensor.file, tensor.start, tensor.end, HASHED_BYTES):
        digest.update(block)
    return digest.digest()


def threads() -> int:
    """Return the number of threads that read a shard."""
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(usable, 8)


def check_unchanged(shard: Shard) -> None:
    """Raise ``ValueError`` where a file has changed since it was opened."""
    state = shard.file.stat()
    if (state.st_size, state.st_mtime_ns) != (shard.size, shard.modified):
        raise ValueError(f"{str(shard.file)!r} has changed since it was opened")
