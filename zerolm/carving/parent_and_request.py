"""A parent and its request: the sizes, methods and destination of its child, and the session that runs it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Final

from zerolm.carving.formats import FORMATS, Format
from zerolm.carving.recipe import Recipe
from zerolm.carving.request import PRICES, Destination, Methods
from zerolm.carving.result import ChildExperts, ChildVocabulary, UnitRow
from zerolm.checkpoints import Checkpoint
from zerolm.checkpoints.gguf.names import is_rearranged
from zerolm.costs import CostModel
from zerolm.planning.part_costs import StoredCosts
from zerolm.planning.size_request import SizeRequest
from zerolm.planning.sizes import budgets_of, costs_of
from zerolm.progress import Progress
from zerolm.settings.compute import ComputeRequest
from zerolm.text.defaults import GENERATED
from zerolm.units.kept_units import Cut
from zerolm.units.stream.narrowing import Basis, Width
from zerolm.units.stream.weights_basis import weights_basis

if TYPE_CHECKING:
    from zerolm.carving.bits.planner import TypePlanner
    from zerolm.carving.session import Session
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
    notes: tuple[str, ...]
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


NOWHERE: Final = Destination()
ANYWHERE: Final = ComputeRequest()
TYPED_BITS: Final = 5
"""Bits per weight with which types lose less than fewer tokens or cuts: at 4 they cost .2 % of the bits per
byte of a small llama, at 7 nothing (benchmarks/joint.md)."""


@dataclass(frozen=True, eq=False)
class Carving:
    """A parent and its request; ``session`` is None without tokens, ``recipe`` that of a rebuilt child."""

    parent: ParentModel
    size: SizeRequest
    methods: Methods
    destination: Destination
    costs: CostModel
    compute: ComputeRequest
    progress: Progress
    session: Session | None
    recipe: Recipe | None = None

    @property
    def checkpoint(self) -> Checkpoint:
        """The parent to be carved, with the kept tokens."""
        return self.parent.checkpoint

    @property
    def format(self) -> Format:
        return FORMATS[str(self.destination.form)]

    @cached_property
    def typing(self) -> TypePlanner | None:
        """The planner of quantisation types; None where weights keep their stored types."""
        if not self.has_types or self.recipe is not None:
            return None
        from zerolm.carving.bits.planner import TypePlanner

        return TypePlanner(self.checkpoint, self.size, self.session, self.costs, self.progress)

    @property
    def is_done(self) -> bool:
        """Whether only tokens or experts are removed, which the parent has lost already."""
        return self.checkpoint.fewer is not None and not self.size.cuts_layers and not self.has_types

    @property
    def has_types(self) -> bool:
        return self.size.weights.are_chosen(str(self.destination.form), self.size.budgets)

    @cached_property
    def basis(self) -> Basis:
        """The basis of the stream: the session's, else that from weights."""
        if self.session is not None:
            return self.session.basis
        return weights_basis(self.checkpoint, progress=self.progress)

    def costs_of(self, cut: Cut | None = None) -> dict[str, int]:
        if cut is None:
            return whole_costs(self.checkpoint, self.costs, self.size.space)
        return costs_of(self.checkpoint, self.costs, cut, self.size.space)

    def keeps_budgets(self, *, bits: int | None = None) -> bool:
        """Return whether the uncut parent keeps the budgets, stored in ``bits`` per weight if given.

        It does not where a share cuts units.
        """
        size = self.size
        if size.space is not None or any(share < 1 for share in size.keep.values()):
            return False
        costs = self.costs_of()
        if bits is not None:
            costs["weight_bytes"] = costs["params"] * bits // 8
        return all(costs[name.removeprefix("max_")] <= limit for name, limit in size.budgets.items())

    @property
    def whole_costs(self) -> dict[str, int]:
        """The costs of the parent with all its tokens."""
        return whole_costs(self.checkpoint.whole, self.costs, self.size.space)

    def narrowed(self, cut: Cut, width: Width | None) -> Cut:
        """Return the cut with a stream of this width."""
        if width is None:
            return cut
        narrowing = self.basis.narrowing(width)
        share = f"{narrowing.kept:.1%} of its energy kept"
        self.progress(f"narrowing the stream to {width.hidden} of {cut.parent.hidden} directions: {share}")
        return replace(cut, narrowing=narrowing)

    @property
    def narrows(self) -> bool:
        """Whether losses determine the width of the stream."""
        size = self.size
        is_free = bool(size.budgets) and size.space is None and size.keep.get("hidden") != 1
        return self.checkpoint.family.cut.hidden and is_free and self.methods.plan == PRICES

    def running(self) -> Carving:
        """Return the same carving with the session that runs its parent on tokens, if methods need any.

        A session gets no criterion of experts, which ranks no units, where nothing else is cut. Raises
        ``ValueError`` for an unavailable device, even where nothing is run, and for a parent that does not
        fit into memory where it has to generate a text.
        """
        checkpoint, methods = self.checkpoint, self.methods
        if methods.text is None:
            if self.compute != ANYWHERE:
                from zerolm.networks.compute import compute

                compute(self.compute)
            return replace(self, session=None)
        from zerolm.carving.session import Session

        typed = self.recipe.types is not None if self.recipe else self.has_types
        if self.is_done and self.recipe is None:
            methods = replace(methods, criterion=Methods.criterion)
        types = typed and not is_rearranged(checkpoint.family)
        session = Session(checkpoint, methods, self.progress, self.compute, types=types)
        session.check_criterion()
        if methods.text == GENERATED:
            from zerolm.text.generated import check_room

            check_room(checkpoint, session.compute)
        return replace(self, session=session)


def within_budgets(
    size: SizeRequest, methods: Methods, form: str, costs: Mapping[str, int], params: int
) -> SizeRequest:
    """Return a request with budgets as numbers; ``ValueError`` for what cannot be, and for unknown costs."""
    unknown = next((name for name in size.budgets if name.removeprefix("max_") not in costs), None)
    if unknown is not None:
        raise ValueError(f"{unknown} is not known of this parent; {', '.join(costs)} are")
    if "max_kv_bytes" in size.budgets and not costs["kv_bytes"]:
        raise ValueError("the parent keeps no KV cache: give another budget, such as --max-params 0.7x")
    limits = size.weights.limits(budgets_of(size.budgets, costs), params)
    methods.check()
    size.weights.check(form, limits)
    size.vocabulary.check(methods.text, limits)
    return size.within(limits)


def whole_costs(checkpoint: Checkpoint, costs: CostModel, space: str | None) -> dict[str, int]:
    """Return the costs of the parent; for a quantised one the bytes are those of its file."""
    whole = costs_of(checkpoint, costs, space=space)
    if quantised_types(checkpoint) and checkpoint.source is not None and isinstance(costs, StoredCosts):
        whole["weight_bytes"] = checkpoint.source.bytes
    return whole


def quantised_types(checkpoint: Checkpoint) -> tuple[str, ...]:
    """Return the types of a quantised parent; empty for another."""
    return checkpoint.source.quantised if checkpoint.source else ()
