"""Experts and tokens as units of a budget: how many are kept together with all other cuts, or why all are."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Final

from zerolm.carving.experts.expert_count import Costs, ExpertWidth, counts_of, largest_within, limits_of
from zerolm.carving.experts.fewer_experts import expert_layers
from zerolm.carving.parent_and_request import Carving, quantised_types, whole_costs
from zerolm.carving.planned_child import announce_comparison, check_possible, planned
from zerolm.carving.request import PRICES, Methods, usual_criterion_of_experts
from zerolm.carving.vocabulary.planned_size import BestByTokens, why_tokens_are_kept
from zerolm.checkpoints import ledger_of
from zerolm.planning.size_request import ALL, AUTO, ExpertsRequest, SizeRequest, VocabularyRequest
from zerolm.progress import announce
from zerolm.settings.domains import domains_of
from zerolm.text.defaults import NO_FILES

if TYPE_CHECKING:
    from zerolm.carving.experts.carve_experts import ExpertCarving

NO_TEXT: Final = "no text is given"
SHARES: Final = (0.75, 0.5, 0.25)
"""The tried shares of experts, and of the neurons of each, besides the largest number within the budgets."""


def with_fewer_experts(request: Carving, folder: Path) -> Carving:
    """Return the request for all other cuts of a mixture of experts, whose parent has only the kept experts.

    ``folder`` is for the parent's files. Without a number of experts, a text and budgets choose it; so they
    do where experts share the budgets with tokens or types. Impossible requests are rejected before any work.
    """
    size, methods = request.size, request.methods
    if size.experts.are_cut and not size.weighs_experts:
        experts = of_experts(request)
        methods = replace(methods, repair=experts.repair) if experts.is_alone else methods
        rest = replace(request, size=size.without_experts, methods=methods)
        shaped = replace(rest, parent=experts.shaped())
        if not may_prune_tokens(shaped):  # else their number is chosen together with all other units
            check_possible(shaped.running())
        return replace(rest, parent=experts.as_parent(folder / "experts"))
    reason = why_experts_are_kept(request)
    if reason and size.weighs_experts:
        _ = of_experts(request).mixture.routing  # rejects a parent without experts
        raise ValueError(
            f"experts share budgets with tokens or types by losses on one --text FILE ({reason}): give "
            "numbers instead of auto"
        )
    if reason == NO_TEXT:
        note = f"all experts are kept ({reason}): --text FILE compares them with all other units"
        return replace(request, parent=replace(request.parent, note=note))
    if reason:
        return request
    best, note = _weighed(request, folder)
    best = replace(best, parent=replace(request.parent, note=note))
    return with_fewer_experts(best, folder) if best.size.experts.are_cut else best


def of_experts(request: Carving) -> ExpertCarving:
    """Return the part of the request that removes experts, with its own criterion."""
    from zerolm.carving.experts.carve_experts import ExpertCarving

    methods = replace(request.methods, criterion=request.methods.experts)
    return ExpertCarving(replace(request, methods=methods))


def ready(request: Carving, folder: Path) -> Carving:
    """Return the carving with its kept tokens and its session; ``ValueError`` where no child is possible."""
    if not may_prune_tokens(request):
        request = request.running()
        check_possible(request)  # before the tokens of the text are counted
        return with_fewer_tokens(request, folder)
    carving = with_fewer_tokens(request, folder)
    carving = carving if carving.session is not None else carving.running()
    check_possible(carving)
    return carving


def why_experts_are_kept(request: Carving) -> str:
    """Return why experts are not compared with other units within the budgets; empty where they are."""
    size, methods = request.size, request.methods
    if not request.checkpoint.family.has_experts or not expert_layers(request.checkpoint):
        return "there are none"
    is_whole = size.experts.keep == ALL or size.shares.all is not None or not size.budgets
    if is_whole and not size.weighs_experts:
        return "all are kept"
    if methods.text in NO_FILES or domains_of(methods.text):
        return NO_TEXT
    if size.space is not None or methods.plan != PRICES:
        return f"--space {size.space}" if size.space else f"--plan {methods.plan}"
    if methods.for_ is not None:
        return "--for"
    return "a quantised parent" if quantised_types(request.checkpoint) or request.checkpoint.packed else ""


def _weighed(request: Carving, folder: Path) -> tuple[Carving, str]:
    """Return the request with the experts, or neurons of each, of least loss, and a summary of the trials.

    All experts, then fewer neurons and fewer experts, are each tried as the whole child within the budgets:
    repaired, and measured on the tokens that compare plans. Raises ``ValueError`` where none keeps the
    budgets.
    """
    ways, begun = _ways(request), time.monotonic()
    tried: dict[str, tuple[float, Carving]] = {}
    refused: list[ValueError] = []
    for way in [{"all": _whole(request.size.experts)}, *ways]:
        for name, experts in way.items():
            announce(request.progress, f"comparing experts with all other units: {name}")
            usual = request.methods.experts or usual_criterion_of_experts(experts, request.methods.text)
            methods = replace(request.methods, experts=usual if experts.are_cut else "")
            carving = replace(request, size=replace(request.size, experts=experts), methods=methods)
            try:
                with TemporaryDirectory(dir=folder) as scratch:
                    loss = _loss(carving, Path(scratch))
            except ValueError as error:
                refused.append(error)
                continue
            if not tried:
                seconds = sum(map(len, ways)) * (time.monotonic() - begun)
                announce_comparison(request.progress, "experts", seconds)
            best = min((before for before, _ in tried.values()), default=loss)
            tried[name] = loss, carving
            if loss > best:
                break
    if not tried:
        raise refused[-1]
    losses = ", ".join(f"{name} {loss:.3g}" for name, (loss, _) in tried.items())
    least = min(tried, key=lambda name: tried[name][0])
    return tried[least][1], f"losses of the best child by experts kept per layer: {losses}"


def _whole(experts: ExpertsRequest) -> ExpertsRequest:
    """Return the request for all experts, and all neurons of each, except for given numbers."""
    keep, ffn = (None if number == AUTO else number for number in (experts.keep, experts.ffn))
    return replace(experts, keep=ALL if keep is None else keep, ffn=ffn)


def _ways(request: Carving) -> list[dict[str, ExpertsRequest]]:
    """Return by name the trials in addition to all experts: fewer neurons of each, and fewer experts.

    Each way starts with the largest number, and ends where nothing else has to be cut. A given number is
    that of all trials. If both are ``auto``, fewer neurons and fewer experts are also tried together.
    """
    size, numbers, mixture = request.size, request.size.experts, of_experts(request).mixture
    whole, limits, width, neurons = _whole(numbers), limits_of(size), None, None
    try:
        width = ExpertWidth.of(request.checkpoint, size)
        neurons = None if whole.ffn is None else width.size(whole.ffn)[0]
    except ValueError:  # neurons of experts cannot be removed
        if numbers.ffn is not None:
            raise

    def costs(count: int, neurons: int | None) -> dict[str, int]:
        return whole_costs(mixture.shaped(count, neurons), request.costs, size.space)

    fewer: dict[str, ExpertsRequest] = {}
    narrower: dict[str, ExpertsRequest] = {}
    if numbers.keep == AUTO or not size.weighs_experts:
        possible = mixture.routing.possible(numbers.parallel)
        counts = _tried(possible, limits, lambda count: costs(count, neurons))
        fewer = {f"{count} of {mixture.routing.experts}": replace(whole, keep=str(count)) for count in counts}
    if width is not None and (numbers.ffn == AUTO or not size.weighs_experts):
        experts = counts_of(replace(size, experts=whole), mixture.routing)[0]
        sizes = _tried(width.possible, limits, lambda count: costs(experts, count))
        narrower = {
            f"{count} of {width.whole} neurons of each": replace(whole, ffn=str(count)) for count in sizes
        }
    both = [
        {f"{name} with {each}": replace(one, ffn=narrow.ffn) for name, one in fewer.items()}
        for each, narrow in (narrower.items() if size.weighs_experts else ())
    ]
    return [narrower, fewer, *both]


def _tried(possible: Sequence[int], limits: Costs, costs: Callable[[int], Costs]) -> list[int]:
    """Return the numbers to try of those ``possible`` (ascending), the largest first, without the whole."""
    whole = possible[-1]
    nearest = {min(possible, key=lambda count: abs(count - share * whole)) for share in SHARES}
    alone = largest_within(limits, possible, costs)
    least = possible[0] if alone is None else alone
    return sorted({count for count in (*nearest, least) if least <= count < whole}, reverse=True)


def _loss(request: Carving, folder: Path) -> float:
    """Return the loss of the best child of a request, in nats per token, or 1 - cosine."""
    if request.size.experts.are_cut:
        rest, experts = replace(request, size=request.size.without_experts), of_experts(request)
        request = replace(rest, parent=experts.as_parent(folder / "experts", is_tried=True))
    carving = ready(request, folder)
    session = carving.session
    if session is None:  # only tokens are removed
        return carving.parent.loss_of_tokens
    plan = planned(carving)
    loss = session.finals([plan.cut])[0] if plan.compared is None else plan.compared
    return loss + carving.parent.loss_of_tokens


def with_fewer_tokens(carving: Carving, folder: Path) -> Carving:
    """Return the carving with the kept tokens in its parent, whose files are in an empty folder.

    If no tokens are removed, the parent is whole, with the possible saving by fewer tokens. Without a size or
    a list of tokens, a text and budgets choose the number if they can.
    """
    size, methods, parent, progress = carving.size, carving.methods, carving.parent, carving.progress
    if not size.vocabulary.cuts and methods.text in NO_FILES:
        return carving
    if domains_of(methods.text):
        if size.vocabulary.cuts:
            raise ValueError("tokens are chosen by one text: give one --text FILE, or no --keep-vocab")
        return carving
    from zerolm.carving.vocabulary.cut_parent import chosen, cut_parent, suggested
    from zerolm.carving.vocabulary.fewer_tokens import can_lose_tokens

    can_lose, best = can_lose_tokens(parent.checkpoint), BestByTokens(carving)
    is_usual = may_prune_tokens(carving) and not size.vocabulary.cuts and can_lose
    is_free = is_usual or (can_lose and size.vocabulary.size == AUTO)
    if not (size.vocabulary.cuts or is_usual) or (is_free and best.keeps_all()):
        return suggested(carving)
    ledger_of(parent.checkpoint, progress=progress)  # rejects weights that are not finite
    request = replace(size, vocabulary=VocabularyRequest(AUTO)) if is_usual else size
    model, kept = chosen(replace(carving, size=request), best)
    if len(kept) == parent.checkpoint.layout.vocab:
        if not (size.keep or size.cuts_layers or size.experts.are_cut):
            raise ValueError(f"nothing to cut: all {len(kept):,} tokens are kept")
        return replace(best.whole, parent=model)  # its tokens have been read
    is_written = carving.destination.folder is not None
    try:
        model = cut_parent(model, kept, folder, methods.text, is_written, progress=progress)
    except ValueError as error:
        if not is_usual:
            raise
        announce(progress, f"all tokens are kept: {error}")
        return suggested(best.whole)
    child = replace(carving, parent=model)
    if size.experts.are_cut or not child.keeps_budgets():
        return child
    done = (
        Methods() if parent.experts is None else replace(methods, criterion=methods.experts, plan="weights")
    )
    return replace(child, methods=done, size=SizeRequest(vocabulary=size.vocabulary))


def may_prune_tokens(carving: Carving) -> bool:
    """Return whether tokens may be removed: by request, or because a text and budgets choose their number."""
    size, methods = carving.size, carving.methods
    if not size.vocabulary.is_usual:
        return size.vocabulary.cuts
    is_free = bool(size.budgets) and size.shares.all is None
    has_text = methods.text not in NO_FILES and not domains_of(methods.text)
    return is_free and has_text and not why_tokens_are_kept(carving)
