"""What the README promises: its commands run, its Python runs, its benchmark file is one."""

from __future__ import annotations

import importlib
import json
import os
import re
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from zerolm.scores import SCORES
from zerolm.spaces import space_names

README = (Path(__file__).parent.parent / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```(\w+)\n(.*?)```", README, flags=re.DOTALL)
COMMANDS = [
    line
    for language, text in BLOCKS
    if language == "console"
    for line in text.splitlines()
    if line.startswith("zerolm ")
]
CARVING = [command for command in COMMANDS if "PARENT" in command or "child" in command]


def run_in(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if os.environ.get("ZEROLM_DATA"):  # it may be relative to where the tests were started
        monkeypatch.setenv("ZEROLM_DATA", str(Path(os.environ["ZEROLM_DATA"]).resolve()))
    monkeypatch.chdir(folder)
    yaml = next(text for language, text in BLOCKS if language == "yaml")
    (folder / "run.yaml").write_text(yaml)
    (folder / "labels.csv").write_text(labels())


def labels() -> str:
    """The README's label file, continued by models that a simple law of depth and width trained."""
    text = next(text for language, text in BLOCKS if language == "csv")
    rows = [
        f"llama,{depth},{hidden},64,{hidden // 64},2,{hidden * 8 // 3},{6 - 0.2 * depth**0.5 - hidden / 400}"
        for depth in (2, 6, 12, 16)
        for hidden in (128, 256, 512, 640)
    ]
    return text + "\n".join(rows) + "\n"


def test_the_commands_run(
    zerolm: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_in(tmp_path, monkeypatch)
    without_data = [command for command in COMMANDS if "BENCHMARKS" not in command and command not in CARVING]
    assert len(without_data) >= 6
    for command in [*without_data, "zerolm search --config run.yaml"]:
        ran = zerolm(*shlex.split(command)[1:])
        assert (ran.status, "Traceback" in ran.err) == (0, False), command
        assert ran.out
    assert (tmp_path / "demo" / "pick" / "config.json").is_file()


def test_the_benchmark_commands_run(
    zerolm: Callable[..., Any], data_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_in(tmp_path, monkeypatch)
    commands = [command for command in COMMANDS if "BENCHMARKS" in command]
    assert len(commands) >= 3
    for command in commands:
        ran = zerolm(*shlex.split(command.replace("BENCHMARKS", str(data_folder)))[1:])
        assert (ran.status, "Traceback" in ran.err) == (0, False), command
        assert ran.out
    assert (tmp_path / "comparison" / "report.html").is_file()


def make_parent(folder: Path) -> None:
    """A tiny ``PARENT`` with a tokenizer, and texts."""
    from tiny import saved, word_tokenizer

    word_tokenizer(saved(folder / "PARENT", "llama"))
    for name, step in (("TEXT", 7), ("OTHER_TEXT", 5)):
        (folder / name).write_text(" ".join(f"w{i * step % 64}" for i in range(600)))


def test_the_carving_commands_run(
    zerolm: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("transformers")
    run_in(tmp_path, monkeypatch)
    make_parent(tmp_path)
    assert len(CARVING) == 3
    for command in CARVING:
        short = () if "doctor" in command else ("--sequences", "8", "--length", "16")
        ran = zerolm(*shlex.split(command)[1:], *short)
        assert (ran.status, "Traceback" in ran.err) == (0, False), ran.err
        assert ran.out


def test_the_python_runs(zerolm: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("transformers")
    registry = importlib.import_module("zerolm.proxies.registry")
    run_in(tmp_path, monkeypatch)
    make_parent(tmp_path)
    assert zerolm("search", "llama", "--max-params", "15M", "--out", "demo").status == 0
    for _, text in [block for block in BLOCKS if block[0] == "python"]:
        names: dict[str, Any] = {}
        exec(compile(text, "README.md", "exec"), names)
        if "model" in names:
            promised = json.loads(Path("demo/result.json").read_text())["pick"]["costs"]["params"]
            assert sum(p.numel() for p in names["model"].parameters()) == promised
    SCORES._entries.pop("ffn_only")
    registry.PROXIES._entries.pop("gradient_energy")


def test_the_benchmark_file_is_readable(zerolm: Callable[..., Any], tmp_path: Path) -> None:
    text = next(text for language, text in BLOCKS if language == "json")
    entry = re.search(r"\{\"id\".*\}\}", text, flags=re.DOTALL)
    assert entry
    file = tmp_path / "mine.json"
    another = entry[0].replace('"id": "a"', '"id": "b"').replace('"ppl": 41.2', '"ppl": 40.8')
    file.write_text(text.replace(", ...", f", {another}"))
    assert zerolm("bench", "run", str(file)).status == 0


def test_every_space_is_explained() -> None:
    for name in space_names():
        assert f"`{name}`" in README
