"""The texts that are no files, and how many tokens are taken of one."""

from __future__ import annotations

from typing import Any, Final

from zerolm.settings.request import setting

RANDOM: Final = "random"
GENERATED: Final = "generated"
"""A text that the parent samples from its own predictions."""
NO_FILES: Final = (None, RANDOM, GENERATED)
"""Texts that are read from no file."""
SEQUENCES: Final = 256
LENGTH: Final = 256
LEAST_SEQUENCES: Final = 3
"""A text is divided into at least one sequence to fit and two held-out ones."""
TOKENIZER_FILES: Final = ("tokenizer.json", "tokenizer.model", "vocab.json", "vocab.txt")
"""Files that a folder with a tokenizer has one of."""
HELD: Final = 64
"""Sequences of each text that are held out, unless that is more than a tenth of it."""


def sequences() -> Any:
    return setting("integer", SEQUENCES, "sequences taken from the text", low=1, high=1 << 26)


def length() -> Any:
    return setting("integer", LENGTH, "tokens per sequence", low=2, high=1 << 26)


def text_field(**more: Any) -> Any:
    """Return a field for the name of the field that holds the text of records."""
    help_ = (
        "record field with the text in JSON, Parquet or data sets, or A+B; default: text, content, "
        "messages, or prompt+completion"
    )
    return setting("text", None, help_, metavar="NAME", **more)
