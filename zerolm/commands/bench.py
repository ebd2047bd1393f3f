"""``zerolm bench run`` and ``zerolm bench ablate``."""

from __future__ import annotations

from typing import Final

from zerolm.commands.calibrate import METRIC
from zerolm.commands.command import Command
from zerolm.commands.listings import DATA
from zerolm.settings import Setting

NAMES: Final = Setting(
    "names", "names", None, "benchmarks of the data folders or of zerolm, or files", metavar="NAME"
)
BENCHMARKS: Final = (
    Setting("all", "flag", False, "take every benchmark of these folders; what cannot be read is left out"),
    DATA,
    METRIC,
)
BENCH: Final = Command(
    name="bench run",
    summary="Rank trained architectures by every score: is any better than counting parameters?",
    verb="zerolm.api.bench:bench",
    arguments=(NAMES,),
    groups={
        "Benchmarks": BENCHMARKS,
        "Proxies beside the scores": (
            Setting("proxies", "names", None, "some of `zerolm proxies ls`; none unless they are named"),
            Setting(
                "text",
                "path",
                None,
                "what the proxies' tokens come from; random unless it is given",
                metavar="FILE|random",
            ),
            Setting("jobs", "integer", None, "networks computed at the same time; else 1", low=1, high=1024),
            Setting("store", "path", None, "SQLite file of what proxies gave; else one in the cache"),
        ),
    },
    examples=(
        ("zerolm bench run gpt2_wt103", "200 language models, which come with zerolm"),
        ("zerolm bench run --all --out comparison", "all at hand, with a page and tables"),
        ("zerolm bench run labels.csv --alpha 0.5 --alpha 1.1", "your own trained models"),
        ("zerolm bench run pit_vit --proxies snip,zico", "two proxies of real networks beside the scores"),
    ),
    notes="Each score is judged by tau-b with the trained results, with bootstrap intervals, beside the "
    "count of parameters; *pairs* is the share of pairs of about equal size that it orders rightly. Every "
    "option of a score is a flag too, and may be given several times.",
    owners=("scores",),
    repeated=True,
)
ABLATE: Final = Command(
    name="bench ablate",
    summary="Show what ZeroLM's score hangs on: matrices that count, initialisation, seed, borrowed alphas.",
    verb="zerolm.api.ablate:ablate",
    arguments=(NAMES,),
    groups={"Benchmarks": BENCHMARKS},
    examples=(
        ("zerolm bench ablate gpt2_wt103 pit_vit", "two benchmarks, and each other's best alpha"),
        ("zerolm bench ablate --all --out ablation", "all at hand, with a page"),
    ),
    notes="Each change is the difference of tau-b to the published form, with a paired bootstrap interval.",
)
