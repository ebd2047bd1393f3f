"""The tokens used in a text, in all of it and in the part that is not held out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import numpy as np

from zerolm.architecture import Floats, Ints
from zerolm.carving.vocabulary.counted_text import CountedText, token_counts_of
from zerolm.carving.vocabulary.kept_tokens import TokenUse, listed
from zerolm.carving.vocabulary.tokenizer_files import TokenizerFiles
from zerolm.checkpoints import Checkpoint
from zerolm.io.files import parse_json, read_text
from zerolm.progress import Progress

MAX_LIST: Final = 64 << 20


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
