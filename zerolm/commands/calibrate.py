"""``zerolm calibrate``."""

from __future__ import annotations

from typing import Final

from zerolm.commands.command import Command
from zerolm.settings import REQUIRED, Setting

METHODS: Final = ("auto", "stack", "dictionary", "gp", "blend", "algorithm1", "algorithm2")
METRIC: Final = Setting(
    "metric", "text", None, "which result of the file counts; else its own, or its only one", metavar="NAME"
)
CALIBRATE: Final = Command(
    name="calibrate",
    summary="Fit a better ranking to a few trained architectures, judged on those it did not see.",
    verb="zerolm.api.calibrate:calibrate",
    groups={
        "Labels": (
            Setting("labels", "path", REQUIRED, "trained architectures with their results, CSV or JSON"),
            METRIC,
        ),
        "Fit": (
            Setting(
                "method",
                "text",
                "auto",
                f"{', '.join(METHODS)}: auto stands for stack, which weighs dictionary, gp and two plain "
                "scores by what they predict of hidden labels; algorithm1 and algorithm2 choose an alpha as "
                "ZeroLM does",
                choices=METHODS,
                metavar="NAME",
            ),
            Setting("seed", "integer", 0, "seed of the folds and splits", low=0, high=2**32 - 1),
        ),
    },
    examples=(
        ("zerolm calibrate --labels labels.csv", "how well a fit predicts results that it did not see"),
        ("zerolm calibrate --labels labels.csv --out fitted", "keep the fit, with a page on it"),
        ("zerolm search llama --calibration fitted --max-params 60M", "search by it"),
    ),
    notes="The labels are a benchmark file, or a CSV file with the columns space, architecture (JSON, or one "
    "column architecture.NAME a choice) and a result. `zerolm search --calibration DIR` and "
    "`zerolm score --calibration DIR` use what --out wrote.",
)
