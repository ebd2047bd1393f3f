"""How long a text is by tokenizers of several sizes, each trained on the rest of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from zerolm.progress import Progress, silent
from zerolm.settings.messages import plural
from zerolm.text.encoding import beginning, encoded, trained_tokenizer

PARTS: Final = 200
HELD: Final = 10
"""The text is cut into ``PARTS`` parts, and every tenth is held out."""
LEAST_CHARACTERS: Final = 20_000


@dataclass(frozen=True)
class TokenCounts:
    """The ``tokens`` that ``size`` bytes of text take, by the number of ids of a tokenizer."""

    size: int
    tokens: dict[int, int]


def token_counts(source: str, vocabularies: Sequence[int], progress: Progress = silent) -> TokenCounts:
    """Return the number of tokens of a held-out text by a byte-level BPE of each size.

    The tokenizers are trained on nine parts in ten of the first 16 Mi characters of the ``source`` (a file, a
    folder, or a data set of the hub), the tenth is counted. ``ValueError`` where the text is too short, for
    that or for a tokenizer of that size.
    """
    text = "".join(beginning(source))
    if len(text) < LEAST_CHARACTERS:
        raise ValueError(
            f"the text {source!r} has {plural(len(text), 'character')}; {LEAST_CHARACTERS} are the least to "
            "compare vocabularies"
        )
    step = -(-len(text) // PARTS)
    parts = [text[start : start + step] for start in range(0, len(text), step)]
    held = parts[HELD - 1 :: HELD]
    seen = [part for number, part in enumerate(parts) if number % HELD != HELD - 1]
    tokens = {}
    for vocabulary in sorted(vocabularies, reverse=True):  # too short a text is told at once
        progress(f"training a tokenizer of {vocabulary}")
        tokenizer = trained_tokenizer(seen, vocabulary)
        size = len(tokenizer)
        if size < vocabulary:
            raise ValueError(
                f"the text {source!r} gives a tokenizer of {size} ids at most, not of {vocabulary}; give "
                f"more text, or vocabularies up to {size}"
            )
        tokens[vocabulary] = sum(map(len, encoded(tokenizer, held)))
    return TokenCounts(sum(len(part.encode()) for part in held), tokens)
