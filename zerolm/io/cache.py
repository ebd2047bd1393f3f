"""What a long command has measured, kept in the user's cache so that a killed one goes on from there."""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from zerolm.checkpoints import Checkpoint
from zerolm.io.files import cache_folder

Arrays = dict[str, NDArray[Any]]


@dataclass(frozen=True)
class Kept:
    """Named sets of arrays of one measurement; with no ``folder`` nothing is kept.

    Files appear complete or not at all, hold no objects, and one that is damaged counts as absent.
    """

    folder: Path | None = None

    @classmethod
    def of(cls, kind: str, *key: object) -> Kept:
        """Those of the measurement of this ``kind`` that depends on all of ``key`` and on nothing else."""
        digest = hashlib.sha256(repr(key).encode()).hexdigest()
        return cls(cache_folder(kind) / digest)

    def get(self, name: str) -> Arrays | None:
        """The arrays put under a name, or None."""
        if self.folder is None:
            return None
        try:
            with np.load(self.folder / f"{name}.npz", allow_pickle=False) as file:
                return {each: file[each] for each in file.files}
        except Exception:  # damage shows in many ways
            return None

    def put(self, name: str, arrays: Mapping[str, NDArray[Any]]) -> None:
        """Keep arrays under a name; a cache that cannot be written is no reason to fail."""
        if self.folder is None:
            return
        with suppress(OSError):
            self.folder.mkdir(parents=True, exist_ok=True)
            handle, temporary = tempfile.mkstemp(prefix=".", dir=self.folder)
            try:
                with os.fdopen(handle, "wb") as file:
                    np.savez(file, allow_pickle=False, **arrays)
                os.replace(temporary, self.folder / f"{name}.npz")
            finally:
                Path(temporary).unlink(missing_ok=True)

    def forget(self) -> None:
        """Remove all of it: it has served."""
        if self.folder is not None and self.folder.is_dir():
            for file in self.folder.iterdir():
                with suppress(OSError):
                    file.unlink()
            with suppress(OSError):
                self.folder.rmdir()


def identity(checkpoint: Checkpoint) -> tuple[object, ...]:
    """What tells one state of a checkpoint from another: its configuration, and its shards' headers, sizes
    and times of change."""
    shards = tuple((shard.file.name, shard.header, shard.size, shard.modified) for shard in checkpoint.shards)
    return (repr(sorted(checkpoint.config.items())), shards)
