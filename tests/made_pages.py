"""Pages of every kind, of inputs that take seconds."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import elastic_verbs
from label_training import ASKED, some_text
from small_benchmarks import llamas
from small_comparison import decoder_file, encoder_file
from small_searches import free_search, small_search, vocabulary_search
from tiny import saved, word_tokenizer

import zerolm
from zerolm.calibration import calibrate, judge
from zerolm.comparison.ablate import ablate
from zerolm.comparison.bench import bench
from zerolm.comparison.results import Comparison
from zerolm.groundtruth.labels import read_labels, to_document
from zerolm.report.ablation import ablation_fragment, ablation_page
from zerolm.report.calibration import calibration_fragment, calibration_page
from zerolm.report.carving import carving_fragment, carving_page
from zerolm.report.comparison import comparison_fragment, comparison_page
from zerolm.report.doctor import doctor_fragment, doctor_page
from zerolm.report.evaluation import evaluation_fragment, evaluation_page
from zerolm.report.exported_path import exported_fragment, exported_page
from zerolm.report.label_training import label_training_fragment, label_training_page
from zerolm.report.ledger import ledger_fragment, ledger_page
from zerolm.report.proxies import proxies_fragment, proxies_page
from zerolm.report.supernet import supernet_fragment, supernet_page
from zerolm.verbs.report import Report, Run

KINDS = (
    *("search", "search-free", "search-vocabularies", "comparison", "ablation", "calibration"),
    *(
        "proxies-benchmark",
        "proxies-space",
        "proxies-model",
        "carving",
        "carving-plan",
        "carving-weights",
        "evaluation",
        "doctor",
        "ledger",
        "score",
        "labels",
        "supernet",
        "path",
    ),
)
PARENT, SEQUENCES, LENGTH = "llama", 6, 12


@dataclass(frozen=True)
class Made:
    """The pages and fragments by kind, and some of what they are of."""

    pages: dict[str, str]
    fragments: dict[str, str]
    inputs: dict[str, Any]


def proxy_runs(folder: Path) -> dict[str, Any]:
    from zerolm.proxies.measure import Request, measure

    settings = {"batch": 4, "length": 8, "parts": 2}
    request = Request(["synflow", "grad_norm"], settings=settings, store=folder / "store.sqlite")
    ranked = measure(str(llamas(folder / "labels.csv", 24)), request)
    several = replace(ranked, section=None, verdict=None)
    first = {name: column[:1] for name, column in ranked.measured.columns.items()}
    alone = replace(several, params=None, measured=replace(
        ranked.measured, columns=first, candidates=ranked.measured.candidates[:1], left_out={"jacov": "why"}
    ))  # fmt: skip
    return {"proxies-benchmark": ranked, "proxies-space": several, "proxies-model": alone}


def checkpoint_documents(folder: Path) -> dict[str, Any]:
    """What the commands print of a tiny parent and its child."""
    from carvings import carve

    from zerolm.carving.evaluation.evaluate import evaluate
    from zerolm.doctor.examine import diagnose

    parent, text, child = folder / "parent", folder / "text.txt", folder / "child"
    word_tokenizer(saved(parent, PARENT))
    text.write_text(" ".join(f"w{i * i % 61}" for i in range(400)))
    sizes = {"sequences": SEQUENCES, "length": LENGTH}
    budgets = {"max_params": "0.7x"}
    carved = carve(parent, child, budgets=budgets, keep_hidden=0.75, shape="per-layer", form="padded",
                   text=str(text), **sizes)  # fmt: skip
    plan = carve(parent, budgets=budgets, text=str(text), **sizes)
    judged = evaluate(child, parent, text, **sizes).to_json()
    row = {"task": "copy", "metric": "acc", "samples": 9, "child": 0.5, "child_stderr": 0.1,
           "parent": 0.75, "parent_stderr": None}  # fmt: skip
    diagnosis = diagnose(child)
    doctor = {
        "folder": str(child),
        "runtimes": [asdict(verdict) for verdict in diagnosis.verdicts],
        **diagnosis.facts,
        "advice": diagnosis.advice,
    }
    documents = {
        "carving": carved.to_json(),
        "carving-plan": plan.to_json(),
        "carving-weights": carve(parent, keep_hidden=0.6).to_json(),
        "evaluation": judged | {"tasks": [row]},
        "doctor": doctor,
        "ledger": zerolm.ledger(parent).to_json(),
        "labels": zerolm.train_labels("llama", text=some_text(folder), **ASKED, seeds=2).to_json(),
        "supernet": elastic_verbs.train(folder).to_json(),
        "path": elastic_verbs.export(folder, heads="fuse", tokens=512, batch=4, length=16).to_json(),
    }
    return {name: json.loads(json.dumps(document)) for name, document in documents.items()}


def page_of(report: Report, configuration: dict[str, Any]) -> str:
    """Return the page of a result that was made with a configuration."""
    return replace(report, run=Run(configuration)).page()


def make(folder: Path) -> Made:
    """Make all of them from inputs in a folder."""
    files = [encoder_file(folder, 12), decoder_file(folder, 10)]
    labels = read_labels(Path(files[1]))
    inputs = {
        "search": small_search(),
        "search-free": free_search(),
        "search-vocabularies": vocabulary_search(folder / "words"),
        "comparison": bench(files, draws=50),
        "ablation": ablate(files[1:]),
        "calibration": json.loads(json.dumps(to_document(calibrate(labels), judge(labels)))),
        **proxy_runs(folder),
        **checkpoint_documents(folder),
        "score": zerolm.score(folder / "parent"),
    }
    makers: dict[str, tuple[Any, Any]] = {
        **{name: (page_of, Report._repr_html_) for name in inputs if name.startswith(("search", "score"))},
        "comparison": (comparison_page, comparison_fragment),
        "ablation": (ablation_page, ablation_fragment),
        "calibration": (calibration_page, calibration_fragment),
        **{name: (proxies_page, proxies_fragment) for name in inputs if name.startswith("proxies")},
        **{name: (carving_page, carving_fragment) for name in inputs if name.startswith("carving")},
        "evaluation": (evaluation_page, evaluation_fragment),
        "doctor": (doctor_page, doctor_fragment),
        "ledger": (ledger_page, ledger_fragment),
        "labels": (label_training_page, label_training_fragment),
        "supernet": (supernet_page, supernet_fragment),
        "path": (exported_page, exported_fragment),
    }
    configuration = {"command": "any", "max_params": "900k", "text": "text.txt"}
    pages = {name: makers[name][0](given, configuration=configuration) for name, given in inputs.items()}
    first, *_, last = inputs["comparison"].sections
    pages["comparison"] = comparison_page(Comparison([first, last]), inputs["ablation"])
    return Made(pages, {name: makers[name][1](given) for name, given in inputs.items()}, inputs)
