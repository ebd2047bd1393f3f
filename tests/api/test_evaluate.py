"""``zerolm.evaluate``: results on a text and on tasks that save, load and repeat themselves."""

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
from zerolm.api.evaluate import EvaluationReport

import zerolm as package

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
    report = package.evaluate(Path("other"), parent=parent, **FEW)
    check_report(report, zerolm, tmp_path / "out")
    assert [row["name"] for row in report.rows()] == ["child", "parent", "random", "uniform"]
    columns = ["perplexity", "kl"] if name == "llama" else ["cosine"]
    assert report.measures == columns
    pytest.importorskip("pandas")
    table = report.to_pandas().set_index("name")
    assert (table.loc["random", f"{columns[0]}_low"] <= table.loc["random", columns[0]]).all()


def test_results_of_tasks_are_rows() -> None:
    row = {"task": "piqa", "metric": "acc", "samples": 8, "child": 0.5, "child_stderr": 0.1}
    row |= {"parent": 0.625, "parent_stderr": None}
    report = EvaluationReport.of({"tasks": [row]}, {"child": "a", "parent": "b"})
    assert repr(report) == "piqa acc: child 0.5000, parent 0.6250"
    assert report.rows() == [row]
    assert "piqa" in report._repr_html_()


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "nothing to evaluate on": ({}, "give --text FILE"),
    "no tasks": ({"tasks": []}, "give --text FILE"),
    "a limit alone": (FEW | {"limit": 3}, "give --tasks TASKS too"),
    "tasks as a number": ({"tasks": 3}, "tasks must be names"),
    "no sequences": (FEW | {"sequences": 0}, "sequences must be an integer from 1"),
    "half a token": (FEW | {"length": 2.5}, "length must be"),
    "a child as a number": (FEW | {"child": 3}, "child must be a path"),
    "a text as a list": ({"text": ["text.txt"]}, "text must be a path"),
    "random tokens": (FEW | {"text": "random"}, "random tokens tell nothing"),
    "no such text": (FEW | {"text": Path("none.txt")}, "none.txt"),
}


@pytest.mark.parametrize("case", WRONG)
def test_wrong_values_are_said_in_one_line(case: str) -> None:
    given, words = WRONG[case]
    with pytest.raises(ValueError, match=words) as told:
        package.evaluate(**({"child": "parent", "parent": "parent"} | given))
    assert "\n" not in str(told.value)


def test_without_torch_the_extra_is_named() -> None:
    code = """import sys
sys.modules["torch"] = None
import zerolm
try:
    zerolm.evaluate("parent", parent="parent", text="text.txt")
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
    assert json.loads(Path("out/result.json").read_text())["kl"] == report.networks[0]["kl"]
