"""``zerolm score``."""

from __future__ import annotations

from typing import Final

from zerolm.commands.command import Command
from zerolm.commands.costs import CONDITIONS
from zerolm.settings import REQUIRED, Setting

CALIBRATION: Final = Setting(
    "calibration", "path", None, "what `zerolm calibrate --out` wrote, the folder or its calibration.json"
)
SCORE: Final = Command(
    name="score",
    summary="Compute the scores and costs of one architecture, or of a Hugging Face configuration.",
    verb="zerolm.api.score:score",
    arguments=(
        Setting(
            "architecture",
            "path",
            REQUIRED,
            "an architecture file, a config.json, or the folder of one",
            metavar="PATH",
        ),
    ),
    groups={
        "Scores": (
            Setting(
                "score",
                "names",
                None,
                "the scores to compute, A,B,C or given several times; else all",
                metavar="NAME",
            ),
            CALIBRATION,
        ),
        "Conditions of the costs": CONDITIONS,
    },
    examples=(
        ("zerolm score best/pick", "what `zerolm search --out best` picked"),
        ("zerolm score config.json --bits 4 --context 4096", "4-bit weights and a cache of 4,096 tokens"),
        ("zerolm score config.json --score zerolm --alpha 0.5 --alpha 1.1", "one score with two options"),
    ),
    notes="Every option of a score is a flag too, and may be given several times: "
    "`zerolm score zerolm --help` lists those of zerolm.",
    owners=("scores",),
    repeated=True,
)
