"""The vocabulary as a choice: the best within budgets that hold for the same text, whatever its tokens."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from zerolm.api.extras import needing_torch
from zerolm.costs import CostModel
from zerolm.progress import Progress, silent
from zerolm.solvers import Infeasible, SearchResult
from zerolm.solvers.result import VocabularyChoice
from zerolm.spaces import SearchSpace, shape_text

PER_TOKEN = ("macs",)
"""Costs that are told for a token; those of the cache are for the whole context."""
Solve = Callable[..., SearchResult]
"""Searches a space within ``budgets`` at ``costs``; ``Infeasible`` where nothing fits."""


@dataclass(frozen=True)
class ChosenVocabulary:
    """The space, budgets and conditions of the vocabulary that was chosen, and all that were looked at."""

    space: SearchSpace
    budgets: dict[str, int]
    costs: CostModel
    every: tuple[VocabularyChoice, ...]


def chosen_vocabulary(
    space: SearchSpace,
    vocabularies: Sequence[int],
    text: str,
    asked: tuple[Mapping[str, int], CostModel],
    solve: Solve,
    progress: Progress = silent,
) -> ChosenVocabulary:
    """Return the vocabulary whose best architecture within the budgets scores most, of equals the smaller.

    ``asked`` are the budgets and conditions in tokens of the smallest vocabulary. A text that takes n tokens
    by it and m by another has a context of m / n as many, rounded up, and n / m as many MACs a token.
    ``ValueError`` for a space without a vocabulary; ``Infeasible`` where nothing fits with any.
    """
    if not any(setting.name == "vocab" for setting in space.declared):
        raise ValueError(f"space {space.name!r} has no vocabulary to choose")
    with needing_torch("tokenizers are trained"):
        from zerolm.text.vocabularies import token_counts

        counts = token_counts(text, vocabularies, progress)
    budgets, costs = asked
    base = counts.tokens[min(vocabularies)]
    every, refused = [], None
    for vocabulary in sorted(vocabularies):
        tokens = counts.tokens[vocabulary]
        own_costs = replace(costs, context=-(-costs.context * tokens // base))
        own = {name: _scaled(name, limit, base, tokens) for name, limit in budgets.items()}
        told = VocabularyChoice(vocabulary, counts.size / tokens, own_costs.context, own)
        progress(f"searching with a vocabulary of {vocabulary}")
        try:
            best = solve(space.with_settings(vocab=vocabulary), budgets=own, costs=own_costs).best[0]
        except Infeasible as error:
            refused = error
        else:
            told = replace(told, score=best.score, costs=best.costs, shape=shape_text(best.architecture))
        every.append(told)
    scores = [one.score for one in every if one.score is not None]
    if refused is not None and not scores:
        raise refused
    chosen = next(one for one in every if one.score == max(scores))
    own_costs = replace(costs, context=chosen.context)
    return ChosenVocabulary(space.with_settings(vocab=chosen.vocab), chosen.budgets, own_costs, tuple(every))


def _scaled(budget: str, limit: int, base: int, tokens: int) -> int:
    """Return a limit for one token of a text that takes so many, where it is told for one of the base."""
    if budget[4:] not in PER_TOKEN:
        return limit
    return limit * base // tokens if budget.startswith("max") else -(-limit * base // tokens)
