"""Kept rows and columns of a stored tensor, as chunks of bytes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from zerolm.architecture import Ints
from zerolm.checkpoints.tensors import TensorInfo
from zerolm.checkpoints.writer import Chunk


def sliced(tensor: TensorInfo, kept: Mapping[int, Ints]) -> Iterator[Chunk]:
    """The bytes of ``tensor[kept[0]][:, kept[1]]``; an axis that is not named is kept whole.

    Indices ascend strictly. Memory is bounded by a few megabytes, whatever the tensor.
    """
    raise NotImplementedError
