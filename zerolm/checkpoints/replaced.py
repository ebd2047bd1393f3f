"""A tensor of a checkpoint with other numbers than those that are stored."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from zerolm.checkpoints.headers import TensorInfo


@dataclass(frozen=True, slots=True)
class ReplacedTensor(TensorInfo):
    """A tensor in the place of a stored one of its shape, whose numbers ``read`` makes when they are used."""

    read: Callable[[], NDArray[np.float32]]

    @classmethod
    def of(cls, info: TensorInfo, read: Callable[[], NDArray[np.float32]]) -> Self:
        """Return a tensor in the place of a stored one, with other numbers."""
        return cls(info.name, info.dtype, info.shape, info.file, info.start, info.end, read)

    @property
    def is_packed(self) -> bool:
        return True

    def numbers(self) -> NDArray[np.float32]:
        return self.read()
