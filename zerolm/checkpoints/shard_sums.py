"""The record of one shard: its sums, and the small file in the user's cache that holds them."""

from __future__ import annotations

import hashlib
import zipfile
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import astuple, dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from zerolm.checkpoints.headers import Shard
from zerolm.checkpoints.identity import state_of
from zerolm.checkpoints.matrix_sums import Sums, Totals
from zerolm.io.files import cache_folder, replacing, sha256_of

SUMS_VERSION: Final = "2"
SUM_TYPES: Final = {"squares": "f8", "absolute": "f8", "largest": "f4", "smallest": "f4"}
"""How a file holds the sums: no weight has more digits than a float32."""


@dataclass(frozen=True, slots=True)
class ShardRecord:
    """By tensor: its totals, and the sums of its rows and columns where they are wanted."""

    totals: dict[str, Totals] = field(default_factory=dict)
    rows: dict[str, Sums] = field(default_factory=dict)
    cols: dict[str, Sums] = field(default_factory=dict)


def content_of(shard: Shard) -> str:
    """Return the SHA-256 of a shard's file."""
    return sha256_of(shard.file)


def record_path(shard: Shard, wanted: Mapping[str, bool]) -> Path:
    """Return where the cache has the sums of this state of a shard.

    ``wanted`` maps its tensors to whether each row and column counts.
    """
    key = [SUMS_VERSION, *state_of(shard), *sorted(wanted.items())]
    return cache_folder("ledgers") / f"{hashlib.sha256(repr(key).encode()).hexdigest()}.npz"


def save(path: Path, record: ShardRecord, shard: Shard, wanted: Mapping[str, bool], content: str) -> None:
    """Store a record, with the SHA-256 of the shard or ``""``.

    A cache that cannot be written is no reason to fail.
    """
    ordered = [sums[name] for name in _detailed(shard, wanted) for sums in (record.rows, record.cols)]
    totals = np.array([astuple(record.totals[name]) for name in wanted], float).reshape(-1, 5)
    with suppress(OSError), replacing(path) as file, zipfile.ZipFile(file, "w") as archive:
        _put(archive, "content", np.array(content))
        _put(archive, "totals", totals)
        for column, kind in SUM_TYPES.items():  # one after another: they are large
            pieces = [getattr(sums, column) for sums in ordered]
            _put(archive, column, np.concatenate([np.empty(0, kind), *pieces], dtype=kind))


def _put(archive: zipfile.ZipFile, name: str, array: NDArray[Any]) -> None:
    with archive.open(f"{name}.npy", "w", force_zip64=True) as file:
        np.lib.format.write_array(file, array, allow_pickle=False)


def load(path: Path, shard: Shard, wanted: Mapping[str, bool], content: str) -> ShardRecord | None:
    """Return a stored record; None where there is none, or it is damaged or of another ``content``."""
    try:
        with np.load(path, allow_pickle=False) as file:
            arrays = {name: file[name] for name in (*SUM_TYPES, "totals", "content")}
    except Exception:  # damage shows in many ways
        return None
    sizes = [size for name in _detailed(shard, wanted) for size in shard.tensors[name].shape]
    shapes = dict.fromkeys(SUM_TYPES, (sum(sizes),)) | {"totals": (len(wanted), 5)}
    if not all(arrays[name].shape == shape and _is_finite(arrays[name]) for name, shape in shapes.items()):
        return None
    if content and str(arrays["content"]) != content:
        return None
    pieces = (
        Sums(*(arrays[column][start:end] for column in SUM_TYPES))
        for start, end in pairwise(np.cumsum([0, *sizes]))
    )
    record = ShardRecord()
    for name, (count, *sums) in zip(wanted, arrays["totals"].tolist(), strict=True):
        record.totals[name] = Totals(int(count), *sums)
    for name in _detailed(shard, wanted):
        record.rows[name], record.cols[name] = next(pieces), next(pieces)
    return record


def _is_finite(array: NDArray[Any]) -> bool:
    return array.dtype.kind == "f" and bool(np.isfinite(array).all())


def _detailed(shard: Shard, wanted: Mapping[str, bool]) -> list[str]:
    return [name for name in shard.tensors if wanted.get(name)]
