"""Experts among the units of a budget: how many stay beside all else that is cut, or why all do."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Final

from zerolm.carving.parent_and_request import Carving, quantised_types
from zerolm.carving.planned_child import check_possible, planned, work_of
from zerolm.carving.request import ALL, AUTO, BY_LOSS, ExpertsRequest, usual_criterion_of_experts
from zerolm.carving.vocabulary.budgeted_tokens import may_leave, with_fewer_tokens
from zerolm.progress import about, announce, silent
from zerolm.settings.domains import domains_of
from zerolm.text.defaults import NO_FILES

if TYPE_CHECKING:
    from zerolm.carving.experts.carve_experts import ExpertCarving

NO_TEXT: Final = "no text is given"
SHARES: Final = (1.0, 0.75, 0.5, 0.25)
"""The shares of the experts that are tried, and the most that keep the budgets alone."""


def with_fewer_experts(request: Carving, folder: Path) -> Carving:
    """Return the request for all else that is cut of a mixture, which has the experts alone that stay.

    ``folder`` is for its files. Where nothing is given of experts, a text and budgets choose as many as pay.
    What cannot be asked is refused before any work.
    """
    size = request.size
    if size.experts.are_cut:
        rest = replace(request, size=size.beside_experts)
        shaped = replace(rest, parent=of_experts(request).shaped())
        if not may_leave(shaped):  # else their number is chosen with all else
            check_possible(shaped.running())
        return replace(rest, parent=of_experts(request).as_parent(folder / "experts"))
    reason = experts_stay(request)
    if reason == NO_TEXT:
        note = f"all experts stay, for {reason}: --text FILE weighs them against all else"
        return replace(request, parent=replace(request.parent, note=note))
    if reason:
        return request
    best, note = _weighed(request, folder)
    best = replace(best, parent=replace(request.parent, note=note))
    return with_fewer_experts(best, folder) if best.size.experts.are_cut else best


def of_experts(request: Carving) -> ExpertCarving:
    """Return what takes experts out, by their own criterion."""
    from zerolm.carving.experts.carve_experts import ExpertCarving

    methods = replace(request.methods, criterion=request.methods.experts)
    return ExpertCarving(replace(request, methods=methods))


def ready(request: Carving, folder: Path) -> Carving:
    """Return the carving with the tokens that are kept and what runs it; refused where no child can be."""
    if request.has_types_alone:  # chosen as the file holds matrices, which are not refitted
        request = replace(request, methods=replace(request.methods, repair="none"))
    carving = with_fewer_tokens(request, folder).running()
    check_possible(carving)
    return carving


def experts_stay(request: Carving) -> str:
    """Return why experts are not weighed against other units within the budgets; empty where they are."""
    size, methods = request.size, request.methods
    if not request.checkpoint.family.has_experts or not request.checkpoint.layout.sizes.get("experts"):
        return "there are none"
    if size.experts.keep == ALL or size.shares.all is not None or not size.budgets:
        return "all are kept"
    if methods.text in NO_FILES or domains_of(methods.text):
        return NO_TEXT
    if size.space is not None or methods.plan not in BY_LOSS:
        return f"--space {size.space}" if size.space else f"--plan {methods.plan}"
    if methods.for_ is not None:
        return "--for"
    return "a quantised parent" if quantised_types(request.checkpoint) or request.checkpoint.packed else ""


def _weighed(request: Carving, folder: Path) -> tuple[Carving, str]:
    """Return the request with the number of experts that loses least, and what others lose in words.

    Each is the whole child of that number, repaired and measured on the tokens that plans are compared on.
    ``ValueError`` where no number keeps the budgets.
    """
    whole = request.checkpoint.layout.sizes["experts"]
    tried: list[tuple[float, int, Carving]] = []
    refused: list[ValueError] = []
    counts = _counts(request)
    for count in counts:
        announce(request.progress, f"trying {count} of the {whole} experts of a layer")
        one = _with_experts(request, count)
        try:
            with TemporaryDirectory(dir=folder) as scratch:
                loss = _loss(one, Path(scratch), 0 if tried else len(counts))
        except ValueError as error:
            refused.append(error)
            continue
        tried.append((loss, -count, one))
        if loss > min(tried)[0]:
            break
    if not tried:
        raise refused[-1]
    losses = ", ".join(f"{-count} lose {loss:.3g}" for loss, count, _ in tried)
    return min(tried, key=lambda each: each[:2])[2], f"experts of a layer, weighed against all else: {losses}"


def _counts(request: Carving) -> Sequence[int]:
    """Return the numbers of experts that are tried, the largest first."""
    from zerolm.carving.experts.expert_count import counts_of, largest_within, limits_of

    staying = of_experts(_with_experts(request, AUTO)).staying
    possible = counts_of(staying.size, staying.routing)
    nearest = {min(possible, key=lambda count: abs(count - share * possible[-1])) for share in SHARES}
    limits = limits_of(request.size, request.whole_costs)
    alone = largest_within(limits, possible, lambda count: request.costs_in(staying.shaped(count)))
    least = possible[0] if alone is None else alone
    return sorted({count for count in nearest if count >= least} | {least}, reverse=True)


def _with_experts(request: Carving, count: int | str) -> Carving:
    is_whole = count == request.checkpoint.layout.sizes["experts"]
    experts = ExpertsRequest(keep=ALL if is_whole else str(count))
    by = usual_criterion_of_experts(experts, request.methods.text)
    return replace(
        request,
        size=replace(request.size, experts=experts),
        methods=replace(request.methods, experts="" if is_whole else by),
    )


def _loss(request: Carving, folder: Path, trials: int) -> float:
    """Return the loss of the best child of a request, in nats a token, or 1 - cosine.

    The time of so many ``trials`` is said, if any.
    """
    if request.size.experts.are_cut:
        rest, experts = replace(request, size=request.size.beside_experts), of_experts(request)
        request = replace(rest, parent=experts.as_parent(folder / "experts", is_tried=True))
    carving = ready(request, folder)
    session = carving.session
    if session is None:  # tokens alone leave
        return carving.parent.lost_by_tokens
    if trials and carving.progress is not silent:
        from zerolm.carving.pace import LONG

        seconds = trials * work_of(carving, session).planning(session.pace)
        if seconds >= LONG:
            announce(carving.progress, f"about {about(seconds)} to weigh experts, and then the child")
    plan = planned(carving)
    loss = session.finals([plan.cut])[0] if plan.compared is None else plan.compared
    return loss + carving.parent.lost_by_tokens
