"""``zerolm heal``."""

from __future__ import annotations

from typing import Final

from zerolm.commands.command import OUTPUT, Command
from zerolm.settings import REQUIRED, Setting

LOSSES: Final = "next-token, kl, reverse-kl, dist (predictions), hidden, mse (states of the layers)"
PRECISION: Final = Setting(
    "precision",
    "text",
    "auto",
    "of the products; auto is bfloat16 where the device multiplies in it",
    choices=("auto", "bfloat16", "float32"),
)
TRAINING: Final = (
    Setting("batch", "integer", 8, "sequences of a step, over all processes", low=1, high=1 << 20),
    Setting("length", "integer", 256, "tokens of each sequence", low=2, high=1 << 26),
    PRECISION,
    Setting("accumulate", "integer", 1, "parts that a batch is computed in", low=1, high=1 << 20),
    Setting("checkpointing", "flag", False, "compute activations twice, which saves memory"),
    Setting("compile", "flag", False, "compile the network first: a minute that long runs win back"),
    Setting("seed", "integer", 0, "seed of the order of the text", low=0, high=2**32 - 1),
)
"""How a step is made."""
HOW_LONG: Final = (
    Setting("tokens", "amount", None, "tokens to train on; those of a text come again when all have come"),
    Setting("for_", "duration", None, "train about so long instead: 90s, 30m, 1.5h", low=1, high=10**8),
)
HEAL: Final = Command(
    name="heal",
    summary="Train a carved child to predict what its parent predicts.",
    verb="zerolm.api.heal:heal",
    arguments=(Setting("child", "path", REQUIRED, "the folder of a carved checkpoint", metavar="CHILD"),),
    groups={
        "Learning from": (
            Setting("parent", "path", REQUIRED, "the checkpoint that it was carved from", metavar="DIR"),
            Setting(
                "teacher",
                "path",
                None,
                "another one of the same vocabulary to learn from; else the parent",
                metavar="DIR",
            ),
            Setting(
                "top",
                "integer",
                None,
                "run the teacher once and keep its so many likeliest tokens on the disk, so that it is not "
                "in memory; else it runs beside the child",
                low=1,
                high=1 << 24,
            ),
        ),
        "Text": (
            Setting(
                "text",
                "names",
                REQUIRED,
                "files, folders, data sets of the hub",
                metavar="TEXT,...",
            ),
            Setting("mix", "shares", None, "how often each text is drawn from; else by size", low=0),
            *HOW_LONG,
        ),
        "Losses": (
            Setting(
                "losses", "names", None, f"of {LOSSES}; else kl and hidden, of encoders mse", metavar="A,B"
            ),
            Setting("temperature", "number", 1.0, "that predictions are softened by", low=0, high=100),
        ),
        "Training": (
            Setting(
                "lora", "integer", None, "train adapters of this rank, merged at the end", low=1, high=1 << 16
            ),
            Setting(
                "rate", "number", None, "learning rate; it follows the damage unless given", low=0, high=10
            ),
            *TRAINING,
        ),
        "The child": (
            Setting("format", "text", None, "hf, padded or gguf; else that of the child", metavar="NAME"),
            Setting("out", "path", REQUIRED, "folder to write the healed child to", metavar="DIR"),
            Setting("force", "flag", False, "replace that folder, and an unfinished run of it"),
        ),
    },
    examples=(
        ("zerolm heal child --parent PARENT --text TEXT --for 30m --out healed", "half an hour, tonight"),
        (
            "zerolm heal child --parent PARENT --text code/,prose.txt --mix 3,1 --tokens 20M --out healed",
            "a folder of code and a file, three to one",
        ),
    ),
    notes="The end of each text is held out and tells the loss before and after. A run that was killed goes "
    "on from its last checkpoint when it is started again. Begun with accelerate launch -m zerolm heal, it "
    "takes all devices that accelerate is configured for.",
    output=OUTPUT[2:],
)
