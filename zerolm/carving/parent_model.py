"""The parent of a carving: its given name, its checkpoint, and the units that it has lost already."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from zerolm.carving.experts.result import ChildExperts
from zerolm.carving.result import UnitRow
from zerolm.carving.vocabulary.result import ChildVocabulary
from zerolm.checkpoints import Checkpoint

if TYPE_CHECKING:
    from zerolm.children.verify import Verified


@dataclass(frozen=True, eq=False)
class KeptExperts:
    """The kept experts of a parent, ``described`` for a report and a recipe, and their ``repair``.

    ``units`` list experts, and neurons of them, ``before`` and ``after``, and the removed parameters.
    ``proof`` compares the parent with the one whose routers mask the removed experts, None where nothing is
    written. ``optimal``: the criterion prefers no other choice; None where that is unknown.
    """

    described: ChildExperts
    repair: str
    units: list[UnitRow]
    note: str
    proof: Verified | None
    optimal: bool | None


@dataclass(frozen=True, eq=False)
class ParentModel:
    """A parent to be carved, possibly with fewer tokens or experts than its ``checkpoint.whole``.

    ``vocabulary`` is None where tokens were not examined. ``loss_of_tokens`` is the loss of fewer tokens on
    held-out text, in nats per token, or 1 - cosine. ``experts`` are the kept ones, None where all are kept;
    ``note`` explains that decision.
    """

    name: str
    checkpoint: Checkpoint
    vocabulary: ChildVocabulary | None = None
    proof: Verified | None = None
    experts: KeptExperts | None = None
    loss_of_tokens: float = 0.0
    note: str = ""
