"""The parent of a carving: its name as it was given, its checkpoint, and what left of it already."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from zerolm.checkpoints import Checkpoint

if TYPE_CHECKING:
    from zerolm.children.verify import Verified


@dataclass(frozen=True, eq=False)
class KeptExperts:
    """The experts that a parent keeps, as plain JSON: ``described`` for a report.

    ``recorded`` adds them to a recipe. ``units`` list experts, and neurons of them, ``before`` and ``after``,
    and the parameters that left with them. ``proof`` compares the parent with the one whose routers cannot
    choose the others, None where nothing is written. ``optimal``: no other choice is better by its criterion;
    None where that is not known.
    """

    described: dict[str, Any]
    recorded: Callable[[dict[str, Any]], dict[str, Any]]
    units: list[dict[str, Any]]
    note: str
    proof: Verified | None
    optimal: bool | None


@dataclass(frozen=True, eq=False)
class ParentModel:
    """A parent as it is carved, maybe with fewer tokens or experts than its ``checkpoint.whole`` one has.

    ``vocabulary`` is plain JSON: tokens of the ``parent`` and of the ``child``, those ``used`` by the text,
    the parameters that it ``saves`` to keep these alone, and what a smaller vocabulary costs. None where
    nothing is known of it. ``lost_by_tokens`` is what fewer tokens lose on held-out text, in nats a token, or
    1 - cosine. ``experts`` are those that stay, None where all do; ``note`` says how that was decided.
    """

    name: str
    checkpoint: Checkpoint
    vocabulary: dict[str, Any] | None = None
    proof: Verified | None = None
    experts: KeptExperts | None = None
    lost_by_tokens: float = 0.0
    note: str = ""
