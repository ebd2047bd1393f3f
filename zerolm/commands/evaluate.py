"""``zerolm eval``."""

from __future__ import annotations

from typing import Final

from zerolm.commands.checkpoints import TOKENS
from zerolm.commands.command import Command
from zerolm.settings import REQUIRED, Setting

EVAL: Final = Command(
    name="eval",
    summary="Show what a child has lost beside its parent, and beside other carvings of its size.",
    verb="zerolm.api.evaluate:evaluate",
    arguments=(Setting("child", "path", REQUIRED, "the folder of a checkpoint", metavar="CHILD"),),
    groups={
        "Compared with": (
            Setting("parent", "path", REQUIRED, "the checkpoint that it came from", metavar="DIR"),
            Setting(
                "beside", "names", None, "other children of that parent, as before healing", metavar="DIR,..."
            ),
        ),
        "Text": (
            Setting("text", "path", None, "text that neither of them has been fitted to"),
            *TOKENS,
        ),
        "Tasks": (
            Setting(
                "tasks",
                "names",
                None,
                "tasks of lm-evaluation-harness, by name or .yaml file, which may hold code that is run",
                metavar="TASKS",
            ),
            Setting("limit", "integer", None, "samples of each task at most", low=1, high=1 << 40),
        ),
    },
    examples=(
        ("zerolm eval child --parent PARENT --text TEXT", "perplexity and divergence on a text"),
        (
            "zerolm eval healed --parent PARENT --beside repaired,child --text TEXT",
            "what repairing and healing gave back",
        ),
        ("zerolm eval child --parent PARENT --tasks hellaswag,arc_easy --limit 200", "tasks on both"),
        ("zerolm eval child --parent PARENT --text TEXT --out lost", "the same as a page and as JSON"),
    ),
    notes="Of decoders it tells perplexity and KL divergence from the parent, of encoders the cosine of "
    "embeddings. Beside the child stand random and uniform carvings of the parent of the same size. The data "
    "of tasks come from the hub.",
)
