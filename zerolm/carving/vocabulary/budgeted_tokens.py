"""Tokens as units of a budget: how many are kept together with all other cuts, or why all are kept."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Final

from zerolm.carving.parent_and_request import Carving, quantised_types
from zerolm.carving.planned_child import announce_weighing, check_sizes, losses_by
from zerolm.carving.request import BY_LOSS, Methods
from zerolm.checkpoints import ledger_of
from zerolm.planning.size_request import AUTO, USED, SizeRequest, VocabularyRequest
from zerolm.planning.sizes import plans_of
from zerolm.progress import announce, silent
from zerolm.settings.domains import domains_of
from zerolm.text.defaults import NO_FILES
from zerolm.units.importance.criterion import Criterion

if TYPE_CHECKING:
    from zerolm.carving.vocabulary.planned_size import BestByTokens

WORTHWHILE: Final = 0.01
"""Smallest saving by fewer tokens, as a share of the parameters, that is mentioned when all tokens are
kept."""


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
    from zerolm.carving.vocabulary.cut_parent import can_lose_tokens, chosen, cut_parent, suggested

    def whole() -> Carving:
        return replace(carving, parent=suggested(parent, methods.text, carving.costs, progress))

    is_usual = may_prune_tokens(carving) and not size.vocabulary.cuts and can_lose_tokens(parent.checkpoint)
    if not size.vocabulary.cuts and not is_usual:
        return whole()
    ledger_of(parent.checkpoint, progress=progress)  # rejects weights that are not finite
    request = replace(size, vocabulary=VocabularyRequest(AUTO)) if is_usual else size
    model, kept = chosen(parent, request, methods, carving.costs, best_by_tokens(carving), progress)
    if len(kept) == parent.checkpoint.layout.vocab:
        if not (size.cuts_layers or size.experts.are_cut):
            raise ValueError(f"nothing to cut: all {len(kept):,} tokens are kept")
        return replace(carving, parent=model)
    is_written = carving.destination.folder is not None
    try:
        model = cut_parent(model, kept, folder, methods.text, is_written, progress=progress)
    except ValueError as error:
        if not is_usual:
            raise
        announce(progress, f"all tokens are kept: {error}")
        return whole()
    child = replace(carving, parent=model)
    if size.experts.are_cut or not keeps_budgets(child):
        return child
    done = (
        Methods() if parent.experts is None else replace(methods, criterion=methods.experts, plan="weights")
    )
    return replace(child, methods=done, size=SizeRequest(vocabulary=size.vocabulary))


def may_prune_tokens(carving: Carving) -> bool:
    """Return whether tokens may be removed: by request, or because a text and budgets choose their number."""
    size, text = carving.size, carving.methods.text
    is_usual = size.vocabulary.is_usual and bool(size.budgets) and not why_all_tokens_are_kept(carving)
    return size.vocabulary.cuts or (is_usual and text not in NO_FILES and not domains_of(text))


def why_tokens_are_kept(carving: Carving) -> str:
    """Return why tokens are not compared with other units within the budgets; empty where they are."""
    if carving.size.space is not None:
        return f"the space {carving.size.space}"
    if carving.methods.plan not in BY_LOSS:
        return f"--plan {carving.methods.plan}"
    return "a quantised parent" if quantised_types(carving.checkpoint) else ""


def why_all_tokens_are_kept(carving: Carving) -> str:
    """Return why all tokens are kept within the budgets without a request for tokens; empty if they are not.

    Limited time (``--for``) is not spent on passes that compare tokens.
    """
    keeps_all = "--keep 1" if carving.size.shares.all is not None else ""
    return why_tokens_are_kept(carving) or keeps_all or ("--for" if carving.methods.for_ is not None else "")


def best_by_tokens(carving: Carving) -> BestByTokens:
    """Return the best child within the budgets as a function of its number of tokens.

    Its loss is that of all other cuts, and of types, in nats per token; for an encoder 1 - cosine. Raises
    ``ValueError`` where it cannot be estimated.
    """
    from zerolm.carving.vocabulary.fewer_tokens import shaped
    from zerolm.carving.vocabulary.planned_size import BestByTokens, Rest

    reason = why_tokens_are_kept(carving)
    if carving.size.vocabulary.size == AUTO and reason:
        raise ValueError(
            f"--keep-vocab {AUTO} does not compare tokens with other units under {reason}: "
            f"{_two_steps(carving)}"
        )

    @cache
    def whole() -> Carving:
        return carving.running()

    @cache
    def table() -> Criterion:
        parent = whole()
        announce_weighing(parent, "tokens")
        by = losses_by(parent)[0]
        if parent.typing is not None:
            _ = parent.typing.estimates(by).measured  # the parent's rows, for all numbers of tokens
        return by

    def sized(of: Carving, tokens: int) -> Carving:
        parent = replace(carving.parent, checkpoint=shaped(carving.checkpoint, tokens))
        return replace(of, parent=parent, progress=silent)

    def best(tokens: int) -> Rest:
        by, child = table(), sized(whole(), tokens)
        if child.typing is not None:
            plan = child.typing.predicted(by)[0]
            return Rest(child.costs_of(plan.cut)["params"], plan.loss, plan.bytes)
        planned = plans_of(child.checkpoint, by, carving.size, carving.costs)[0]
        return Rest(planned.costs["params"], -planned.score)

    def fits(tokens: int) -> bool:
        return keeps_budgets(sized(carving, tokens))

    return BestByTokens(
        lambda tokens: None if fits(tokens) else check_sizes(sized(whole(), tokens)),
        lambda tokens: sized(carving, tokens).costs_of()["params"],
        fits,
        best,
        carving.has_types,
    )


def _two_steps(carving: Carving) -> str:
    """Return the commands that prune tokens first, and then do the rest of this request."""
    size, form, text = carving.size, carving.destination.form, carving.methods.text
    named = {
        "format": None if form == "hf" else form,
        "keep": None if size.shares.all is None else 1,
        "space": size.space,
        "keep-experts": size.experts.keep,
        **{name.replace("_", "-"): value for name, value in size.budgets.items()},
    }
    flags = "".join(f" --{name} {value}" for name, value in named.items() if value is not None)
    return (
        f"first zerolm carve {carving.parent.name} --keep-vocab {USED} --text {text} --out few, then "
        f"zerolm carve few{flags} --text {text}"
    )


def tokens_note(carving: Carving) -> str:
    """Return a note on how to prune tokens too, where they are not among the units of the budgets."""
    vocabulary, kept = carving.parent.vocabulary or {}, carving.checkpoint.kept_tokens
    saves, reason = vocabulary.get("saves") or 0, why_all_tokens_are_kept(carving)
    if not (reason and carving.size.budgets and carving.size.vocabulary.is_usual and kept is None):
        return ""
    if saves < WORTHWHILE * carving.costs_of()["params"]:
        return ""
    return f"all tokens are kept under {reason}; to prune them too: {_two_steps(carving)}"


def keeps_budgets(carving: Carving) -> bool:
    """Return whether a parent keeps the budgets uncut, and no share requests a cut of other units."""
    size = carving.size
    if size.space is not None or any(share < 1 for share in size.keep.values()):
        return False
    costs = carving.costs_of()
    return all(costs[name.removeprefix("max_")] <= limit for name, limit in size.budgets.items())
