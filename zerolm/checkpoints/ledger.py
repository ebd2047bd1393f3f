"""The ledger of a checkpoint, from one streaming pass: sums of each row and column of each matrix."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor, as_completed
from typing import Final

from zerolm.checkpoints.checkpoint import Checkpoint
from zerolm.checkpoints.headers import FLOATS, Shard
from zerolm.checkpoints.identity import check_unchanged, threads
from zerolm.checkpoints.layout import Slot
from zerolm.checkpoints.matrix_sums import Summing, Sums, Totals, plain, sums_of
from zerolm.checkpoints.shard_sums import ShardRecord, content_of, load, record_path, save
from zerolm.progress import Progress, silent

logger = logging.getLogger(__name__)

__all__ = ["Ledger", "Sums", "Totals", "ledger_of"]

WORTH_COMPILING: Final = 256 << 20
"""Bytes below which numpy is done before the compiled kernel is loaded."""


class Ledger:
    """Totals of all tensors, and sums of the rows and columns of the matrices in layers."""

    def __init__(self, records: Mapping[str, ShardRecord]) -> None:
        self._records = records

    def rows(self, name: str) -> Sums:
        """Of each row (axis 0) of a matrix in a layer, as stored, in float64; ``KeyError`` for another."""
        return self._records[name].rows[name].widened()

    def cols(self, name: str) -> Sums:
        """Of each column (axis 1)."""
        return self._records[name].cols[name].widened()

    def total(self, name: str) -> Totals:
        """Of a whole tensor."""
        return self._records[name].totals[name]


def ledger_of(
    checkpoint: Checkpoint,
    *,
    verify: bool = False,
    cache: bool = True,
    progress: Progress = silent,
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
    records: dict[str, ShardRecord] = {}
    done = 0
    for shard in checkpoint.shards:
        check_unchanged(shard)
        names = [name for name in shard.tensors if name in slots and checkpoint.tensors[name].dtype in FLOATS]
        wanted = {name: _is_matrix_in_layer(slots[name]) for name in names}
        content = content_of(shard) if verify else ""
        path = record_path(shard, wanted)
        record = load(path, shard, wanted, content) if cache else None
        if record is not None:
            logger.info("reused %s for %s", path, shard.file)
        else:
            logger.info(
                "passing over %s, %d bytes, by %s",
                shard.file,
                shard.size,
                "numpy" if summing is plain else "numba",
            )
            record = _pass_over(shard, wanted, summing, done, of, progress)
            check_unchanged(shard)
            if cache:
                save(path, record, shard, wanted, content)
        done += shard.size
        progress("reading the weights", done, of)
        records |= dict.fromkeys(wanted, record)
    return Ledger(records)


def best_summing(size: int) -> Summing:
    """Return the compiled sums if numba is installed and the size justifies compiling, else those in
    numpy."""
    if size < WORTH_COMPILING:
        return plain
    try:
        from zerolm.checkpoints.kernel import compiled
    except (ImportError, RuntimeError):  # not there, or no folder for what it compiles
        return plain
    return compiled


def _pass_over(
    shard: Shard, wanted: Mapping[str, bool], summing: Summing, done: int, of: int, progress: Progress
) -> ShardRecord:
    """Pass over a shard, its tensors shared among threads, the largest first so that all end together."""
    record = ShardRecord()
    tensors = sorted((shard.tensors[name] for name in wanted), key=lambda tensor: tensor.start - tensor.end)
    pool = ThreadPoolExecutor(threads())
    try:
        running = {pool.submit(sums_of, tensor, summing): tensor for tensor in tensors}
        for future in as_completed(running):
            tensor = running[future]
            rows, cols = future.result()
            record.totals[tensor.name] = rows.totals(tensor.count)
            if wanted[tensor.name]:
                record.rows[tensor.name], record.cols[tensor.name] = rows, cols
            done += tensor.end - tensor.start
            progress("reading the weights", done, of)
    finally:
        pool.shutdown(cancel_futures=True)
    return record


def _is_matrix_in_layer(slot: Slot) -> bool:
    return slot.layer is not None and len(slot.axes) == 2
