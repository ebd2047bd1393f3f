"""``zerolm carve``."""

from __future__ import annotations

from typing import Final

from zerolm.commands.checkpoints import PARENT, TOKENS
from zerolm.commands.command import OUTPUT, Command
from zerolm.commands.costs import CONDITIONS, budgets
from zerolm.settings import Setting, with_defaults

CARVE: Final = Command(
    name="carve",
    summary="Cut a smaller checkpoint out of a larger one, write it, reopen it and compare.",
    verb="zerolm.api.carve:carve",
    arguments=(PARENT,),
    groups={
        "How small": (
            *budgets("max", "most, or 0.8x of the parent's", "amount"),
            Setting("keep_ffn", "number", None, "share of the FFN neurons to keep", low=0, high=1),
            Setting("keep_heads", "number", None, "share of the KV groups of heads to keep", low=0, high=1),
            Setting("keep_layers", "number", None, "share of the layers to keep", low=0, high=1),
            Setting(
                "keep_hidden", "number", None, "share of the hidden size to keep, in one basis", low=0, high=1
            ),
        ),
        "Sizes that may be": (
            Setting(
                "shape",
                "text",
                None,
                "one size for all layers, or each its own; uniform unless a space is named",
                choices=("uniform", "per-layer"),
            ),
            Setting(
                "space",
                "text",
                None,
                "sizes, and how costs are counted, of a space of LoNAS",
                choices=("lonas-bert", "lonas-llama-7b", "lonas-llama-13b"),
                metavar="NAME",
            ),
            Setting(
                "multiple_of",
                "integer",
                None,
                "what FFN widths and hidden size are multiples of",
                low=1,
                high=1 << 24,
            ),
            Setting(
                "tensor_parallel", "integer", 1, "ways that divide KV groups and FFN", low=1, high=1 << 16
            ),
            Setting("least_groups", "integer", 1, "KV groups that every layer keeps", low=1, high=1 << 24),
            Setting("least_ffn", "integer", 1, "FFN neurons that every layer keeps", low=1, high=1 << 24),
        ),
        "What goes": (
            Setting(
                "criterion",
                "text",
                None,
                "what a unit is worth; from weights: capacity (without text), zerolm, max_weight, "
                "max_weight_strict, magnitude, random, prefix; from tokens: amp, output_energy (with text)",
                metavar="NAME",
            ),
            Setting(
                "plan",
                "text",
                None,
                "sizes by the criterion (weights), by losses of single cuts (measured; with text), or those "
                "that a space names (heuristic)",
                choices=("weights", "measured", "heuristic"),
            ),
        ),
        "Text": (
            Setting(
                "text",
                "path",
                None,
                "calibration text, or random tokens, which need no data",
                metavar="FILE|random",
            ),
            *TOKENS,
            Setting(
                "repair",
                "text",
                None,
                "how the output matrices are solved again: none, bias, least-squares (with text)",
                metavar="NAME",
            ),
            Setting(
                "seed", "integer", 0, "seed of random tokens and of criterion random", low=0, high=2**63 - 1
            ),
        ),
        "Healing": (
            Setting(
                "heal",
                "amount",
                None,
                "train the child on so many tokens of the text to predict what its parent predicts",
                metavar="TOKENS",
            ),
            Setting("steps", "integer", 1, "stages to cut in, healed one by one", low=1, high=100),
        ),
        "Costs": (
            *(setting for setting in CONDITIONS if setting.name not in ("bits", "group_size")),
            *with_defaults(
                (setting for setting in CONDITIONS if setting.name in ("bits", "group_size")),
                bits=None,
                group_size=None,
            ),
        ),
        "The child": (
            Setting(
                "format", "text", None, "hf, unless a recipe says other; padded; or gguf", metavar="NAME"
            ),
            Setting(
                "recipe", "path", None, "recipe.json of a child to build again, in place of sizes and methods"
            ),
            Setting(
                "out", "path", None, "folder to write the child to; without it only planned", metavar="DIR"
            ),
            Setting("force", "flag", False, "replace that folder if it holds an earlier child"),
        ),
    },
    examples=(
        ("zerolm carve PARENT --max-params 0.8x", "only the plan: what stays, and what it costs"),
        (
            "zerolm carve PARENT --max-params 0.8x --text TEXT --out child",
            "by what units do on a text, repaired, written, reopened and compared",
        ),
        (
            "zerolm carve PARENT --keep-ffn .5 --text TEXT --heal 10M --steps 2 --out child",
            "half of the FFN in two cuts, each healed on five million tokens",
        ),
        ("zerolm carve PARENT --recipe child/recipe.json --text TEXT --out again", "the same child again"),
    ),
    notes="A carving that was killed goes on when it is started again. Weight bytes are those of the types "
    "that weights are stored in, unless --bits or --group-size is given.",
    output=OUTPUT[2:],
)
