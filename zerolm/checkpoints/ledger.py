"""The ledger of a checkpoint, from one streaming pass: sums of each row and column of each matrix."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from typing import Final

import numpy as np

from zerolm.checkpoints.checkpoint import Checkpoint
from zerolm.checkpoints.headers import FLOATS, Shard
from zerolm.checkpoints.identity import check_unchanged, state_of, threads
from zerolm.checkpoints.matrix_sums import Summing, Sums, Totals, plain, sums_of
from zerolm.io.cache import ArrayCache
from zerolm.io.files import sha256_of
from zerolm.progress import Progress, silent

logger = logging.getLogger(__name__)

WORTH_COMPILING: Final = 256 << 20
"""Bytes below which numpy is done before the compiled kernel is loaded."""
SUMS_VERSION: Final = "3"
SUM_TYPES: Final = {"squares": "f8", "absolute": "f8", "largest": "f4", "smallest": "f4"}
"""How the cache holds the sums: no weight has more digits than a float32."""
ShardSums = dict[str, list[Sums]]
"""By tensor the sums of its rows and of its columns, or those of all of it."""


@dataclass(frozen=True, eq=False)
class Ledger:
    """Totals of all tensors by name, and sums of the rows and columns of the matrices in layers."""

    totals: Mapping[str, Totals]
    sums: ShardSums

    def rows(self, name: str) -> Sums:
        """Of each row (axis 0) of a matrix in a layer, as stored, in float64; ``KeyError`` for another."""
        return self.sums[name][0].widened()

    def cols(self, name: str) -> Sums:
        """Of each column (axis 1)."""
        return self.sums[name][1].widened()

    def total(self, name: str) -> Totals:
        """Of a whole tensor."""
        return self.totals[name]


def ledger_of(
    checkpoint: Checkpoint, *, verify: bool = False, cache: bool = True, progress: Progress = silent
) -> Ledger:
    """Return the ledger of a checkpoint: from the cache where its shards have not changed, else by one pass.

    A shard is unchanged while ``state_of`` it is; ``verify`` compares a SHA-256 of its content too.
    ``progress`` gets bytes done and bytes in all. Raises ``ValueError`` that names the tensor for weights
    that are not finite. Shards already done are not read again after a run was killed. Packed matrices are
    left out.
    """
    slots = checkpoint.layout.slots
    of = sum(shard.size for shard in checkpoint.shards)
    summing = best_summing(of)
    totals, matrices, done = dict[str, Totals](), ShardSums(), 0
    for shard in checkpoint.shards:
        check_unchanged(shard)
        names = [name for name in shard.tensors if name in slots and checkpoint.tensors[name].dtype in FLOATS]
        wanted = {name: slots[name].layer is not None and len(slots[name].axes) == 2 for name in names}
        content = sha256_of(shard.file) if verify else ""
        stored = ArrayCache()
        if cache:
            stored = ArrayCache.of("ledgers", SUMS_VERSION, *state_of(shard), *sorted(wanted.items()))
        sums = _stored(stored, shard, wanted, content)
        if sums is None:
            method = "numpy" if summing is plain else "numba"
            logger.info("passing over %s, %d bytes, by %s", shard.file, shard.size, method)
            sums = _pass_over(shard, wanted, summing, done, of, progress)
            check_unchanged(shard)
            _store(stored, [each for name in wanted for each in sums[name]], content)
        done += shard.size
        progress("reading the weights", done, of)
        totals |= {name: of_axes[0].totals(shard.tensors[name].count) for name, of_axes in sums.items()}
        matrices |= {name: of_axes for name, of_axes in sums.items() if len(of_axes) > 1}
    return Ledger(totals, matrices)


def best_summing(size: int) -> Summing:
    """Return the compiled sums if numba is there and the size justifies compiling, else those in numpy."""
    if size < WORTH_COMPILING:
        return plain
    try:
        from zerolm.checkpoints.kernel import compiled
    except (ImportError, RuntimeError):  # not there, or no folder for what it compiles
        return plain
    return compiled


def _pass_over(
    shard: Shard, wanted: Mapping[str, bool], summing: Summing, done: int, of: int, progress: Progress
) -> ShardSums:
    """Pass over a shard, its tensors shared among threads, the largest first so that all end together."""
    sums: ShardSums = {}
    tensors = sorted((shard.tensors[name] for name in wanted), key=lambda tensor: tensor.start - tensor.end)
    pool = ThreadPoolExecutor(threads())
    try:
        running = {pool.submit(sums_of, tensor, summing): tensor for tensor in tensors}
        for future in as_completed(running):
            tensor = running[future]
            rows, cols = future.result()
            sums[tensor.name] = [rows, cols] if wanted[tensor.name] else [rows.together()]
            done += tensor.end - tensor.start
            progress("reading the weights", done, of)
    finally:
        pool.shutdown(cancel_futures=True)
    return sums


def _store(cache: ArrayCache, sums: list[Sums], content: str) -> None:
    """Store the sums of a shard, with the SHA-256 of its file or ``""``."""
    arrays = {
        column: np.concatenate([np.empty(0, kind), *(getattr(each, column) for each in sums)], dtype=kind)
        for column, kind in SUM_TYPES.items()
    }
    cache.put("sums", {**arrays, "content": np.array(content)})


def _stored(cache: ArrayCache, shard: Shard, wanted: Mapping[str, bool], content: str) -> ShardSums | None:
    """Return stored sums; None where there are none, or they are damaged or of another ``content``."""
    arrays = cache.get("sums")
    sizes = {name: shard.tensors[name].shape if of_axes else (1,) for name, of_axes in wanted.items()}
    lengths = [length for size in sizes.values() for length in size]
    if arrays is None or arrays.keys() != {*SUM_TYPES, "content"}:
        return None
    columns = [arrays[name] for name in SUM_TYPES]
    if any(x.shape != (sum(lengths),) or x.dtype.kind != "f" or not np.isfinite(x).all() for x in columns):
        return None
    if content and str(arrays["content"]) != content:
        return None
    pieces = zip(*(np.split(column, np.cumsum(lengths)[:-1]) for column in columns), strict=True)
    return {name: [Sums(*next(pieces)) for _ in size] for name, size in sizes.items()}
