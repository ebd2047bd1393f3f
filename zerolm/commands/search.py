"""``zerolm search``."""

from __future__ import annotations

from typing import Final

from zerolm.commands.command import Command
from zerolm.commands.costs import CONDITIONS, budgets
from zerolm.commands.score import CALIBRATION
from zerolm.settings import Setting

SEARCH: Final = Command(
    name="search",
    summary="Find the best architectures of a space within budgets, with a proof that they are the best.",
    verb="zerolm.api.search:search",
    arguments=(Setting("space", "text", None, "the search space; see `zerolm spaces`", metavar="SPACE"),),
    groups={
        "A model to better": (
            Setting(
                "baseline",
                "path",
                None,
                "a known decoder (`zerolm spaces --known`), a config.json or folder, or owner/name of the "
                "hub: vocabulary, tying and, where none are given, max_params and max_kv_bytes are its own",
                metavar="MODEL",
            ),
            Setting(
                "within",
                "percent",
                None,
                "search sizes so near the baseline's: depth, hidden, FFN, widths of queries and keys",
                low=0,
                high=0.9,
            ),
        ),
        "Vocabulary": (
            Setting(
                "vocabularies",
                "integers",
                None,
                "sizes of vocabularies to choose from; context, MACs and KV cache are then those of the text "
                "that tokens of the smallest hold",
                low=257,
                high=1 << 24,
                examples=("8192,16384,32768",),
            ),
            Setting("text", "path", None, "the text that their tokenizers are trained on and judged by"),
        ),
        "Budgets": (*budgets("max", "most"), *budgets("min", "least")),
        "Conditions of the costs": CONDITIONS,
        "What to maximise": (
            Setting("score", "text", None, "the score to maximise; geo where nothing else is named"),
            Setting("labels", "path", None, "trained architectures of this space, CSV or JSON"),
            Setting("metric", "text", None, "which result of the labels (their own, or their only one)"),
            CALIBRATION,
        ),
        "Search": (
            Setting("top", "integer", 10, "how many architectures to list", low=1, high=1000),
            Setting(
                "method",
                "text",
                "auto",
                "how to search: auto takes the cheapest that proves the optimum of exhaustive, exact, milp; "
                "rerank, nsga2, evolution and random prove nothing",
                metavar="NAME",
            ),
            Setting("seed", "integer", 0, "seed of the methods that draw", low=0, high=2**32 - 1),
        ),
    },
    examples=(
        ("zerolm search llama --max-params 125M --max-kv-bytes 32MB --context 2048", "two budgets at once"),
        ("zerolm search gpt2 --max-params 40M --score zerolm --alpha 1.1", "another score, with its option"),
        ("zerolm search --baseline SmolLM2-135M --context 2048", "better than a known model, at its costs"),
        (
            "zerolm search llama --max-params 60M --max-macs 60M --vocabularies 8192,16384,32768 --text TEXT",
            "the vocabulary, too",
        ),
        ("zerolm search llama --per-layer --max-params 60M --hidden 512 --out best", "write the result"),
    ),
    notes="Every setting of the space and of the score is a flag too: `zerolm search llama --help` lists "
    "those of llama.",
    owners=("spaces", "scores"),
)
