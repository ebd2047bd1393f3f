"""``zerolm proxies`` and ``zerolm proxies ls``."""

from __future__ import annotations

from typing import Final

from zerolm.commands.calibrate import METRIC
from zerolm.commands.command import LISTING, Command
from zerolm.commands.listings import DATA
from zerolm.settings import REQUIRED, Setting

BACKEND: Final = Setting(
    "backend",
    "text",
    "loky",
    "processes of this machine (loky), or a Ray cluster (ray)",
    choices=("loky", "ray"),
)
"""Where networks are computed, several at a time."""
PROXIES: Final = Command(
    name="proxies",
    summary="Compute training-free proxies of networks that run, all from a handful of shared passes.",
    verb="zerolm.api.measure:measure",
    arguments=(
        Setting(
            "target",
            "path",
            REQUIRED,
            "a space, a benchmark (by name or file), or a folder with a model",
            metavar="TARGET",
        ),
    ),
    groups={
        "Which proxies": (
            Setting("proxies", "names", None, "some of `zerolm proxies ls`; all of them unless named"),
            Setting(
                "mode",
                "text",
                "sane",
                "what the papers mean, on a real loss (sane), or what the released code does (faithful)",
                choices=("sane", "faithful"),
            ),
            Setting(
                "upstream",
                "text",
                None,
                "where gradients begin: at the loss of the task, or at ones; usually at the loss",
                choices=("task", "ones"),
            ),
        ),
        "Which networks": (
            Setting("count", "integer", None, "networks drawn from a space; else 20", low=1, high=1 << 20),
            Setting(
                "max_params",
                "integer",
                None,
                "parameters at most of networks drawn from a space",
                low=0,
                metavar="AMOUNT",
            ),
            Setting(
                "limit",
                "integer",
                None,
                "architectures of a benchmark at most, evenly spread",
                low=2,
                high=1 << 40,
            ),
            Setting("view", "text", None, "how flexibert is read: declared, published or trained"),
            METRIC,
            DATA,
        ),
        "What they read": (
            Setting(
                "text",
                "path",
                "random",
                "what tokens come from; random needs no data",
                metavar="FILE|random",
            ),
            Setting("batch", "integer", 64, "sequences, or images", low=1, high=1 << 24),
            Setting("length", "integer", 128, "tokens of each sequence", low=1, high=1 << 24),
            Setting("micro_batches", "integer", 8, "equal parts of the batch", low=1, high=1 << 24),
            Setting("seed", "integer", 0, "seed of weights, masks and samples", low=0, high=2**63 - 1),
        ),
        "How they run": (
            Setting("device", "text", "cpu", "where networks run", choices=("cpu", "cuda")),
            Setting("jobs", "integer", 1, "networks computed at the same time", low=1, high=1024),
            BACKEND,
            Setting("store", "path", None, "SQLite file of what is computed; else one in the cache"),
        ),
    },
    examples=(
        ("zerolm proxies flexibert --count 10", "networks drawn from a space: what only counts parameters?"),
        ("zerolm proxies gpt2_wt103 --proxies snip,zico --limit 50", "how they rank trained architectures"),
        (
            "zerolm proxies MODEL --text TEXT --out values",
            "one model on tokens of a text, as a page",
        ),
    ),
    notes="What is computed is stored at once: a second run reuses it, a killed one goes on where it was.",
)
PROXIES_LS: Final = Command(
    name="proxies ls",
    summary="List the proxies: what they need, and where they come from.",
    verb="zerolm.api.measure:list_proxies",
    examples=(
        ("zerolm proxies ls", "one line a proxy"),
        ("zerolm proxies ls --json", "the same for machines"),
    ),
    output=LISTING,
)
