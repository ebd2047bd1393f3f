"""Tokens as units of a budget: how many are kept together with all other cuts, or why all are kept."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from zerolm.carving.parent_and_request import Carving
from zerolm.carving.request import Methods
from zerolm.carving.vocabulary.planned_size import BestByTokens, keeps_budgets, why_tokens_are_kept
from zerolm.checkpoints import ledger_of
from zerolm.planning.size_request import AUTO, SizeRequest, VocabularyRequest
from zerolm.progress import announce
from zerolm.settings.domains import domains_of
from zerolm.text.defaults import NO_FILES


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

    is_usual = may_prune_tokens(carving) and not size.vocabulary.cuts and can_lose_tokens(parent.checkpoint)
    if not size.vocabulary.cuts and not is_usual:
        return suggested(carving)
    ledger_of(parent.checkpoint, progress=progress)  # rejects weights that are not finite
    request = replace(size, vocabulary=VocabularyRequest(AUTO)) if is_usual else size
    model, kept = chosen(replace(carving, size=request), BestByTokens(carving))
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
        return suggested(carving)
    child = replace(carving, parent=model)
    if size.experts.are_cut or not keeps_budgets(child):
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
