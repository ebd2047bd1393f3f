"""Arrays that a long command has computed, in the user's cache, so that a killed one goes on from there."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from zerolm.io.files import cache_folder, replacing

logger = logging.getLogger(__name__)

Arrays = dict[str, NDArray[Any]]


@dataclass(frozen=True)
class ArrayCache:
    """Named sets of arrays of one computation; with no ``folder`` nothing is stored.

    Files appear complete or not at all, hold no objects, and one that is damaged counts as absent.
    """

    folder: Path | None = None

    @classmethod
    def of(cls, kind: str, *key: object) -> ArrayCache:
        """Return the cache of a computation of this ``kind`` that depends on all of ``key`` and no more."""
        digest = hashlib.sha256(repr(key).encode()).hexdigest()
        return cls(cache_folder(kind) / digest)

    def get(self, name: str, only: Collection[str] | None = None) -> Arrays | None:
        """Return the arrays put under a name, or None; ``only`` these are read, where some are named."""
        if self.folder is None:
            return None
        try:
            with np.load(self.folder / f"{name}.npz", allow_pickle=False) as file:
                arrays = {key: file[key] for key in (file.files if only is None else only)}
        except Exception:  # damage shows in many ways
            return None
        logger.info("reused %s", self.folder / f"{name}.npz")
        return arrays

    def put(self, name: str, arrays: Mapping[str, NDArray[Any]]) -> None:
        """Store arrays under a name; a cache that cannot be written is no reason to fail."""
        if self.folder is None:
            return
        with suppress(OSError), replacing(self.folder / f"{name}.npz") as file:
            np.savez(file, allow_pickle=False, **arrays)
            logger.debug("kept %s", self.folder / f"{name}.npz")

    def once(self, name: str, compute: Callable[[], Arrays]) -> Arrays:
        """Return the arrays under a name; without any they are computed, and stored."""
        arrays = self.get(name)
        if arrays is None:
            arrays = compute()
            self.put(name, arrays)
        return arrays

    def forget(self) -> None:
        """Remove all of it: it has served."""
        if self.folder is not None and self.folder.is_dir():
            for file in self.folder.iterdir():
                with suppress(OSError):
                    file.unlink()
            with suppress(OSError):
                self.folder.rmdir()
