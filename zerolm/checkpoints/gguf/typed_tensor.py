"""A matrix of a GGUF file that is read as it is stored: in one of the types of such files."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from zerolm.checkpoints.gguf.dequantise import dequantised
from zerolm.checkpoints.headers import TensorInfo
from zerolm.checkpoints.weight_types import WeightType


@dataclass(frozen=True, slots=True)
class TypedTensor(TensorInfo):
    """A matrix in blocks of a ``kind``, whose name is the ``dtype``."""

    kind: WeightType

    @property
    def is_packed(self) -> bool:
        return True

    @property
    def bits(self) -> int:
        return round(self.kind.bits)

    def bytes_of(self, count: int) -> int:
        return self.kind.size(count)

    def numbers(self) -> NDArray[np.float32]:
        """Return its numbers in its shape, all in memory."""
        columns = self.shape[-1]
        shape = (self.count // columns, self.kind.size(columns))
        raw: Any = np.memmap(self.file, np.uint8, "r", self.start, shape)
        return dequantised(np.asarray(raw), self.kind).reshape(self.shape)
