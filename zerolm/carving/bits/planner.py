"""From a carving with quantisation types to its plan, measured as read back, and to its child."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from typing import Final

import numpy as np
import torch

from zerolm.carving.bits.directions import Directions
from zerolm.carving.bits.estimates import TypeEstimates
from zerolm.carving.bits.kernels import chunk
from zerolm.carving.bits.options import All, least_loss
from zerolm.carving.bits.plan import TypedPlan, Within, fewest_bytes, typed_plans
from zerolm.carving.bits.row_blocks import ROW_MULTIPLE, check_rows, fit_notes, in_blocks, widths_in_file
from zerolm.carving.bits.typed_child import TypedChild
from zerolm.carving.bits.weighed_child import WeighedChild
from zerolm.carving.result import TYPES_ALONE, EqualBytes
from zerolm.carving.session import Session
from zerolm.checkpoints import Checkpoint
from zerolm.checkpoints.weight_types import ALL, types_named
from zerolm.children.child_tensors import Child
from zerolm.costs import CostModel
from zerolm.planning.loss_table import LossTable
from zerolm.planning.part_costs import Choices
from zerolm.planning.plan import finalists
from zerolm.planning.size_request import SHARES, SizeRequest
from zerolm.planning.sizes import choices, plan_of, sizes_of
from zerolm.progress import Progress
from zerolm.solvers.problem import Budgets
from zerolm.solvers.solver import Infeasible
from zerolm.units.importance.criterion import Criterion, FirstUnits
from zerolm.units.kept_units import Cut, dimensions
from zerolm.units.pruning import Repaired

FINALISTS: Final = 3
"""Largest number of measured plans, not counting one of another width and that of types alone."""
BESIDE: Final = "types without other cuts"
"""The plan of types alone for a parent with fewer tokens or experts."""
SIZES: Final = 64
"""Approximate number of FFN widths to try."""


def row_multiple(ffn: int) -> int:
    """Return the step of widths with quantisation types: a power of two from 32, for about 64 widths."""
    most = max(1, ffn // (SIZES * ROW_MULTIPLE))
    return ROW_MULTIPLE << (most.bit_length() - 1)


class TypePlanner:
    """Plans types together with cuts, and measures the plans; ``session`` is None without tokens."""

    def __init__(
        self,
        checkpoint: Checkpoint,
        size: SizeRequest,
        session: Session | None,
        costs: CostModel,
        progress: Progress,
    ) -> None:
        step = size.multiple_of or row_multiple(dimensions(checkpoint).ffn)
        self.checkpoint, self.session, self.costs, self.progress = checkpoint, session, costs, progress
        self.rounded_shares, size = in_blocks(checkpoint, size)
        self.size = size if "ffn" in size.keep else replace(size, multiple_of=step)
        self.types = types_named(size.weights.types or "all", with_importances=session is not None)
        self.budget = int(size.budgets["max_weight_bytes"])
        others = {name: value for name, value in size.budgets.items() if name != "max_weight_bytes"}
        self.within = Within(self.budget, Budgets.of(others), costs)
        self._estimates: TypeEstimates | None = None

    @property
    def may_cut(self) -> bool:
        """Whether losses are compared: for any size within budgets, or for the layers of a share."""
        sizes, kept = sizes_of(self.checkpoint, self.size), self.size.keep
        is_free = any(each.can_be_cut and kind not in kept for kind, each in sizes.items())
        return is_free or kept.get("layers", 1) < 1

    @property
    def keeps_all(self) -> bool:
        return not self.may_cut and all(share == 1.0 for share in self.size.keep.values())

    def predicted(self, by: Criterion) -> list[TypedPlan]:
        """Return the best plans for each width, the best first; ``ValueError`` where there is none."""
        return typed_plans(self.estimates(by), by, self.size, self.within)

    def best(self, tables: Sequence[Criterion]) -> tuple[TypedPlan, list[EqualBytes], float | None]:
        """Return the plan of least loss as read back, the losses of all that were compared, and its own.

        The best predicted plans and types alone are compared, each with the types of least loss for its own
        repaired weights. Each of ``tables`` ranks plans; predicted losses are those of the first. Without
        tokens the plan is the best predicted one, and nothing is measured. Raises ``ValueError`` where no
        plan keeps the budgets.
        """
        ranked = [self.predicted(by) for by in tables]
        owner = {id(plan): by for by, plans in zip(tables, ranked, strict=True) for plan in plans}
        near = finalists(ranked, FINALISTS)
        if len({plan.width for plan in near}) == 1:  # predictions of different widths are less comparable
            near += [plan for plan in ranked[0] if plan.width != near[0].width][:1]
        plans = [self._with_loss_by(plan, owner[id(plan)], tables[0]) for plan in near]
        session = self.session
        if session is None:
            uncut = self._without_losses.weighed
            child = replace(uncut, child=Child(self.checkpoint, plans[0].cut), uncut=uncut)
            return self.typed(plans[0], child), [], None
        allowed = len(plans)
        if not any(plan.is_whole for plan in plans):
            whole = self._alone()
            plans += [whole] if whole else []
            may_be_whole = all(share == 1.0 for share in self.size.keep.values())
            allowed = len(plans) if may_be_whole else allowed
        losses = []
        for number, plan in enumerate(plans):
            self.progress("measuring the best plans, quantised", number, len(plans))
            cut = self.narrowed(plan)
            repaired = session.few_repaired(cut)
            plans[number] = plan = self.typed(plan, session.weighed(cut, repaired))
            losses.append(session.typed_final(cut, plan.types, None if session.repairs_types else repaired))
        best = min(range(allowed), key=losses.__getitem__)
        alone = TYPES_ALONE if self.checkpoint.fewer is None else BESIDE
        rows = [
            EqualBytes(alone if plan.is_whole else plan.in_words, plan.bytes, plan.loss, loss)
            for plan, loss in zip(plans, losses, strict=True)
        ]
        return plans[best], [*rows, *([] if self.within.limited else self._single())], losses[best]

    def _with_loss_by(self, plan: TypedPlan, by: Criterion, other: Criterion) -> TypedPlan:
        """Return a plan of one table with its loss by another."""
        if not isinstance(by, LossTable) or not isinstance(other, LossTable):
            return plan
        cut = self.narrowed(plan)
        return replace(plan, score=plan.score + by.predicted(cut) - other.predicted(cut))

    def estimates(self, by: Criterion) -> TypeEstimates:
        """Return the losses of types for all widths that ``by`` can compare."""
        hidden, session = self.checkpoint.layout.hidden, self.session
        widths = widths_in_file(self.checkpoint, by, self.size)
        wanted = {width.hidden if width else hidden for width in widths}
        every = tuple(sorted(wanted | {hidden}))
        if self._estimates is not None and self._estimates.hidden == every:
            return self._estimates
        estimates = replace(self._without_losses, hidden=every)
        if session is not None:
            is_narrower = wanted != {hidden}
            directions = Directions.of(session.basis.vectors, session.fisher) if is_narrower else None
            cache = session.cache("types", [kind.name for kind in self.types], sorted(wanted))
            weighed = replace(estimates.weighed, moments=session.moments, threads=torch.get_num_threads())
            estimates = replace(estimates, weighed=weighed, directions=directions, cache=cache)
        self._estimates = estimates
        return estimates

    @cached_property
    def _without_losses(self) -> TypeEstimates:
        whole = WeighedChild(Child(self.checkpoint, Cut.whole(dimensions(self.checkpoint))))
        return TypeEstimates(whole, self.types, progress=self.progress)

    def check(self, by_loss: bool) -> None:
        """Raise ``ValueError`` before the long computation for a request that would fail after it.

        ``by_loss``: losses of cuts are predicted. Raises ``ModuleNotFoundError`` without llama-cpp-python.
        """
        chunk()
        if self.size.weights.imatrix and self.session is None:
            raise ValueError("--imatrix needs the inputs of matrices on a text: give --text FILE")
        if self.may_cut and not by_loss:
            raise ValueError(
                "cuts and quantisation types are compared by their loss on a text: give --text FILE, or "
                "--keep 1 for types alone"
            )
        if self.size.weights.types not in (None, ALL):
            widths = widths_in_file(self.checkpoint, FirstUnits(-1.0), self.size)
            possible = (choices(self.checkpoint, self.size, width) for width in widths)
            rows, uncut = self._without_losses.rows, Choices.of_cut(self._without_losses.weighed.cut)
            check_rows(rows(possible), rows([uncut]), str(self.size.weights.types))
        least, sizes = fewest_bytes(self._without_losses, self.size)
        if least > self.budget:
            units = f"; with all units {self.fewest_alone:,}" if self.may_cut else ""
            bits, as_bits = self.size.weights.max_bits, ""
            if bits and self.budget:
                as_bits = f", --max-bits {math.ceil(100 * bits * least / self.budget) / 100}"
            raise Infeasible(
                f"no types keep the budgets: --max-weight-bytes {self.budget:,} would have to be at least "
                f"{least:,}{as_bits} ({sizes}){units}"
            )
        if self.within.limited:
            others = replace(
                self.size, limits=replace(self.size.limits, max_weight_bytes=None), shape="uniform"
            )
            plan_of(self.checkpoint, FirstUnits(-1.0), others, self.costs)

    @property
    def fewest_alone(self) -> int:
        """The fewest bytes with types alone."""
        return fewest_bytes(self._without_losses, self._whole)[0]

    @property
    def _whole(self) -> SizeRequest:
        return SizeRequest.of(dict.fromkeys(SHARES, 1))

    def _alone(self) -> TypedPlan | None:
        """Return the plan that keeps all units; None where no types are small enough."""
        if self.within.limited:
            return None
        try:
            assert self._estimates is not None
            return typed_plans(self._estimates, FirstUnits(None), self._whole, self.within)[0]
        except ValueError:
            return None

    def narrowed(self, plan: TypedPlan) -> Cut:
        if plan.width is None or self.session is None:
            return plan.cut
        return replace(plan.cut, narrowing=self.session.basis.narrowing(plan.width))

    def typed(self, plan: TypedPlan, weighed: WeighedChild) -> TypedPlan:
        """Return a plan with the types of least loss for the weights of its child, within the bytes."""
        assert self._estimates is not None
        tables = {place: self._estimates.options(weighed, place) for place in weighed.matrices}
        best = least_loss(
            All(tuple(options for _, options in tables.values())), self.budget - weighed.plain_bytes
        )
        if best is None:
            raise ValueError(f"no types keep {self.budget:,} bytes")
        types = {place: tables[place][0][row].name for place, row in best.picks.items()}
        weight_bytes = TypedChild(weighed, types).bytes
        return replace(plan, types=types, costs={**plan.costs, "weight_bytes": weight_bytes})

    def fit(self, plan: TypedPlan) -> list[str]:
        """Return notes on types that do not fit matrices of a plan."""
        session, sizes = self.session, replace(Choices.of_cut(plan.cut), width=plan.width)
        gap = f"the predicted loss is at most {plan.gap:.2g} above the least possible" if plan.gap else ""
        notes = [*self.rounded_shares, gap, *fit_notes(self._without_losses.rows([sizes]), self.types)]
        if session is not None and session.methods.repair == "least-squares" and not session.repairs_types:
            notes.append("errors of rounding are not refitted with experts")
        return notes

    def _single(self) -> list[EqualBytes]:
        """Return the loss of the best single type with which the whole parent keeps the bytes, if any."""
        session, estimates = self.session, self._estimates
        assert session is not None
        assert estimates is not None
        weighed = estimates.weighed
        every = {kind: TypedChild(weighed, dict.fromkeys(weighed.matrices, kind.name)) for kind in self.types}
        able = [kind for kind in self.types if weighed.holds(kind) and every[kind].bytes <= self.budget]
        if not able:
            return []
        losses = np.sum(
            [estimates.options(weighed, place, able)[1].loss for place in weighed.matrices], axis=0
        )
        best = int(np.argmin(losses))
        typed, name = every[able[best]], f"{able[best].name} everywhere"
        self.progress(f"measuring {name}")
        measured = session.typed_final(weighed.cut, typed.types, Repaired())
        return [EqualBytes(name, typed.bytes, float(losses[best]), measured)]
