"""``zerolm lab slice`` as a user types it: its file goes where labels go; wrong input writes nothing."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from refusals import refused
from tiny import saved, word_tokenizer

import zerolm as zerolm_package

Zerolm = Callable[..., Any]
ROWS = "text,label\n" + "".join(f"w{n} w{n * 7 % 60} w{n * 3 % 50},{n % 2}\n" for n in range(1, 24))
LOG = "original_text,perturbed_text,ground_truth_output,result_type\n" + "".join(
    f"w{n} w{n + 9},w{n} w{n + 11},{n % 2},{('Failed', 'Successful')[n % 3 // 2]}\n" for n in range(1, 24)
)


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models")
    for name, kind in (("llama", "llama_tied"), ("classes", "bert_classes"), ("bert", "bert")):
        word_tokenizer(saved(folder / name, kind), "w0" if kind != "llama_tied" else None)
    return folder


@pytest.fixture(autouse=True)
def place(here: Path, models: Path) -> Path:
    for each in models.iterdir():
        os.symlink(each, here / each.name)
    Path("text.txt").write_text(" ".join(f"w{n * n % 61}" for n in range(300)))
    Path("lines.txt").write_text("\n".join(f"w{n} w{n * n % 61} w{n * 5 % 59}" for n in range(40)))
    Path("rows.csv").write_text(ROWS)
    Path("log.csv").write_text(LOG)
    Path("wrong.csv").write_text("text,label\nw1,2\n")
    return here


def asked(parent: str, *more: str) -> tuple[str, ...]:
    return ("lab", "slice", parent, "--device", "cpu", "--sequences", "6", "--length", "12", *more)


def run(zerolm: Zerolm, *arguments: str) -> Any:
    ran = zerolm(*arguments)
    assert ran.status == 0, ran.err
    return ran


def test_the_page_has_results_apart_from_their_baselines_and_names_the_text(zerolm: Zerolm) -> None:
    run(zerolm, *asked("llama", "--text", "text.txt", "--count", "6", "--out", "sub nets"))
    report = zerolm_package.load("sub nets")
    heading = report.heading()
    assert [heading.finding.lower().count(f"{name}: ") for name in report.metrics] == [1, 1, 1]
    assert [heading.baseline.count(f"Tau-b with {name}: ") for name in report.metrics] == [1, 1, 1]
    assert "au-b" not in heading.finding
    assert "parent" not in heading.baseline
    making = str(report.sheets()[-1])
    assert "text.txt" in making
    assert "lab slice" in making


def test_the_file_goes_wherever_labels_go(zerolm: Zerolm, place: Path) -> None:
    """``bench run``, ``proxies``, ``calibrate`` and ``search --labels`` take it, and any of its results."""
    flags = ("--count", "12", "--max-macs", "0.95x", "--text", "text.txt", "--out", "mine.json")
    ran = run(zerolm, *asked("llama", *flags))
    assert "12 sub-networks of llama, cut by prefix" in ran.out
    assert "wrote mine.json: results of 12 sub-networks" in ran.err
    truth = json.loads((place / "mine.json").read_text())
    assert [len(truth["architectures"]), truth["metric"]] == [12, "perplexity"]
    assert set(truth["architectures"][0]["results"]) == {"perplexity", "bits_a_byte", "kl"}
    assert truth["source"]["criterion"] == "prefix"
    for metric in ("perplexity", "bits_a_byte", "kl"):
        ran = run(zerolm, "bench", "run", "mine.json", "--metric", metric)
        assert f"mine: {metric} (lower is better), 12 architectures" in ran.out
    small = ("--proxies", "snip,params", "--batch", "8", "--length", "8", "--micro-batches", "2")
    assert "snip" in run(zerolm, "lab", "proxies", "mine.json", *small, "--metric", "kl").out
    kl = ("--labels", "mine.json", "--metric", "kl")
    assert "12 labels of sliced-decoder: kl (lower is better)" in run(zerolm, "calibrate", *kl).out
    few = ("--ffn", "8/24/40")  # of the widths; all else is as the labels say
    searched = json.loads(run(zerolm, "search", "sliced-decoder", *kl, *few, "--json").out)
    assert searched["question"]["space"]["settings"] == truth["settings"] | {"ffn": ["8/24/40"]}
    assert len(searched["pick"]["architecture"]) == 2


def test_a_classifier_has_four_results(zerolm: Zerolm) -> None:
    flags = ("--count", "10", "--seed", "2", "--data", "rows.csv", "--attacked", "log.csv")
    truth = json.loads(run(zerolm, *asked("classes", *flags), "--json").out)["benchmark"]
    assert truth["space"] == "sliced-encoder"
    assert truth["directions"] == {
        "accuracy": "higher", "accuracy_under_attack": "higher",
        "attack_success_rate": "lower", "accuracy_drop": "lower",
    }  # fmt: skip
    for entry in truth["architectures"]:
        assert set(entry["results"]) == set(truth["directions"])
        assert all(-1 <= value <= 1 for value in entry["results"].values())


def test_an_encoder_is_judged_by_its_embeddings_and_on_a_page(zerolm: Zerolm) -> None:
    run(zerolm, *asked("bert", "--count", "4", "--text", "lines.txt"), "--out", "folder")
    assert {"labels.json", "report.html", "run.yaml"} <= {path.name for path in Path("folder").iterdir()}
    truth = json.loads(Path("folder/labels.json").read_text())
    assert all(0 < entry["results"]["distance"] < 2 for entry in truth["architectures"])
    run(zerolm, "lab", "slice", "--config", "folder/run.yaml", "--out", "again.json")
    assert json.loads(Path("again.json").read_text())["architectures"] == truth["architectures"]


TEXT = ("--text", "text.txt")
WRONG = {
    "nothing that judges": (asked("llama"), "give --text, --data or --attacked"),
    "a label beyond the head": (
        asked("classes", "--data", "wrong.csv"),
        "line 2 has label '2'; the head has 2 classes, 0 to 1",
    ),
    "no space of several that fits": (
        asked("llama", "--space", "lonas-llama", *TEXT),
        "lonas-llama-7b is a space of 32 layers",
    ),
    "an unknown space": (asked("llama", "--space", "heads", *TEXT), "space 'heads"),
    "a criterion without text": (
        asked("llama", "--criterion", "output_energy", *TEXT),
        "criterion output_energy needs tokens: give --calibration FILE",
    ),
    "a repair without text": (
        asked("llama", "--repair", "least-squares", *TEXT),
        "repair least-squares needs tokens",
    ),
    "random text": (asked("llama", "--text", "random"), "random tokens cannot rank"),
    "a parent without classes": (asked("bert", "--data", "rows.csv"), "has no head that classifies texts"),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_input_is_one_line_and_writes_nothing(name: str, zerolm: Zerolm, own_cache: Path) -> None:
    call, message = WRONG[name]
    refused(zerolm, *call, "--out", "out.json", words=message)
    assert not list(own_cache.rglob("rows.jsonl"))
