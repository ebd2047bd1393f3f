"""``zerolm bench train``."""

from __future__ import annotations

from typing import Final

from zerolm.commands.command import OUTPUT, Command
from zerolm.commands.heal import PRECISION
from zerolm.commands.proxies import BACKEND
from zerolm.settings import REQUIRED, Setting

SIZES: Final = {"params": "parameters", "body_params": "parameters without embeddings and head"}
BENCH_TRAIN: Final = Command(
    name="bench train",
    summary="Train architectures of a space the same way: labels of your own, to rank and to search by.",
    verb="zerolm.api.label_training:train_labels",
    arguments=(
        Setting(
            "space", "text", None, "the space that they are drawn from; not with --rows", metavar="SPACE"
        ),
    ),
    groups={
        "Architectures": (
            Setting("rows", "path", None, "benchmark file whose architectures are trained; none are drawn"),
            Setting(
                "count", "integer", None, "architectures at most; else 60, or all rows", low=2, high=1 << 20
            ),
            *(
                Setting(f"{side}_{cost}", "integer", None, f"{text} at {word}", low=0, metavar="AMOUNT")
                for side, word in (("max", "most"), ("min", "least"))
                for cost, text in SIZES.items()
            ),
        ),
        "Training": (
            Setting(
                "text",
                "path",
                REQUIRED,
                "what they are trained on: a file, a folder, or owner/name of the hub",
                metavar="TEXT",
            ),
            Setting("held_out", "path", None, "text to judge on; else the end of the text", metavar="TEXT"),
            Setting("tokens", "integer", 3_000_000, "tokens that each is trained on", low=1, high=1 << 50),
            Setting("batch", "integer", 8, "sequences of a step", low=1, high=1 << 20),
            Setting("length", "integer", 256, "tokens of a sequence", low=2, high=1 << 20),
            Setting(
                "rate",
                "number",
                0.002,
                "learning rate at width 256; other widths follow by muP",
                low=0,
                high=100,
            ),
            PRECISION,
            Setting("compile", "flag", False, "compile the layers first: half a minute a shape on a CPU"),
            Setting("seed", "integer", 0, "seed of draws, weights and order", low=0, high=(1 << 30) - 1),
        ),
        "Noise": (
            Setting("seeds", "integer", 1, "seeds that some are trained from", low=1, high=1000),
            Setting("repeated", "integer", 6, "how many are trained from all seeds", low=2, high=1 << 20),
        ),
        "How they run": (
            Setting("jobs", "integer", 1, "architectures trained at the same time", low=1, high=1024),
            BACKEND,
        ),
        "Result": (
            Setting(
                "out",
                "path",
                None,
                "benchmark file to write (NAME.json), or a folder for it with a page on it",
                metavar="FILE",
            ),
            Setting("force", "flag", False, "replace an earlier result there"),
        ),
    },
    examples=(
        (
            "zerolm bench train llama --count 60 --max-body-params 9M --text TEXT --out mine.json",
            "labels of one's own",
        ),
        ("zerolm calibrate --labels mine.json", "what they teach"),
        (
            "zerolm bench train llama --hidden 64:256:32 --text TEXT --seeds 3 --jobs 2 --out trained",
            "a smaller space, with the noise of seeds, two at a time, and a page",
        ),
    ),
    notes="Every setting of the space is a flag too; its vocabulary is that of a tokenizer trained on the "
    "text, 2048 ids unless --vocab says other. Every finished architecture is kept in the cache: a command "
    "that was killed goes on when it is started again, and one with a larger --count trains only the others.",
    owners=("spaces",),
    output=OUTPUT[2:],
)
