"""The size of the vocabulary within budgets: the loss of fewer tokens against that of all other cuts."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Final

from zerolm.carving.parent_and_request import TYPED_BITS, Carving, quantised_types
from zerolm.carving.planned_child import announce_comparison, check_sizes, losses_by, work_of
from zerolm.carving.request import PRICES
from zerolm.carving.result import TriedSize
from zerolm.carving.vocabulary.size_search import MEASURED, SizeSearch
from zerolm.planning.plan import Planned
from zerolm.planning.size_request import AUTO, USED
from zerolm.planning.sizes import plan_of
from zerolm.progress import Progress, silent
from zerolm.units.importance.criterion import Criterion

if TYPE_CHECKING:
    from zerolm.carving.vocabulary.byte_losses import TokenLosses
    from zerolm.carving.vocabulary.text_use import TextUse, TokenUse

SHARES: Final = (3.0, 2.0, 1.5, 1.2, 1.0, 0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2, 0.1)
"""The tried sizes as shares of the used tokens, in addition to all tokens of the parent."""
SMALL: Final = 0.01
"""A loss by fewer tokens, as a share of the parent's bits per byte, below which they are not compared with
other units."""
SMALL_DISTANCE: Final = 1e-3
"""The same for an encoder, as 1 - cosine."""
NOISE: Final = 1e-3
"""Losses that differ by at most this share of the parent's bits per byte count as equal: tokens that
held-out text lacks seem to cost nothing."""
TRIED: Final = 3
"""Of the possible sizes about one in ``TRIED`` is tried."""


class BestByTokens:
    """The best child within the budgets of a carving as a function of its number of tokens."""

    def __init__(self, carving: Carving) -> None:
        """Open it; ``ValueError`` where a request to compare tokens cannot be followed."""
        self.carving, reason = carving, why_tokens_are_kept(carving)
        self._plans: dict[int, Planned] = {}
        if carving.size.vocabulary.size == AUTO and reason:
            raise ValueError(
                f"--keep-vocab {AUTO} does not compare tokens with other units under {reason}: prune them "
                f"first, by --keep-vocab {USED} alone, and carve that child"
            )

    @cached_property
    def whole(self) -> Carving:
        """The carving with all tokens, and with its session."""
        return self.carving.running()

    @cached_property
    def by(self) -> Criterion:
        """The losses of all other units of the parent, for any number of tokens."""
        by = losses_by(self.whole)[0]
        if self.whole.typing is not None:
            _ = self.whole.typing.estimates(by).measured  # the parent's rows
        return by

    def announce(self, sizes: Sequence[int]) -> None:
        """Announce the time to compare numbers of tokens with all other units, if it is long."""
        session, progress = self.whole.session, self.whole.progress
        if session is None or progress is silent:
            return
        work, pace = work_of(self.whole, session), session.pace
        planning, losses = work.planning(pace), work.of_vocabularies(pace, sizes[1::TRIED])
        seconds = planning + losses + work.measuring(pace, MEASURED)
        announce_comparison(progress, "tokens", seconds)

    def check(self, tokens: int) -> None:
        """Raise ``ValueError`` where no child is possible, before any long computation."""
        if not self.fits(tokens):
            check_sizes(self._sized(self.whole, tokens))

    def params(self, tokens: int) -> int:
        return self._sized(self.carving, tokens).costs_of()["params"]

    def fits(self, tokens: int) -> bool:
        """Return whether the parent with this number of tokens keeps the budgets with nothing else cut."""
        return self._sized(self.carving, tokens).keeps_budgets()

    def fits_with_types(self, tokens: int) -> bool:
        """Return whether it fits as in ``fits``, or in ``TYPED_BITS`` per weight where weights get types."""
        parent = self._sized(self.carving, tokens)
        return parent.keeps_budgets(bits=TYPED_BITS if parent.has_types else None)

    def keeps_all(self) -> bool:
        """Return whether types of ``TYPED_BITS`` per weight or more hold all tokens within the budgets.

        They lose less than fewer tokens do on text of another kind, which held-out text cannot show.
        """
        rows = self.carving.checkpoint.layout.vocab
        if not self.carving.has_types or not self.fits_with_types(rows):
            return False
        try:
            self.check(rows)
        except ValueError:  # the requested types are larger
            return False
        return True

    def best(self, tokens: int) -> Planned:
        """Return the plan of the best child with this number of tokens; ``ValueError`` where there is none.

        Its score is minus the loss of all other cuts, and of types, in nats per token; for an encoder 1 -
        cosine.
        """
        if tokens not in self._plans:
            by, child = self.by, self._sized(self.whole, tokens)
            self._plans[tokens] = (
                plan_of(child.checkpoint, by, child.size, child.costs)
                if child.typing is None
                else child.typing.predicted(by)[0]
            )
        return self._plans[tokens]

    def measured(self, tokens: int) -> float | None:
        """Return the measured loss of the best child with this number of tokens after repair, as ``best``.

        Its cuts are measured with all tokens of the parent. None for types alone, whose predictions are
        accurate.
        """
        from zerolm.carving.bits.plan import TypedPlan

        plan, session = self.best(tokens), self.whole.session
        assert session is not None
        cut = self.whole.narrowed(plan.cut, plan.width)
        if not isinstance(plan, TypedPlan):
            return session.finals([cut])[0]
        return None if plan.is_whole else session.typed_final(cut, plan.types)

    def _sized(self, of: Carving, tokens: int) -> Carving:
        from zerolm.carving.vocabulary.fewer_tokens import shaped

        parent = replace(of.parent, checkpoint=shaped(of.checkpoint, tokens))
        return replace(of, parent=parent, progress=silent)


@dataclass(frozen=True)
class VocabularyLosses:
    """Losses of fewer tokens on held-out text, more than ``before``, by the number of tokens."""

    use: TextUse
    losses: TokenLosses

    @property
    def before(self) -> float:
        return self.losses.loss(None)

    @property
    def small(self) -> float:
        """The loss below which fewer tokens are not compared with other units."""
        is_decoder = self.losses.checkpoint.family.task == "next"
        return SMALL * self.before if is_decoder else SMALL_DISTANCE

    def of(self, size: int) -> float:
        if size == self.use.whole.table.rows:
            return 0.0
        return max(0.0, self.losses.loss(self.use.chosen(size, whole=False)) - self.before)


def size_in_limited_time(losses: VocabularyLosses, best_by_tokens: BestByTokens, step: int) -> int:
    """Return a number of tokens without a comparison with other units, which takes passes over the text.

    It is the largest one with which nothing else has to be cut, or the least one with a small loss if that is
    larger.
    """
    use = losses.use.whole
    alone = _most(best_by_tokens.fits_with_types, use.least, use.table.rows, step)
    sizes = [size for size in usual_sizes(use, step) if size > (alone or 0)]
    if alone is not None:
        sizes.append(alone)
    return sizes[bisect_right(sizes, losses.small, key=losses.of) - 1]


def best_of_sizes(
    losses: VocabularyLosses, best_by_tokens: BestByTokens, step: int, progress: Progress
) -> tuple[list[TriedSize], int]:
    """Return the tried sizes of the vocabulary, the largest first, and the best; ``ValueError`` without any.

    The first one tried is the largest number of tokens with which nothing else has to be cut. If its loss is
    small, it is the best, unless weights get types: eight bits lose almost nothing.
    """
    use, scale, carving = losses.use.whole, losses.losses.bits_a_nat, best_by_tokens.carving
    alone = _most(best_by_tokens.fits, use.least, use.table.rows, step)
    tried = dict[int, TriedSize]()
    if alone is not None:
        tried[alone] = TriedSize(alone, best_by_tokens.params(alone), losses.of(alone), 0.0)
        if tried[alone].tokens <= losses.small and not carving.has_types:
            return [tried[alone]], alone

    def plan(size: int) -> TriedSize:
        progress(f"planning with {size:,} tokens")
        best = best_by_tokens.best(size)
        weight_bytes = best.costs["weight_bytes"] if carving.has_types else None
        return TriedSize(size, best.costs["params"], 0.0, -best.score * scale, weight_bytes)

    def tokens(size: int) -> float:
        progress(f"measuring the loss of {size:,} tokens")
        return losses.of(size)

    def measure(size: int) -> float | None:
        loss = best_by_tokens.measured(size)
        return None if loss is None else loss * scale

    sizes = [size for size in usual_sizes(use, step) if size > (alone or 0)]
    best_by_tokens.announce(sizes)
    search = SizeSearch(sizes, plan, tokens, measure, NOISE * losses.before, tried)
    best = search.best()
    return sorted(search.tried.values(), key=lambda one: -one.size), best


def _most(fits: Callable[[int], bool], least: int, rows: int, step: int) -> int | None:
    """Return the largest number of tokens that fits, a multiple of a step; None where none does."""
    if fits(rows):
        return rows
    low, high = -(-least // step), rows // step  # in steps
    if low > high or not fits(low * step):
        return None
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if fits(middle * step) else (low, middle - 1)
    return low * step


def usual_sizes(use: TokenUse, step: int) -> list[int]:
    """Return sizes from all tokens of the parent to a tenth of the used ones, the largest first."""
    rows = use.table.rows
    sizes = (max(use.least, round(share * use.used)) for share in SHARES)
    return list(dict.fromkeys([rows, *(min(rows, -(-size // step) * step) for size in sizes)]))


def why_tokens_are_kept(carving: Carving) -> str:
    """Return why tokens are not compared with other units within the budgets; empty where they are."""
    if carving.size.space is not None:
        return f"the space {carving.size.space}"
    if carving.methods.plan != PRICES:
        return f"--plan {carving.methods.plan}"
    return "a quantised parent" if quantised_types(carving.checkpoint) else ""
