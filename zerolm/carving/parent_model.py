"""The parent of a carving: its name as it was given, its checkpoint, and what is known of its vocabulary."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from zerolm.checkpoints import Checkpoint

if TYPE_CHECKING:
    from zerolm.carving.export.verify import Verified


@dataclass(frozen=True, eq=False)
class ParentModel:
    """A parent as it is carved, maybe with fewer tokens than its ``checkpoint.whole`` one has.

    ``vocabulary`` is plain JSON: tokens of the ``parent`` and of the ``child``, those ``used`` by the text,
    the parameters that it ``saves`` to keep these alone, and what a smaller vocabulary costs. None where
    nothing is known of it.
    """

    name: str
    checkpoint: Checkpoint
    vocabulary: dict[str, Any] | None = None
    proof: Verified | None = None
