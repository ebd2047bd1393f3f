"""Settings that the commands on checkpoints share."""

from __future__ import annotations

from typing import Final

from zerolm.settings import REQUIRED, Setting

PARENT: Final = Setting(
    "parent", "path", REQUIRED, "a folder with a checkpoint, or a model of the hub", metavar="PARENT"
)
TOKENS: Final = (
    Setting("sequences", "integer", 256, "sequences taken from the text", low=1, high=1 << 26),
    Setting("length", "integer", 256, "tokens of each sequence", low=2, high=1 << 26),
)
"""How many tokens of a text are used."""
