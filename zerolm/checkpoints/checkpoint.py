"""A pretrained checkpoint: a folder with a configuration and safetensors files."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from zerolm.checkpoints.families import Family
from zerolm.checkpoints.layout import Layout
from zerolm.checkpoints.tensors import Shard, TensorInfo


@dataclass(frozen=True)
class Checkpoint:
    """What a folder holds, read and checked; no weights are in memory.

    ``tensors`` are those of all ``shards`` by name; ``layout`` says what each of them is.
    """

    folder: Path
    config: dict[str, Any]
    family: Family
    layout: Layout
    shards: tuple[Shard, ...]
    tensors: dict[str, TensorInfo]

    @classmethod
    def open(cls, name: str | Path) -> Checkpoint:
        """Open a local folder, or fetch a model of the hub (``owner/name``) and open it.

        Raises ``ValueError``, in one line, for anything that is not a sound checkpoint of a known family.
        """
        raise NotImplementedError

    def raw(self, name: str) -> NDArray[Any]:
        """A tensor as it is stored, mapped and read-only: uint16 for BF16 and F16, float32 for F32."""
        raise NotImplementedError

    def read(self, name: str, rows: slice | None = None) -> NDArray[np.float32]:
        """A tensor, or some of its rows, in memory as float32 (exact for BF16, F16 and F32)."""
        raise NotImplementedError

    def other_files(self) -> list[Path]:
        """What a child takes over as it is, relative to ``folder``: tokenizer, chat template, licence, README, ..."""
        raise NotImplementedError
