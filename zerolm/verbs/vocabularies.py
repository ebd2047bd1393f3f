"""The vocabulary as a choice: the best within budgets that hold for the same text, whatever its tokens."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from zerolm.costs import CostModel
from zerolm.progress import Progress, silent
from zerolm.solvers import Infeasible, SearchResult
from zerolm.solvers.result import VocabularyChoice
from zerolm.spaces import SearchSpace, shape_text
from zerolm.verbs.shared import needing_torch

PER_TOKEN: Final = ("macs",)
"""Costs of one token; those of the cache are for the whole context."""


@dataclass(frozen=True)
class Scope:
    """A space that is searched, the budgets, and the conditions of the costs."""

    space: SearchSpace
    budgets: dict[str, int]
    costs: CostModel


def best_vocabulary(
    scope: Scope,
    vocabularies: Sequence[int],
    text: str,
    solve: Callable[[Scope], SearchResult],
    progress: Progress = silent,
) -> tuple[Scope, tuple[VocabularyChoice, ...]]:
    """Return the scope with the vocabulary whose best scores most, of equals the smaller, and all of them.

    Budgets and context are in tokens of the smallest vocabulary. A text that takes n tokens by it and m by
    another has m / n times the context, rounded up, and n / m times the MACs a token. ``ValueError`` for a
    space without a vocabulary; ``Infeasible`` where nothing fits with any.
    """
    if not any(setting.name == "vocab" for setting in scope.space.declared):
        raise ValueError(f"space {scope.space.name!r} has no vocabulary to choose")
    with needing_torch("tokenizers are trained"):
        from zerolm.text.vocabularies import token_counts

        counts = token_counts(text, vocabularies, progress)
    base = counts.tokens[min(vocabularies)]
    choices, scopes, refusal = list[VocabularyChoice](), dict[int, Scope](), None
    for vocab in sorted(vocabularies):
        tokens = counts.tokens[vocab]
        scopes[vocab] = scaled = _scaled(scope, vocab, base, tokens)
        choice = VocabularyChoice(vocab, counts.size / tokens, scaled.costs.context, scaled.budgets)
        progress(f"searching with a vocabulary of {vocab}")
        try:
            best = solve(scaled).best[0]
        except Infeasible as error:
            refusal = error
        else:
            shape = shape_text(best.architecture)
            choice = replace(choice, score=best.score, costs=best.costs, shape=shape)
        choices.append(choice)
    scores = [choice.score for choice in choices if choice.score is not None]
    if refusal is not None and not scores:
        raise refusal
    chosen = next(choice for choice in choices if choice.score == max(scores))
    return scopes[chosen.vocab], tuple(choices)


def _scaled(scope: Scope, vocab: int, base: int, tokens: int) -> Scope:
    """Return the scope for a text of ``tokens`` tokens where the smallest vocabulary takes ``base``."""
    budgets = {name: _limit(name, limit, base, tokens) for name, limit in scope.budgets.items()}
    costs = replace(scope.costs, context=-(-scope.costs.context * tokens // base))
    return Scope(scope.space.with_settings(vocab=vocab), budgets, costs)


def _limit(budget: str, limit: int, base: int, tokens: int) -> int:
    """Return a limit for one of ``tokens`` tokens of a text, given the limit for one of the ``base``
    tokens."""
    if budget[4:] not in PER_TOKEN:
        return limit
    return limit * base // tokens if budget.startswith("max") else -(-limit * base // tokens)
