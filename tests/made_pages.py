"""Results of every kind, of inputs that take seconds, with their pages and fragments.

What has to be trained first is kept as JSON in ``goldens``; ``python tests/made_pages.py`` makes it anew.
"""

import json
import os
import sys
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from zerolm.verbs import commands
from zerolm.verbs.call import function_of
from zerolm.verbs.report import Report, Run

GOLDENS: Final = Path(__file__).parent / "goldens"
TRAINED: Final = {
    "labels": "bench train", "supernet": "lab elastic train", "path": "lab elastic export", "healing": "heal",
}  # fmt: skip
"""The commands of the kinds that are kept."""
KINDS: Final = (
    *("search", "search-free", "search-vocabularies", "comparison", "ablation", "calibration"),
    *("proxies-benchmark", "proxies-space", "proxies-model", "carving", "carving-plan", "carving-weights"),
    *("evaluation", "doctor", "ledger", "score", *TRAINED),
)
TINY: Final = {"sequences": 6, "length": 12}
"""The size of a batch that a tiny parent is judged by."""
RUN: Final = Run({"max_params": "900k", "text": "text.txt"}, machine="a machine", date="2026-01-01")


def run(command: str, settings: dict[str, Any]) -> Any:
    """Return the result of a command for settings by name."""
    return function_of(command)(**settings)


@dataclass(frozen=True)
class Made:
    """Results by kind, and the pages and fragments of them."""

    reports: dict[str, Report]
    pages: dict[str, str] = field(init=False)
    fragments: dict[str, str] = field(init=False)

    def __post_init__(self) -> None:
        of_kind = self.reports.items()
        object.__setattr__(self, "pages", {kind: report.page() for kind, report in of_kind})
        object.__setattr__(self, "fragments", {kind: report._repr_html_() for kind, report in of_kind})


def golden(kind: str) -> Report:
    document = json.loads((GOLDENS / f"{kind}.json").read_text("utf-8"))
    report = commands()[TRAINED[kind]].report
    assert issubclass(report, Report)
    return report.from_json(document)


def searches(folder: Path) -> dict[str, Report]:
    """Search llamas whose layers may differ, a space without a stock class, and vocabularies.

    Of the vocabularies one leaves nothing within the budgets.
    """
    from drawn_words import words_in

    few = {"depth": [2, 3], "hidden": [64, 128], "head_size": [32], "ffn": [128, 256, 512]}
    ranges = {"hidden_per_depth": (1.0, 200.0), "ffn_per_hidden": (1.0, 6.0)}
    budgets = {"max_params": 400_000, "max_macs": 300_000}
    vocabularies = {"vocabularies": [300, 400, 700], "text": words_in(folder), **budgets}
    settings: dict[str, dict[str, Any]] = {
        "search": {
            "space": "llama", "depth": [2, 3, 4], "hidden": [64, 128, 192], "head_size": [32],
            "ffn": [128, 256, 384, 512], "vocab": 512, "hidden_per_depth": (8, 128),
            "ffn_per_hidden": (1, 4), "max_params": 900_000, "max_kv_bytes": 1_000_000, "top": 5,
        },
        "search-free": {
            "space": "gpt2", "depth": [3, 4], "hidden": [128], "ffn": [256, 512], "score": "zerolm",
            "alpha": 0.5, "top": 3,
        },
        "search-vocabularies": {"space": "llama", **few, **ranges, **vocabularies, "top": 3},
    }  # fmt: skip
    return {kind: run("search", values) for kind, values in settings.items()}


def comparisons(folder: Path) -> dict[str, Report]:
    from small_comparison import decoder_file, encoder_file

    from zerolm.comparison.bench import bench
    from zerolm.comparison.results import Comparison
    from zerolm.verbs.bench_report import BenchReport

    encoders, decoders = encoder_file(folder, 12), decoder_file(folder, 10)
    first, *_, last = bench([encoders, decoders], draws=50).sections
    return {
        "comparison": BenchReport(Comparison([first, last])),
        "ablation": run("lab ablate", {"names": [decoders]}),
        "calibration": run("calibrate", {"labels": decoders}),
    }


def proxies(folder: Path, parent: Path) -> dict[str, Report]:
    """Compute proxies of trained architectures, of the same ones without results, and of one model."""
    from small_benchmarks import llamas

    shared = {
        "proxies": ["synflow", "grad_norm"], "batch": 4, "length": 8, "micro_batches": 2,
        "store": folder / "store.jsonl",
    }  # fmt: skip
    ranked: Any = run("lab proxies", {**shared, "target": llamas(folder / "labels.csv", 24)})
    return {
        "proxies-benchmark": ranked,
        "proxies-space": replace(ranked, section=None, libra=None),
        "proxies-model": run("lab proxies", {**shared, "target": parent}),
    }


def checkpoints(folder: Path, parent: Path) -> dict[str, Report]:
    """Carve a tiny parent, judge the child, diagnose it, and look at the parent."""
    text, child = folder / "text.txt", folder / "child"
    text.write_text(" ".join(f"w{i * i % 61}" for i in range(400)))
    sizes = {"parent": parent, "max_params": "0.7x", "text": text, **TINY}
    carving = run(
        "carve", {**sizes, "out": child, "keep_hidden": 0.75, "shape": "per-layer", "format": "padded"}
    )
    task = {"task": "copy", "metric": "acc", "samples": 9, "child": 0.5, "child_stderr": 0.1,
            "parent": 0.75, "parent_stderr": None}  # fmt: skip
    judged = run("eval", {"child": child, "parent": parent, "text": text, **TINY})
    return {
        "carving": carving,
        "carving-plan": run("carve", sizes),
        "carving-weights": run("carve", {"parent": parent, "keep_hidden": 0.6, "criterion": "capacity"}),
        "evaluation": type(judged).from_json(judged.to_json() | {"tasks": [task]}),
        "doctor": run("doctor", {"folder": child}),
        "ledger": run("ledger", {"parent": parent}),
        "score": run("score", {"architecture": parent}),
    }


def parent_in(folder: Path) -> Path:
    from tiny import saved, word_tokenizer

    parent = folder / "parent"
    word_tokenizer(saved(parent, "llama"))
    return parent


def make(folder: Path) -> Made:
    """Return results of all kinds, of inputs in a folder."""
    parent = parent_in(folder)
    reports = {
        **searches(folder), **comparisons(folder), **proxies(folder, parent), **checkpoints(folder, parent),
        **{kind: golden(kind) for kind in TRAINED},
    }  # fmt: skip
    return Made({kind: replace(reports[kind], run=RUN) for kind in KINDS})


def train(folder: Path) -> dict[str, Report]:
    import elastic_verbs
    from carvings import carve
    from label_training import ASKED, some_text

    parent, child = parent_in(folder), folder / "child"
    text = some_text(folder)
    carve(parent, child, keep_ffn=0.5)
    healing = {"child": child, "parent": parent, "text": [text], "tokens": 1920, "batch": 4, "length": 12}
    return {
        "labels": run("bench train", {"space": "llama", "text": text, **ASKED, "seeds": 2}),
        "supernet": elastic_verbs.train(folder),
        "path": elastic_verbs.export(folder, heads="fuse", tokens=512, batch=4, length=16),
        "healing": run("heal", {**healing, "out": folder / "healed"}),
    }


if __name__ == "__main__":
    os.environ["OMP_NUM_THREADS"] = "1"
    with TemporaryDirectory() as place:
        os.environ["ZEROLM_CACHE"] = f"{place}/cache"
        for kind, report in train(Path(place)).items():
            text = json.dumps(report.to_json(), separators=(",", ":")).replace(f"{place}/", "")
            (GOLDENS / f"{kind}.json").write_text(text + "\n", encoding="utf-8")
            print(f"wrote {kind}.json: {len(text):,} characters", file=sys.stderr)
