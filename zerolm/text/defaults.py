"""The text that stands for random tokens, and how many tokens are taken where nothing is said."""

from __future__ import annotations

from typing import Final

RANDOM: Final = "random"
SEQUENCES: Final = 256
LENGTH: Final = 256
TOKENIZER_FILES: Final = ("tokenizer.json", "tokenizer.model", "vocab.json", "vocab.txt")
"""Files that a folder with a tokenizer has one of."""
HELD: Final = 64
"""Sequences of each text that are held out, unless that is more than a tenth of it."""
