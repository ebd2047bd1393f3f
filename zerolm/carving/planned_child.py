"""The sizes of a child: checked before any work, planned, and the best ones measured."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from zerolm.carving.parent_and_request import TYPED_BITS, Carving, quantised_types
from zerolm.carving.request import PRICES, Methods
from zerolm.carving.result import TYPES_ALONE, EqualBytes, SpectrumRow
from zerolm.checkpoints import ledger_of
from zerolm.checkpoints.gguf.names import is_rearranged
from zerolm.planning.loss_table import LossTable, stream_widths
from zerolm.planning.plan import Planned, finalists
from zerolm.planning.size_request import SizeRequest
from zerolm.planning.sizes import costs_of, heuristic_of, plan_of, plans_of, rounding, width_notes
from zerolm.progress import Progress, about, announce, silent
from zerolm.solvers.solver import Infeasible
from zerolm.text.defaults import GENERATED, NO_FILES
from zerolm.units.importance.criteria import criterion_of, needs_tokens
from zerolm.units.importance.criterion import Criterion, FirstUnits
from zerolm.units.kept_units import Cut, dimensions
from zerolm.units.within_layers import UNITS

if TYPE_CHECKING:
    from zerolm.carving.bits.planner import TypePlanner
    from zerolm.carving.pace import CarvingWork
    from zerolm.carving.session import Session
    from zerolm.passes.matrix_moments import Place
    from zerolm.text.tokens import Tokens

FINALISTS: Final = 3
"""Largest number of plans that are repaired and measured before the choice."""
REQUANTISED: Final = "the parent is quantised already: losses are relative to it as stored"


@dataclass(frozen=True, eq=False)
class PlannedChild:
    """A cut, its expected losses, and the way it was chosen.

    ``optimal``: whether it is proven to be the best by its criterion, None where nothing was planned.
    ``rows`` are the spectrum of the stream. ``types`` are those of its weights by the parent's layer and
    role, empty where they are stored as in the parent. They take ``bytes``, None also for a recipe's;
    ``equal_bytes`` are other plans of these bytes. ``compared`` is the loss on the tokens that compare plans,
    repaired and as read back, None where it was not measured.
    """

    cut: Cut
    optimal: bool | None = None
    losses: Mapping[str, float] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    rows: Sequence[SpectrumRow] = ()
    types: Mapping[Place, str] = field(default_factory=dict)
    bytes: int | None = None
    equal_bytes: Sequence[EqualBytes] = ()
    compared: float | None = None


def check_possible(carving: Carving) -> None:
    """Raise ``ValueError`` before the long computation for a request that would fail after it."""
    checkpoint, size, form = carving.checkpoint, carving.size, carving.destination.form
    layout, family, is_written = checkpoint.layout, checkpoint.family, carving.destination.folder is not None
    if family.task == "next" and layout.name("head") is None and not layout.tied:
        raise ValueError(
            f"a {family.name} without a language-model head cannot be compared, so it is not carved"
        )
    if family.task == "next" and layout.name("classifier") is not None:
        raise ValueError(
            f"a {family.name} with a classification head ({layout.name('classifier')}) predicts no tokens "
            "to compare, so it is not carved: give a language model or an encoder"
        )
    alone = carving.typing is not None and carving.typing.keeps_all
    size.weights.check_parent(quantised_types(checkpoint), types_alone=alone)
    file_format = carving.format  # an unknown format is rejected even where nothing is written
    if is_written and form != "hf":
        file_format.check(checkpoint, Cut.whole(dimensions(checkpoint)))
    try:
        check_sizes(carving)
    except Infeasible as error:
        raise Infeasible(f"{error}{_smaller_by(carving)}") from None


def check_sizes(carving: Carving) -> None:
    """Raise ``ValueError`` for sizes and budgets that no child has."""
    checkpoint, size, by_loss = carving.checkpoint, carving.size, carving.methods.plan == PRICES
    if carving.typing is not None:
        carving.typing.check(by_loss and carving.session is not None)
    elif carving.methods.plan != "heuristic" and not carving.is_done:
        any_layer = FirstUnits(-1.0 if by_loss else None)
        rounding(checkpoint, size, plan_of(checkpoint, any_layer, size, carving.costs))


def _smaller_by(carving: Carving) -> str:
    """Return the options that allow smaller children than cuts alone, for an error; empty without any."""
    from zerolm.carving.vocabulary.fewer_tokens import can_lose_tokens

    size, checkpoint, ways = carving.size, carving.checkpoint, []
    has_all_tokens = size.vocabulary.is_usual and carving.methods.text in NO_FILES
    if has_all_tokens and can_lose_tokens(checkpoint):
        ways.append("--text FILE prunes tokens, too")
    if "max_weight_bytes" in size.budgets and not carving.has_types and checkpoint.family.gguf:
        ways.append("--format gguf stores weights in fewer bits")
    return f"; {', and '.join(ways)}" if ways else ""


def in_time(carving: Carving, spent: float) -> Carving:
    """Return the carving with the sequences that its limit allows after ``spent`` seconds; announce them."""
    session, methods = carving.session, carving.methods
    if session is None or carving.is_done or (methods.for_ is None and carving.progress is silent):
        return carving
    from zerolm.carving.pace import announcement, fitting

    work = work_of(carving, session)
    if methods.for_ is None:
        announced = announcement(work, session.pace)
        if announced:
            announce(carving.progress, announced)
        return carving
    sequences = fitting(work, session.pace, methods.for_, spent)
    methods = replace(methods, sequences=sequences)
    announce(carving.progress, _time_note(methods))
    return replace(carving, methods=methods).running()


def announce_comparison(progress: Progress, units: str, seconds: float) -> None:
    """Announce the time to compare units with all others, if it is long."""
    from zerolm.carving.pace import LONG

    if seconds >= LONG:
        note = f"comparing {units} with all other units takes up to {about(seconds)}; the child follows"
        announce(progress, note)


def work_of(carving: Carving, session: Session) -> CarvingWork:
    """Return the work of a carving, for an estimate of its duration."""
    from zerolm.carving.pace import CarvingWork

    methods = carving.methods
    return CarvingWork(
        dimensions(carving.checkpoint),
        methods if methods.text == GENERATED else _read(methods, session.tokens),
        carving.narrows,
        finalists_of(carving, session),
        carving.destination.folder is not None,
        0 if carving.typing is None else len(carving.typing.types),
        carving.checkpoint.layout.vocab,
        carving.has_types and is_rearranged(carving.checkpoint.family),
        session.stored_shares(),
    )


def finalists_of(carving: Carving, session: Session) -> int:
    """Return the number of best plans that are repaired and measured before the choice."""
    if carving.has_types and carving.keeps_budgets(bits=TYPED_BITS):
        return 1  # types alone
    by_loss = carving.methods.plan == PRICES and bool(carving.size.budgets)
    ranked = FINALISTS if carving.narrows or (by_loss and session.predicts_repair) else 1
    return ranked + (by_loss and _may_differ(carving.size))


def planned(carving: Carving) -> PlannedChild:
    """Return the best child according to the methods' plan."""
    checkpoint, size, session = carving.checkpoint, carving.size, carving.session
    if carving.typing is not None:
        return _with_types(carving, carving.typing)
    if carving.is_done:
        return PlannedChild(Cut.whole(dimensions(checkpoint)))
    criterion = _criterion(carving)
    if carving.methods.plan == "heuristic":
        return PlannedChild(heuristic_of(checkpoint, criterion, size))
    if carving.methods.plan == "weights" or session is None:
        return _with_notes(carving, plan_of(checkpoint, criterion, size, carving.costs))
    table = _table(carving, session, criterion)
    ranked = [plans_of(checkpoint, each, size, carving.costs) for each in table.every]
    near = finalists(ranked, FINALISTS)
    if _may_differ(size):
        near += _equal_layers(carving, table, near)
    plan, loss, measured = _best_measured(carving, session, near)
    name, losses = shown(carving, table)
    predicted = losses.predicted(carving.narrowed(plan.cut, plan.width))
    by_width = losses.stream.by_width(checkpoint.layout.tied) if losses.stream else None
    return replace(_with_notes(carving, plan, {name: predicted}, by_width, measured), compared=loss)


def _may_differ(size: SizeRequest) -> bool:
    """Return whether the request allows separate sizes of layers as well as equal ones."""
    return not size.is_uniform and size.space is None


def _equal_layers(carving: Carving, table: LossTable, near: Sequence[Planned]) -> list[Planned]:
    """Return the best plan with equal layers, if there is one and it is not among those ``near``.

    After repair it may lose less than separate sizes, because predicted losses of single layers are rough.
    """
    equal = replace(carving.size, shape="uniform")
    try:
        plan = plan_of(carving.checkpoint, table, equal, carving.costs)
    except ValueError:  # equal sizes are too coarse for the budgets
        return []
    return [] if plan.sizes in [other.sizes for other in near] else [replace(plan, optimal=False)]


def _with_types(carving: Carving, typing: TypePlanner) -> PlannedChild:
    """Return the outcome of the best plan of types, together with cuts where cuts are allowed."""
    session = carving.session
    if typing.keeps_all:
        ledger_of(carving.checkpoint, progress=carving.progress)  # rejects weights that are not finite
    plan, compared, loss = typing.best(losses_by(carving))
    notes = (
        _time_note(carving.methods),
        *typing.fit(plan),
        REQUANTISED if quantised_types(carving.checkpoint) else "",
    )
    return PlannedChild(
        typing.narrowed(plan),
        optimal=plan.optimal,
        losses={} if session is None else {"predicted": plan.loss},
        notes=notes,
        types=plan.types,
        bytes=plan.bytes,
        equal_bytes=[*compared, *_too_large(carving)],
        compared=loss,
    )


def _too_large(carving: Carving) -> list[EqualBytes]:
    """Return types alone and tokens alone, where even their fewest bytes exceed the budget."""
    whole, vocabulary = carving.checkpoint.whole, carving.parent.vocabulary
    typing = replace(carving, parent=replace(carving.parent, checkpoint=whole)).typing
    fewest = {} if typing is None else {TYPES_ALONE: typing.fewest_alone}
    if vocabulary is not None and vocabulary.least is not None:
        from zerolm.carving.vocabulary.fewer_tokens import shaped

        fewest["tokens alone"] = costs_of(shaped(whole, vocabulary.least), carving.costs)["weight_bytes"]
    budget = carving.size.budgets["max_weight_bytes"]
    return [EqualBytes(name, size, None, None) for name, size in fewest.items() if size > budget]


def losses_by(carving: Carving) -> Sequence[Criterion]:
    """Return the rankings of plans: tables of losses, the displayed one first; else the criterion."""
    typing, session = carving.typing, carving.session
    by = FirstUnits(None) if typing is not None and typing.keeps_all else _criterion(carving)
    if session is None or (typing is not None and not typing.may_cut) or carving.methods.plan != PRICES:
        return [by]
    table = _table(carving, session, by)
    return [*(table.every if shown(carving, table)[1] is table else reversed(table.every))]


def _table(carving: Carving, session: Session, criterion: Criterion) -> LossTable:
    kinds = [unit.name for unit in UNITS if unit.can_be_cut(carving.checkpoint.family)]
    return session.table(criterion, kinds, with_stream=carving.narrows)


def shown(carving: Carving, table: LossTable) -> tuple[str, LossTable]:
    """Return the name and the table of the losses to display.

    With separate sizes for each layer it is the table after repair, if there is one: repair recovers some
    layers better than others.
    """
    if carving.size.is_uniform or table.repaired is None:
        return "predicted", table
    return "predicted_repaired", table.repaired


def _criterion(carving: Carving) -> Criterion:
    name = carving.methods.criterion
    ledger = ledger_of(carving.checkpoint, progress=carving.progress)  # rejects weights that are not finite
    if needs_tokens(name) and carving.session is not None:
        return carving.session.importance()
    return criterion_of(name, carving.checkpoint, ledger, seed=carving.methods.seed)


def _best_measured(
    carving: Carving, session: Session, near: Sequence[Planned]
) -> tuple[Planned, float | None, str]:
    """Return the plan of least loss after repair, its loss and a summary; a single plan is not measured."""
    if len(near) < 2:
        return near[0], None, ""
    cuts = [carving.narrowed(plan.cut, plan.width) for plan in near]
    losses = session.finals(cuts)
    best = min(range(len(near)), key=losses.__getitem__)
    pairs = zip(near, losses, strict=True)
    texts = ", ".join(f"{loss:.3g} ({plan.in_words})" for plan, loss in pairs)
    return near[best], losses[best], f"the best plans, repair {carving.methods.repair}, lose {texts}"


def _with_notes(
    carving: Carving,
    plan: Planned,
    losses: Mapping[str, float] | None = None,
    by_width: Mapping[int, float] | None = None,
    measured: str = "",
) -> PlannedChild:
    """Return the outcome of a plan; ``by_width`` are losses by the width, shown with the energy it keeps."""
    cut = carving.narrowed(plan.cut, plan.width)
    notes = (
        _time_note(carving.methods),
        rounding(carving.checkpoint, carving.size, plan),
        *width_notes(cut),
        measured,
    )
    rows, losses_by_width = list[SpectrumRow](), by_width or {}
    if cut.narrowing or by_width:
        sizes = stream_widths(len(carving.basis.energy)).tolist()
        rows = [SpectrumRow(size, carving.basis.kept(size), losses_by_width.get(size)) for size in sizes]
    return PlannedChild(cut, optimal=plan.optimal, losses=losses or {}, notes=notes, rows=rows)


def _read(methods: Methods, tokens: Tokens) -> Methods:
    """Return methods with the number of sequences in a text, and their mean length without padding."""
    return replace(methods, sequences=len(tokens), length=max(2, tokens.count // len(tokens)))


def _time_note(methods: Methods) -> str:
    """Return a note on the time limit; empty where there was none."""
    return f"{methods.count} sequences, to last about {about(methods.for_)}" if methods.for_ else ""
