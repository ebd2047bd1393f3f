"""Saved results are read back as what they were, without torch; a field that is wrong is named."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest
import torch
from label_training import SPACE, TRAINING, some_text
from small_benchmarks import llamas
from small_supernets import SIZES, run_of, text_in

from zerolm.elastic.export import ExportRequest, export
from zerolm.elastic.folder import read_supernet
from zerolm.elastic.learner import Growth
from zerolm.elastic.result import Exported, TrainedSupernet
from zerolm.elastic.train import SupernetRequest, train_supernet
from zerolm.progress import silent
from zerolm.proxies.measure import measure
from zerolm.proxies.request import Request, Selection
from zerolm.proxies.result import Run
from zerolm.solvers.drawing import drawn
from zerolm.spaces import SPACES
from zerolm.training.label_document import trained_labels
from zerolm.training.labels import Label, LabelText
from zerolm.training.request import Schedule, TrainingRequest
from zerolm.training.result import TrainedLabels

MODULES: Final = ("elastic", "proxies", "training", "doctor")


def supernet(folder: Path) -> TrainedSupernet:
    request = SupernetRequest(
        text_in(folder), run_of(4), settings=SIZES, growth=Growth(2, 1, 1), vocabulary=300
    )
    return train_supernet(request, folder / "net")


def exported(folder: Path) -> Exported:
    supernet(folder)
    net, *_ = read_supernet(folder / "net")
    request = ExportRequest(net.architecture([0, 4]).choices, heads="fuse", training=run_of(2))
    return export(folder / "net", request, folder / "path")


def labels(folder: Path) -> TrainedLabels:
    request = TrainingRequest(TRAINING["tokens"], 2, 16, Schedule(0.01))
    declared = {s.name: s.parse(SPACE[s.name]) for s in SPACES["llama"].declared if s.name in SPACE}
    text = LabelText.of(str(some_text(folder)), "llama", declared, request, silent)
    few = drawn(text.space, 4, 0, distinct=True)
    runs = [[Label({80: 3.0 + i, 160: 2.0 + i}, 1.5), Label({160: 2.25 + i}, 1)] for i in range(3)]
    return trained_labels("few", text, request, few, [*runs, [Label({}, 0.0, "the loss is nan")]])


def of_space(folder: Path) -> Run:
    settings = {"batch": 2, "length": 4, "parts": 1}
    selection = Selection(count=2, max_params=20_000_000)
    request = Request(["params", "dss"], settings=settings, networks=selection, store=folder / "store")
    return measure("llama", request)


MADE: Final[dict[str, tuple[Callable[[Path], Any], dict[str, tuple[Any, str]]]]] = {
    "supernet": (
        supernet,
        {
            "history": ([{"epoch": 1}], "'history.0.widths': field required"),
            "training": ({"tokens": 1.5}, "'training.tokens': "),
            "more": (1, "'more': unexpected keyword argument"),
        },
    ),
    "path": (exported, {"losses": ({"after": "low"}, "'losses.after': "), "costs": (7, "'costs': ")}),
    "labels": (labels, {"rows": ([7], "'rows.0': "), "noise": ({"tau": 1}, "'noise.rho': field required")}),
    "proxies": (of_space, {"params": ([1.0], "'params': 1 values of 2 networks"), "title": (7, "'title'")}),
}


@pytest.mark.parametrize("name", MADE)
def test_a_result_reads_itself_back(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ZEROLM_CACHE", str(tmp_path / "cache"))
    torch.set_num_threads(1)
    make, wrong = MADE[name]
    result = make(tmp_path)
    text = json.dumps(result.to_json())
    again = type(result).from_json(json.loads(text))
    assert json.dumps(again.to_json()) == text
    if name != "proxies":  # its arrays have no equality
        assert again == result
    for field, (value, message) in wrong.items():
        with pytest.raises(ValueError, match=f"^{message}") as refused:
            type(result).from_json({**json.loads(text), field: value})
        assert "\n" not in str(refused.value)
    for odd in (None, [], 7, {}):
        with pytest.raises(ValueError, match=r"^('[a-z_]+'|it): "):
            type(result).from_json(odd)


def test_the_proxies_of_a_benchmark_are_read_with_its_section(tmp_path: Path) -> None:
    settings = {"batch": 4, "length": 8, "parts": 2}
    request = Request(["synflow", "grad_norm"], settings=settings, store=tmp_path / "store")
    run = measure(str(llamas(tmp_path / "labels.csv", 24)), request)
    document = json.loads(json.dumps(run.to_json()))
    again = Run.from_json(document, run.section)
    assert again.to_json() == run.to_json()
    assert again.verdict == run.verdict
    with pytest.raises(ValueError, match=r"^'section': "):
        Run.from_json(document)
    with pytest.raises(ValueError, match=r"^'libra.test': "):
        Run.from_json({**document, "libra": {**document["libra"], "test": "12"}}, run.section)


def test_results_are_read_without_torch() -> None:
    imports = "".join(f"import zerolm.{module}.result; " for module in MODULES)
    check = "print(sorted({'torch', 'transformers', 'safetensors'} & set(sys.modules)))"
    done = subprocess.run(
        [sys.executable, "-c", f"import sys; {imports}{check}"], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"
