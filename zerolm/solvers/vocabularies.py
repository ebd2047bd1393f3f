"""The vocabulary as a choice: the best within budgets that hold for the same text, whatever its tokens."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Final

from zerolm.costs import CostModel
from zerolm.progress import Progress, silent
from zerolm.solvers.result import SearchResult, VocabularyChoice
from zerolm.solvers.solver import Infeasible
from zerolm.spaces import SearchSpace, shape_text

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
    tokens_by_size: Mapping[int, int],
    text_bytes: int,
    solve: Callable[[Scope], SearchResult],
    progress: Progress = silent,
) -> tuple[Scope, tuple[VocabularyChoice, ...]]:
    """Return the scope with the vocabulary whose best scores most, of equals the smaller, and all of them.

    A text of ``text_bytes`` has ``tokens_by_size[vocab]`` tokens in each vocabulary. Budgets and context are
    in tokens of the smallest vocabulary. A text that takes n tokens by it and m by another has m / n times
    the context, rounded up, and n / m times the MACs a token. Raises ``Infeasible`` where nothing fits with
    any vocabulary.
    """
    base = tokens_by_size[min(tokens_by_size)]
    choices, scopes, refusal = list[VocabularyChoice](), dict[int, Scope](), None
    for vocab, tokens in sorted(tokens_by_size.items()):
        scopes[vocab] = scaled = _scaled(scope, vocab, base, tokens)
        choice = VocabularyChoice(vocab, text_bytes / tokens, scaled.costs.context, scaled.budgets)
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
