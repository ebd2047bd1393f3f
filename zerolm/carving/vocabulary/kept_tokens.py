"""Which tokens stay: those that a text uses, or as many as wanted, the least used ones leaving first."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Final

import numpy as np

from zerolm.architecture import Floats, Ints
from zerolm.carving.vocabulary.token_table import TokenTable

PREDICTED: Final = 0.3
"""The weight of a token that the parent predicts beside one that is met.

Of Gemma 3 270M on English manuals weights of .01 to 1 need equal numbers of tokens for the same share of a
held-out text; fewer than the text needs are chosen a little better by larger weights (docs/vocabulary.md).
"""


@dataclass(frozen=True, eq=False)
class TokenUse:
    """How often each row of an embedding is met in a text: ``counts`` (rows,), by the tokens of ``table``.

    ``wanted`` ids stay whatever their counts. ``likely`` (rows,) are the probabilities that the parent
    gives each row on the text, on average: other text of its kind needs tokens that this one has not.
    """

    table: TokenTable
    counts: Ints
    wanted: frozenset[int] = frozenset()
    likely: Floats | None = None

    @cached_property
    def leaving(self) -> list[tuple[int, int]]:
        """The tokens that may leave, in their order, each with how many tokens a text grows by.

        The one of fewest expected uses goes first, of those that no other is merged from; its uses become
        uses of its parts. Rows without a token go before all.
        """
        table, counts = self.table, self.counts.astype(np.int64).copy()
        expected = self.expected.copy()
        staying = table.needed(self.wanted)
        names = set(table.ids.values())
        filled = names | staying
        empty = [(row, 0) for row in range(table.rows - 1, -1, -1) if row not in filled]
        merged_into = np.zeros(table.rows, np.int64)
        for pair in table.parts.values():
            for part in set(pair):
                merged_into[part] += 1
        waiting = [(float(expected[row]), -row) for row in names - staying if not merged_into[row]]
        heapq.heapify(waiting)
        order: list[tuple[int, int]] = []
        while waiting:
            uses, negative = heapq.heappop(waiting)
            row = -negative
            order.append((row, int(counts[row])))
            for part in table.parts.get(row, ()):
                counts[part] += counts[row]
                expected[part] += uses
            for part in set(table.parts.get(row, ())):
                merged_into[part] -= 1
                if not merged_into[part] and part not in staying:
                    heapq.heappush(waiting, (float(expected[part]), -part))
        return empty + order

    @property
    def least(self) -> int:
        """The fewest rows that can be kept."""
        return self.table.rows - len(self.leaving)

    @property
    def expected(self) -> Floats:
        """The uses of each row in other text of the kind, as long as this one, (rows,).

        Those that were counted, and ``PREDICTED`` of those that the parent predicts: it ranks tokens that
        were never met, where a count ranks none.
        """
        counts = self.counts.astype(np.float64)
        return counts if self.likely is None else counts + PREDICTED * counts.sum() * self.likely

    @cached_property
    def used(self) -> int:
        """How many rows are kept where all leave that the text never needs."""
        return len(self.table.needed(self._met))

    def without_unused(self) -> TokenUse:
        """Return the same use, where all that the text needs stays in any case."""
        return replace(self, wanted=self._met)

    @property
    def _met(self) -> frozenset[int]:
        return self.wanted | frozenset(np.flatnonzero(self.counts).tolist())

    def kept(self, size: int) -> Ints:
        """Return the ids of so many rows that stay, ascending; ``ValueError`` where more have to."""
        if not self.least <= size <= self.table.rows:
            raise ValueError(f"{size} tokens cannot be kept: {self.least} of {self.table.rows} must be")
        gone = [row for row, _ in self.leaving[: self.table.rows - size]]
        return np.setdiff1d(np.arange(self.table.rows), np.array(gone, np.int64))

    def growth(self, size: int) -> int:
        """Return by how many tokens the text grows where so many rows stay, each parted once at a time."""
        return sum(count for _, count in self.leaving[: self.table.rows - size])

    def growths(self, counts: Ints, sizes: Sequence[int]) -> list[int]:
        """Return by how many tokens another text of these ``counts`` (rows,) grows at each size."""
        uses, grown = counts.astype(np.int64).copy(), [0]
        for row, _ in self.leaving:
            grown.append(grown[-1] + int(uses[row]))
            for part in self.table.parts.get(row, ()):
                uses[part] += uses[row]
        return [grown[self.table.rows - size] for size in sizes]


def listed(table: TokenTable, tokens: Sequence[int]) -> Ints:
    """Return the ids of a list with all they need, ascending; ``ValueError`` for one that is not known."""
    names = set(table.ids.values())
    unknown = next((token for token in tokens if token not in names), None)
    if unknown is not None:
        raise ValueError(f"the tokenizer has no token of id {unknown}; its ids go up to {max(names)}")
    return np.array(sorted(table.needed(tokens)), np.int64)
