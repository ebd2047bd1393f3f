"""``zerolm doctor``."""

from __future__ import annotations

from typing import Final

from zerolm.commands.command import Command
from zerolm.settings import REQUIRED, Setting

DOCTOR: Final = Command(
    name="doctor",
    summary="Say which runtimes open a checkpoint, and why not.",
    verb="zerolm.api.doctor:diagnose",
    arguments=(
        Setting("folder", "path", REQUIRED, "a folder with a checkpoint, sound or not", metavar="DIR"),
    ),
    examples=(
        ("zerolm doctor child", "one line for each runtime, then sizes and what they divide by"),
        ("zerolm doctor child --out diagnosis", "the same as a page, as JSON, and how to repeat it"),
    ),
    notes="transformers and llama.cpp really open it where they are installed; the others are judged by "
    "their rules. No pickle is opened, and no code of the folder is run.",
)
