"""``zerolm.eval``: results on a text and on tasks that save, load and repeat themselves."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from repeated import check_report
from tiny import saved, word_tokenizer

import zerolm as package
from zerolm.verbs.eval import EvaluationReport

FEW: dict[str, Any] = {"text": "text.txt", "sequences": 6, "length": 12}


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder with two models and a text."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ZEROLM_CACHE", str(tmp_path / "cache"))
    word_tokenizer(saved(Path("parent"), "llama"))
    Path("text.txt").write_text(" ".join(f"w{i * i % 61}" for i in range(400)))


@pytest.mark.parametrize("name", ["llama", "bert"])
def test_it_saves_loads_and_repeats(name: str, zerolm: Callable[..., Any], tmp_path: Path) -> None:
    word_tokenizer(saved(Path("other"), name, seed=1))
    parent = "parent" if name == "llama" else "other"
    report = package.eval(Path("other"), parent=parent, **FEW)
    check_report(report, zerolm, tmp_path / "out")
    assert [row["name"] for row in report.rows()] == ["child", "parent", "random", "uniform"]
    columns = ["perplexity", "kl"] if name == "llama" else ["cosine", "distance"]
    assert report.measures == columns
    pytest.importorskip("pandas")
    table = report.to_pandas().set_index("name")
    assert (table.loc["random", f"{columns[0]}_low"] <= table.loc["random", columns[0]]).all()


def test_results_of_tasks_are_rows() -> None:
    row = {"task": "piqa", "metric": "acc", "samples": 8, "child": 0.5, "child_stderr": 0.1}
    row |= {"parent": 0.625, "parent_stderr": None}
    report = EvaluationReport.from_json({"tasks": [row]})
    assert repr(report) == "Of 1 task metrics the child's is below the parent's in 1."
    assert report.rows() == [row]
    assert report.to_json() == {"tasks": [row]}
    for words in ("piqa", "0.5000", "± 0.1000", "0.6250"):
        assert words in report._repr_html_()


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "nothing to evaluate on": ({}, "give --text FILE"),
    "no tasks": ({"tasks": []}, "give --text FILE"),
    "a limit alone": (FEW | {"limit": 3}, "give --tasks TASKS too"),
    "no others": (FEW | {"beside": []}, "beside names no folder"),
    "others without a text": ({"tasks": "piqa", "beside": "other"}, "--beside compares on a text"),
    "random tokens": (FEW | {"text": "random"}, "random tokens tell nothing"),
}


@pytest.mark.parametrize("case", WRONG)
def test_settings_that_do_not_go_together_are_said_in_one_line(case: str) -> None:
    settings, words = WRONG[case]
    with pytest.raises(ValueError, match=words) as told:
        package.eval(**({"child": "parent", "parent": "parent"} | settings))
    assert "\n" not in str(told.value)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda rows: rows.reverse(), "must begin with child and parent, not with uniform, random"),
        (lambda rows: rows[2].pop("kl"), "row 'random' has no kl"),
        (lambda rows: rows[0].update(params="many"), "params"),
    ],
)
def test_an_edited_result_is_an_error_that_names_the_field(change: Any, words: str) -> None:
    document = json.loads(json.dumps(package.eval("parent", parent="parent", **FEW).to_json()))
    change(document["rows"])
    with pytest.raises(ValueError, match=words) as told:
        EvaluationReport.from_json(document)
    assert "\n" not in str(told.value)


@pytest.mark.parametrize(
    ("name", "length", "words"),
    [
        ("llama", 12, []),
        ("gpt2", 100_000, ["at most 32 tokens, not 100,000: the model has no more positions"]),
        ("bert", 256, ["at most 32 tokens, not 256: the model has no more positions"]),
        ("bert", 20, ["at most 10 tokens, not 20: no line of the text is longer"]),
        ("bert", 8, []),
    ],
)
def test_sequences_that_are_shorter_than_asked_are_told(name: str, length: int, words: list[str]) -> None:
    word_tokenizer(saved(Path("model"), name))
    if name == "bert":
        Path("text.txt").write_text(
            "\n".join(" ".join(f"w{i * j % 61}" for i in range(10)) for j in range(9))
        )
    report = package.eval("model", parent="model", text="text.txt", sequences=2, length=length)
    assert report.remarks == [f"sequences have {text}" for text in words]
    assert ("shortened" in report.to_json()) == bool(words)


def test_without_torch_the_extra_is_named() -> None:
    code = """import sys
sys.modules["torch"] = None
import zerolm
try:
    zerolm.eval("parent", parent="parent", text="text.txt")
except ModuleNotFoundError as error:
    print(error)"""
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.endswith("pip install 'zerolm[torch]'\n")
    assert ran.stdout.count("\n") == 1


def test_a_folder_of_the_command(zerolm: Callable[..., Any], tmp_path: Path) -> None:
    flags = ("--text", "text.txt", "--sequences", "6", "--length", "12", "--out", "out")
    assert zerolm("eval", "parent", "--parent", "parent", *flags).status == 0
    report = EvaluationReport.load("out")
    assert report.configuration["text"] == str(tmp_path / "text.txt")
    assert json.loads(Path("out/result.json").read_text())["kl"] == report.networks[0].kl
