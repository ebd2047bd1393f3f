"""``zerolm elastic``: train a supernet, search it, hand over a model."""

from __future__ import annotations

from typing import Final

from zerolm.commands.command import OUTPUT, Command
from zerolm.commands.costs import CONDITIONS, budgets
from zerolm.commands.heal import PRECISION
from zerolm.settings import REQUIRED, Setting

TEXT: Final = "what it is trained on: a file, a folder, or owner/name of the hub"
SUPERNET: Final = Setting(
    "supernet", "path", REQUIRED, "the folder of a trained supernet", metavar="SUPERNET"
)
TEACHER: Final = (
    Setting("teacher", "path", None, "a model of the same tokenizer to learn from", metavar="DIR"),
    Setting(
        "distillation",
        "text",
        "relational",
        "standardised states, correlations of predictions (relational); squared differences, softened "
        "predictions (classical)",
        choices=("relational", "classical"),
    ),
    Setting("teacher_only", "flag", False, "learn from the teacher alone, not from the text itself too"),
    Setting("predictions", "number", None, "weight of its predictions too", low=0, high=1e6),
)
BATCHES: Final = (
    Setting("batch", "integer", 32, "sequences of a step", low=1, high=1 << 20),
    Setting("length", "integer", 128, "tokens of each sequence", low=2, high=1 << 20),
)
RATE: Final = Setting("rate", "number", 1e-3, "learning rate", low=0, high=10)
SEED: Final = Setting("seed", "integer", 0, "seed of weights, paths and order", low=0, high=(1 << 30) - 1)
PLACE: Final = (
    Setting("out", "path", REQUIRED, "folder to write to", metavar="DIR"),
    Setting("force", "flag", False, "replace that folder, and an unfinished run of it"),
)
ELASTIC_TRAIN: Final = Command(
    name="elastic train",
    summary="Train a supernet: all blocks of all layers, with FFN widths that grow where features are rich.",
    verb="zerolm.api.train_supernet:train_supernet",
    arguments=(
        Setting(
            "space", "text", "elastic", "elastic (encoders) or elastic-causal (decoders)", metavar="SPACE"
        ),
    ),
    groups={
        "Text": (
            Setting("text", "path", REQUIRED, TEXT, metavar="TEXT"),
            Setting(
                "tokens", "integer", REQUIRED, "tokens to train on, over all epochs", low=1, high=1 << 50
            ),
            Setting(
                "tokenizer",
                "path",
                None,
                "folder of a tokenizer; else the teacher's, or one is trained on the text",
                metavar="DIR",
            ),
            Setting("words", "integer", 8192, "tokens of one that is trained", low=2, high=1 << 20),
        ),
        "Learning from": TEACHER,
        "Growth": (
            Setting("epochs", "integer", 10, "parts of the run; widths grow after each", low=1, high=1000),
            Setting(
                "growth", "integer", 3, "steps that each width grows by on average; 0: none", low=0, high=1000
            ),
            Setting(
                "mean_params",
                "integer",
                None,
                "stop growing where paths have more on average",
                low=1,
                high=1 << 50,
            ),
            Setting(
                "eta",
                "number",
                None,
                "share of the variance that counts as rich; else .99, in mobile blocks .9",
                low=0,
                high=0.9999,
            ),
        ),
        "Training": (*BATCHES, RATE, PRECISION, SEED),
        "The supernet": PLACE,
    },
    examples=(
        ("zerolm elastic train --text TEXT --tokens 200M --teacher PARENT --out supernet", "encoders"),
        (
            "zerolm elastic train elastic-causal --text TEXT --tokens 20M --depth 6 --hidden 256 --heads 8 "
            "--step 64 --out supernet",
            "a smaller supernet of decoders",
        ),
    ),
    notes="One path is drawn at every step, uniformly. A run that was killed goes on from its last "
    "checkpoint, to the same weights, when it is started again. Every setting of the space is a flag too.",
    owners=("spaces",),
    output=OUTPUT[2:],
)
LATENCY: Final = tuple(
    Setting(
        f"{side}_latency_us",
        "integer",
        None,
        f"microseconds of a forward pass on this machine at {word}; its blocks are timed first",
        low=1,
        high=1 << 50,
        metavar="AMOUNT",
    )
    for side, word in (("max", "most"), ("min", "least"))
)
ELASTIC_SEARCH: Final = Command(
    name="elastic search",
    summary="Find the best path of a trained supernet within budgets.",
    verb="zerolm.api.search_supernet:search_supernet",
    arguments=(SUPERNET,),
    groups={
        "Budgets": (*budgets("max", "most"), LATENCY[0], *budgets("min", "least"), LATENCY[1]),
        "Conditions of the costs": CONDITIONS,
        "What to maximise": (
            Setting(
                "score",
                "text",
                "supernet",
                "supernet: the loss of the path in it, on text it was not trained on; v_pca, w_pca, or any "
                "closed form (geo, params, ...), whose best path is proven",
            ),
            Setting("text", "path", None, "of this text; else of that it was trained on", metavar="TEXT"),
            Setting("sequences", "integer", 32, "sequences that judge a path", low=1, high=1 << 20),
        ),
        "Search": (
            Setting("top", "integer", 10, "how many paths to list", low=1, high=1000),
            Setting(
                "method",
                "text",
                "auto",
                "auto: evolution for the loss, what proves it for all else; or random, exhaustive",
                metavar="NAME",
            ),
            Setting("population", "integer", 50, "paths of a generation", low=2, high=1 << 20),
            Setting("generations", "integer", 40, "generations of an evolution", low=1, high=1 << 20),
            Setting("seed", "integer", 0, "seed of the methods that draw", low=0, high=2**32 - 1),
        ),
    },
    examples=(
        ("zerolm elastic search supernet --max-params 15.7M --out best", "the paper's limit"),
        ("zerolm elastic search supernet --max-macs 10M --score w_pca", "without its training"),
        ("zerolm elastic search supernet --max-latency-us 3000 --context 128", "as fast as this machine is"),
    ),
)
ELASTIC_EXPORT: Final = Command(
    name="elastic export",
    summary="Write a path of a supernet as a model of its own, which transformers opens.",
    verb="zerolm.api.export_path:export_path",
    arguments=(SUPERNET,),
    groups={
        "The path": (
            Setting(
                "path", "path", REQUIRED, "result of elastic search, or architecture as JSON", metavar="FILE"
            ),
            Setting("scratch", "flag", False, "begin with random weights instead of the supernet's"),
            Setting(
                "heads",
                "text",
                "keep",
                "of heads that repeat each other make fewer and wider ones (fuse), or cut them out (remove)",
                choices=("keep", "fuse", "remove"),
            ),
            Setting("unbiased", "flag", False, "compare heads by the unbiased CKA, of tokens"),
        ),
        "Training": (
            Setting("tokens", "integer", None, "train it so long afterwards", low=1, high=1 << 50),
            Setting("text", "path", None, "on this text; else that of the supernet", metavar="TEXT"),
            *TEACHER,
            *BATCHES,
            RATE,
            PRECISION,
            SEED,
        ),
        "The model": PLACE,
    },
    examples=(
        ("zerolm elastic export supernet --path best --out model", "as it was trained in the supernet"),
        (
            "zerolm elastic export supernet --path best --heads fuse --scratch --tokens 200M --out model",
            "as the paper does: fused, and trained from scratch",
        ),
    ),
    output=OUTPUT[2:],
)
