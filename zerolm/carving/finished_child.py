"""The outcome of a plan, and its child on disk, opened again and compared with the carved parent."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from zerolm.carving.formats import write
from zerolm.carving.parent_and_request import Carving
from zerolm.carving.planned_child import PlannedChild, work_of
from zerolm.carving.recipe import WEIGHTS, document, versions_of
from zerolm.carving.recipe_fields import to_hex
from zerolm.carving.result import Carved, UnitRow, rows_of, stream, widths
from zerolm.checkpoints.identity import check_unchanged, fingerprint
from zerolm.checkpoints.origin import origin_of
from zerolm.children.card import LOSS
from zerolm.children.child_tensors import Child
from zerolm.families.core_sizes import CoreSizes
from zerolm.io.folders import REPORT, new_folder
from zerolm.planning.part_costs import stored_bits
from zerolm.planning.sizes import costs_of
from zerolm.text.defaults import GENERATED, NO_FILES
from zerolm.units.kept_units import Cut, LayerCut
from zerolm.units.within_layers import UNITS

if TYPE_CHECKING:
    from zerolm.carving.bits.typed_child import TypedChild
    from zerolm.carving.session import Session
    from zerolm.units.pruning import Repaired

BY_WEIGHTS: Final = (
    "chosen by weights alone, for research: Gemma 3 270M with 90 % of its FFN by capacity had perplexity "
    "90,000 on English instead of 24, and 28 calibrated on tokens sampled from it"
)
WHOLE: Final = "nothing is pruned: the parent fits the request as it is"
IMATRIX: Final = "importances.imatrix"
WORTH_TOKENS: Final = 0.02
"""Smallest gain from twice the tokens that is reported, as a share of the loss."""


def finished(carving: Carving, plan: PlannedChild) -> Carved:
    """Return the outcome of a plan, with its child written if a folder is given."""
    cut, is_typed = plan.cut, plan.bytes is not None
    if carving.destination.folder is not None:
        carving.format.check(carving.checkpoint, cut)
    costs = {"parent": carving.whole_costs, "child": carving.costs_of(cut)}
    if carving.format.pads:
        costs["stored"] = carving.costs_of(cut.resized(cut.largest))
    if plan.bytes is not None:
        costs["child"]["weight_bytes"] = plan.bytes
    methods, size = carving.methods, carving.size
    experts = carving.parent.experts
    is_written = carving.destination.folder is not None
    name = "repaired" if carving.is_done and methods.repair != "none" and is_written else "measured"
    loss = carving.session.loss(cut) if carving.session else None
    measured = {} if loss is None or (is_typed and not loss) else {name: loss}  # types alone cut nothing
    is_whole = costs["child"]["params"] == costs["parent"]["params"]
    notes = (
        *carving.checkpoint.whole.layout.notes,
        carving.parent.note,
        *(experts.notes if experts else ()),
        *plan.notes,
        _text_note(carving, is_chosen=is_typed or not cut.keeps_all),
        WHOLE if is_whole and carving.recipe is None and not is_typed else "",
    )
    carved = Carved(
        parent=carving.parent.name,
        family=carving.checkpoint.family.name,
        costs=costs,
        weight_bits=stored_bits(carving.checkpoint, carving.costs),
        optimal=experts.optimal if experts and carving.is_done else plan.optimal,
        losses={**plan.losses, **measured},
        unit=LOSS[carving.checkpoint.family.task],
        notes=list(filter(None, notes)),
        verified=None,
        spectrum=list(plan.rows),
        types=rows_of(plan.types, carving.checkpoint),
        equal_bytes=list(plan.equal_bytes),
        experts=experts.described if experts else None,
        vocabulary=carving.parent.vocabulary,
        units=_removed_units(carving, cut),
        criterion=methods.criterion,
        repair=methods.repair,
        plan=methods.plan,
        shape=size.layer_shape,
        format=str(carving.destination.form),
        space=size.space,
        widths=widths(cut),
        stream=stream(cut),
        parent_sizes=CoreSizes(*(getattr(cut.parent, part.name) for part in fields(CoreSizes))),
        kept=cut,
    )
    folder = carving.destination.folder
    return carved if folder is None else _written(carving, carved, plan, folder)


def _text_note(carving: Carving, *, is_chosen: bool) -> str:
    """Return a note on the basis of a choice of units and types, where it was no text of the user."""
    methods = carving.methods
    if carving.session is not None and methods.text == GENERATED:
        of = "tokens sampled from the parent" if carving.checkpoint.family.task == "next" else "random tokens"
        count = f"{carving.session.tokens.count:,} {of}"
        return f"calibrated on {count}; a text like what the child will serve is better: --text FILE"
    by_weights = carving.recipe is None and carving.session is None and is_chosen
    return f"{methods.criterion}: {BY_WEIGHTS}" if by_weights else ""


def _removed_units(carving: Carving, cut: Cut) -> list[UnitRow]:
    """Return the removed units of each kind, whose parameters sum to the difference from the parent."""
    parent, whole = cut.parent, carving.checkpoint.whole
    if carving.size.space is not None:
        return []
    whole_cut = Cut.whole(parent)
    layers = tuple(whole_cut.layers[kept.layer] for kept in cut.layers)
    params = costs_of(whole, carving.costs)["params"]
    rows = list(carving.parent.experts.units) if carving.parent.experts else []
    params -= sum(row.params for row in rows)
    sizes = {
        "tokens": (whole.layout.vocab, carving.checkpoint.layout.vocab, whole_cut),
        "layers": (parent.depth, len(layers), Cut(parent, layers)),
    }
    for unit in UNITS:
        pairs = zip(layers, cut.layers, strict=True)
        layers = tuple(
            LayerCut(kept.layer, {**each.kept, unit.name: kept[unit.name]}) for each, kept in pairs
        )
        after = sum(len(kept[unit.name]) for kept in layers)
        sizes[unit.shown] = (unit.count(parent) * len(layers), after, Cut(parent, layers))
    sizes["hidden size"] = (parent.hidden, cut.hidden, cut)
    for name, (before, after, step) in sizes.items():
        remaining = costs_of(carving.checkpoint, carving.costs, step)["params"]
        rows.append(UnitRow(name, before, after, params - remaining))
        params = remaining
    return rows


def _written(carving: Carving, carved: Carved, plan: PlannedChild, out: Path) -> Carved:
    """Write the child into a new folder, and compare it, opened again, before the folder is renamed."""
    from zerolm.carving.session import Session
    from zerolm.children.rotated import check_rotation
    from zerolm.networks.pooling import settings_notes

    cut = plan.cut
    if cut.narrowing:
        check_rotation(carving.checkpoint)  # before the long repair
    session = carving.session or Session(
        carving.checkpoint, carving.methods, carving.progress, carving.compute
    )
    finish = carving.destination.finish
    repaired, typed = _repaired(carving, session, plan)
    losses = dict(carved.losses)
    if losses and repaired.arrays and typed is None:
        losses["repaired"] = session.loss(cut, repaired)
    notes = [*carved.notes, repaired.note, _more_tokens(carving, session, cut, repaired, losses)]
    if typed is not None:
        costs = {**carved.costs, "child": {**carved.costs["child"], "weight_bytes": typed.bytes}}
        carved = replace(carved, costs=costs)
        if carving.session is not None:
            losses["as_read_back"] = session.typed_loss(typed, repaired)
    versions = versions_of("torch", "transformers") | session.compute.to_json()
    whole = carving.checkpoint.whole
    parent = origin_of(whole.root), {WEIGHTS: fingerprint(whole, progress=carving.progress)}
    calibration = carving.recipe.document["calibration"] if carving.recipe else session.calibration
    carved, experts = replace(carved, losses=losses), carving.parent.experts
    repair = experts.repair if experts else "none"
    kept = carving.checkpoint.kept_tokens
    tokens = None if kept is None else to_hex(kept, whole.layout.vocab)
    recipe = document(carved, *parent, calibration, repaired.ridges, versions, repair, tokens)
    with new_folder(out, carving.destination.force) as folder:
        child, has_imatrix = Child(carving.checkpoint, cut, repaired), carving.size.weights.imatrix
        more = (*(REPORT if finish else ()), *([IMATRIX] if has_imatrix else []))
        sha256 = write(child, recipe, folder, more, typed=typed, progress=carving.progress)
        if carving.recipe and carving.recipe.fields.written_as == carving.destination.form:
            notes.append(carving.recipe.difference(sha256, versions))
        if has_imatrix and typed is not None:
            from zerolm.carving.bits.typed_child import write_imatrix

            write_imatrix(typed.weighed, folder / IMATRIX, str(session.tokens.text))
        carving.progress("reopening the child")
        proof = carving.format.verified(session, cut, repaired, folder, typed).of(carving.parent.proof)
        proof = proof.after(experts.proof if experts else None)
        notes += [*proof.notes, *settings_notes(carving.checkpoint, in_file=carving.format.has_tokenizer)]
        carved = replace(carved, notes=list(filter(None, notes)), verified=proof.distances)
        if finish:
            finish(folder, carved.child)
        for shard in carving.checkpoint.shards:
            check_unchanged(shard)  # else the child would be of two parents
    session.done()
    return carved


def _more_tokens(
    carving: Carving, session: Session, cut: Cut, repaired: Repaired, losses: Mapping[str, float]
) -> str:
    """Return a note on the gain from twice the tokens, if too few; measured where that does not take long."""
    from zerolm.carving.pace import LONG, loss_by_twice, tokens_wanted
    from zerolm.carving.session import FEWER

    methods, loss = carving.methods, losses.get("repaired")
    if loss is None or not repaired.arrays or carving.recipe is not None:
        return ""
    if methods.text in NO_FILES or methods.for_ is not None:
        return ""
    tokens, wanted = session.tokens.count, tokens_wanted(carving.checkpoint)
    if tokens >= wanted:
        return ""
    is_all_read = len(session.tokens) < methods.count
    more = "give a longer text" if is_all_read else f"--sequences {2 * methods.count}"
    if work_of(carving, session).repairing_fewer(session.pace, tokens // FEWER) >= LONG:
        return f"repaired on {tokens:,} tokens; its widest matrices need {wanted:,}: {more}"
    by_fewer = session.loss_by_fewer(cut, repaired.ridges)
    by_twice = loss_by_twice(loss, by_fewer, FEWER)
    if loss - by_twice < WORTH_TOKENS * loss:
        return ""
    return (
        f"repaired on a quarter of the tokens it loses {by_fewer:.3g}, on twice the number about "
        f"{by_twice:.3g}: {more}"
    )


def _repaired(carving: Carving, session: Session, plan: PlannedChild) -> tuple[Repaired, TypedChild | None]:
    """Return the repaired matrices, which correct errors of rounding too, and the child with its types."""
    ridges = carving.recipe.ridges or None if carving.recipe else None
    if not plan.types:
        return session.repaired(plan.cut, ridges), None
    repaired = session.repaired(plan.cut, ridges, plan.types if session.repairs_types else None)
    return repaired, session.typed(plan.cut, repaired, plan.types)
