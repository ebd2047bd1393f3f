"""Writing safetensors shard by shard, never more than a chunk in memory."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class Span:
    """Bytes of another file, copied by the kernel where it can."""

    file: Path
    start: int
    end: int


Chunk = bytes | NDArray[Any] | Span
SHARD_BYTES: Final = 5_000_000_000


@dataclass(frozen=True, slots=True)
class Outgoing:
    """A tensor to write: ``chunks`` is called once, when its turn comes, and yields its bytes in order."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    chunks: Callable[[], Iterable[Chunk]]


def write_shards(
    folder: Path,
    tensors: Sequence[Outgoing],
    max_bytes: int = SHARD_BYTES,
    metadata: Mapping[str, str] = {"format": "pt"},
    progress: Callable[[int, int], None] = lambda done, of: None,
) -> list[Path]:
    """Write ``model.safetensors``, or shards of at most ``max_bytes`` of data with their index.

    Everything is on the disk when it returns. The folder exists; nothing in it is replaced. Raises
    ``ValueError`` when a tensor's chunks have another length than its type and shape say.
    """
    raise NotImplementedError
