"""The tokens used in a text, and the choice of those to keep: the least used are removed first."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Final

import numpy as np

from zerolm.architecture import Floats, Ints
from zerolm.carving.vocabulary.counted_text import CountedText, token_counts_of
from zerolm.carving.vocabulary.token_table import TokenTable
from zerolm.carving.vocabulary.tokenizer_files import TokenizerFiles
from zerolm.checkpoints import Checkpoint
from zerolm.io.files import parse_json, read_text
from zerolm.progress import Progress

MAX_LIST: Final = 64 << 20
PREDICTED: Final = 0.3
"""The weight of a token that the parent predicts, relative to one in the text.

For Gemma 3 270M on English manuals weights of .01 to 1 need equal numbers of tokens for the same share of a
held-out text. Larger weights choose a little better among vocabularies smaller than the text needs
(docs/vocabulary.md).
"""


@dataclass(frozen=True, eq=False)
class TokenUse:
    """Counts of each row of an embedding in a text: ``counts`` (rows,), for the tokens of ``table``.

    ``wanted`` ids are kept whatever their counts. ``likely`` (rows,) are the parent's mean probabilities of
    each row on the text: similar texts need tokens that do not occur in it.
    """

    table: TokenTable
    counts: Ints
    wanted: frozenset[int] = frozenset()
    likely: Floats | None = None

    @cached_property
    def removal_order(self) -> list[int]:
        """The rows that may be removed, in their order.

        The token with the fewest expected uses is removed first, of those that no other is merged from; its
        uses become uses of its parts. Rows without a token are removed before all others.
        """
        table, expected = self.table, self.expected.copy()
        required = table.needed(self.wanted)
        names = set(table.ids.values())
        filled = names | required
        order = [row for row in range(table.rows - 1, -1, -1) if row not in filled]
        merged_into = np.zeros(table.rows, np.int64)
        for pair in table.parts.values():
            for part in set(pair):
                merged_into[part] += 1
        waiting = [(float(expected[row]), -row) for row in names - required if not merged_into[row]]
        heapq.heapify(waiting)
        while waiting:
            uses, negative = heapq.heappop(waiting)
            row = -negative
            order.append(row)
            for part in table.parts.get(row, ()):
                expected[part] += uses
            for part in set(table.parts.get(row, ())):
                merged_into[part] -= 1
                if not merged_into[part] and part not in required:
                    heapq.heappush(waiting, (float(expected[part]), -part))
        return order

    @property
    def least(self) -> int:
        """The smallest possible number of kept rows."""
        return self.table.rows - len(self.removal_order)

    @property
    def expected(self) -> Floats:
        """The expected uses of each row in a similar text of the same length, (rows,).

        These are the counts, plus ``PREDICTED`` times the parent's predictions, which rank tokens that do not
        occur in the text.
        """
        counts = self.counts.astype(np.float64)
        return counts if self.likely is None else counts + PREDICTED * counts.sum() * self.likely

    @cached_property
    def used(self) -> int:
        """The number of kept rows when all tokens that the text never needs are removed."""
        return len(self.table.needed(self._met))

    def without_unused(self) -> TokenUse:
        """Return the same use, with all tokens that the text needs kept in any case."""
        return replace(self, wanted=self._met)

    @property
    def _met(self) -> frozenset[int]:
        return self.wanted | frozenset(np.flatnonzero(self.counts).tolist())

    def kept(self, size: int) -> Ints:
        """Return the ids of ``size`` kept rows, ascending; ``ValueError`` where more have to be kept."""
        if not self.least <= size <= self.table.rows:
            raise ValueError(f"{size} tokens cannot be kept: {self.least} of {self.table.rows} must be")
        removed = np.array(self.removal_order[: self.table.rows - size], np.int64)
        return np.setdiff1d(np.arange(self.table.rows), removed)

    def growth(self, size: int) -> int:
        """Return the growth of the text in tokens with ``size`` kept rows; each is split once."""
        return self.growths(self.counts, [size])[0]

    def growths(self, counts: Ints, sizes: Sequence[int]) -> list[int]:
        """Return the growth in tokens at each size of another text with these ``counts`` (rows,)."""
        uses, grown = counts.astype(np.int64).copy(), [0]
        for row in self.removal_order:
            grown.append(grown[-1] + int(uses[row]))
            for part in self.table.parts.get(row, ()):
                uses[part] += uses[row]
        return [grown[self.table.rows - size] for size in sizes]


def listed(table: TokenTable, tokens: Sequence[int]) -> Ints:
    """Return the ids of a list with all that they need, ascending; ``ValueError`` for an unknown id."""
    names = set(table.ids.values())
    unknown = next((token for token in tokens if token not in names), None)
    if unknown is not None:
        raise ValueError(f"the tokenizer has no token of id {unknown}; its ids go up to {max(names)}")
    return np.array(sorted(table.needed(tokens)), np.int64)


@dataclass(frozen=True, eq=False)
class TextUse:
    """The tokens used in a text: in all of it, and in its ``fitted`` part, without the held-out rest."""

    whole: TokenUse
    fitted: TokenUse
    text: CountedText

    def predicted(self, likely: Floats) -> TextUse:
        """Return the same use, with tokens ranked also by the parent's predictions."""
        whole, fitted = (replace(part, likely=likely) for part in (self.whole, self.fitted))
        return TextUse(whole, fitted, self.text)

    @property
    def is_held_out(self) -> bool:
        """Whether the text is long enough for a held-out part."""
        return bool(self.text.held_pieces)

    def chosen(self, size: int, *, used: bool = False, whole: bool = True) -> Ints:
        """Return the ids of ``size`` rows, chosen on all of the text or on its fitted part alone.

        ``used``: all tokens that the text needs are kept, and at least these.
        """
        use = self.whole if whole else self.fitted
        if used:
            use = use.without_unused()
            size = size if whole else use.least
        return use.kept(size)

    def curve(self, sizes: Sequence[int]) -> list[float]:
        """Return the relative growth of the held-out text at each size, with tokens chosen on the rest."""
        held = self.text.held
        total = max(1, int(held.sum()))
        return [grown / total for grown in self.fitted.growths(held, sizes)]


def use_of(
    checkpoint: Checkpoint, text: str | None, tokens: str | None = None, *, progress: Progress
) -> TextUse:
    """Return the counts of a checkpoint's tokens in a text, and in its fitted part; without a text all are 0.

    Tokens in a file with a list are kept. Raises ``ValueError`` for a tokenizer that cannot be cut.
    """
    files = TokenizerFiles(checkpoint)
    table, rows = files.table, checkpoint.layout.vocab
    wanted = set(files.named)
    if tokens is not None:
        wanted |= set(listed(table, read_list(Path(tokens))).tolist())
    nothing = np.zeros(rows, np.int64)
    counted = (
        CountedText(nothing, nothing, (), ()) if text is None else token_counts_of(files, text, progress)
    )
    whole, fitted = (TokenUse(table, each, frozenset(wanted)) for each in (counted.whole, counted.fitted))
    return TextUse(whole, fitted, counted)


def read_list(file: Path) -> list[int]:
    """Return the ids in a file: a JSON list, or one per line; ``ValueError`` for any other content."""
    try:
        text = read_text(file, MAX_LIST)
        ids = parse_json(text) if text.lstrip().startswith("[") else [int(line) for line in text.split()]
        if not isinstance(ids, list) or not all(type(number) is int for number in ids) or not ids:
            raise ValueError("it holds no list of ids")
    except (OSError, ValueError, RecursionError) as error:
        raise ValueError(f"the tokens to keep in {str(file)!r} cannot be read: {error}") from None
    return ids
