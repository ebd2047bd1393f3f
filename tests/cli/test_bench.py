"""``zerolm bench run`` and ``ls`` on files that say too little, say it oddly, or cannot be read at all."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from refusals import Zerolm

CHOICES = {"n_layer": 2, "d_inner": 256, "n_head": 2, "d_embed": 128, "div_val": 1}


def table(heading: str, rows: list[str]) -> str:
    """Networks of growing width with their results, as CSV."""
    lines = [
        f'gpt2,"{json.dumps({**CHOICES, "d_model": 64 * i}).replace(chr(34), chr(34) * 2)}",{row}'
        for i, row in enumerate(rows, 1)
    ]
    return "\n".join([f"space,architecture,{heading}", *lines, ""])


def document(name: str = "mine", results: tuple[float, ...] = (49.0, 48.0, 47.0), **more: Any) -> str:
    entries = [
        {"id": str(i), "architecture": {**CHOICES, "d_model": 64 * i}, "results": {"ppl": value}}
        for i, value in enumerate(results, 1)
    ]
    head = {"name": name, "space": "gpt2", "metric": "ppl", "higher_is_better": False}
    return json.dumps({**head, "architectures": entries, **more})


@pytest.fixture
def csv(tmp_path: Path) -> Path:
    return tmp_path / "mine.csv"


COMMANDS = (("bench", "run"), ("lab", "ablate"))


@pytest.mark.parametrize("command", COMMANDS)
def test_a_direction_that_nobody_knows(command: tuple[str, str], csv: Path, zerolm: Zerolm) -> None:
    csv.write_text(table("quality", ["3", "2", "1"]))
    zerolm(*command, str(csv)).refused("'quality'", "quality:higher or quality:lower", "higher_is_better")


@pytest.mark.parametrize(
    ("heading", "tau"), [("val_bpb", 1.0), ("quality:lower", 1.0), ("quality:higher", -1.0)]
)
def test_a_direction_that_is_known_or_told(heading: str, tau: float, csv: Path, zerolm: Zerolm) -> None:
    csv.write_text(table(heading, ["1.3", "1.2", "1.1"]))
    rows = json.loads(zerolm("bench", "run", str(csv), "--json").out)["rows"]
    assert {row["tau"] for row in rows if row["score"] == "geo"} == {tau}


def test_one_of_several_results_is_named(csv: Path, zerolm: Zerolm) -> None:
    csv.write_text(table("loss,acc", ["3,.1", "2,.2", "1,.3"]))
    zerolm("bench", "run", str(csv)).refused("2 results", "--metric", "loss, acc")
    assert zerolm("bench", "run", str(csv), "--metric", "acc").status == 0
    (row,) = json.loads(zerolm("bench", "ls", "--data", str(csv.parent), "--json").out)
    assert (row["metrics"], row["problem"]) == (["loss", "acc"], None)


def test_a_json_file_names_other_directions(tmp_path: Path, zerolm: Zerolm) -> None:
    file, content = tmp_path / "mine.json", json.loads(document())
    for i, entry in enumerate(content["architectures"]):
        entry["results"] |= {"quality": float(i), "acc": float(i)}
    file.write_text(json.dumps(content))
    zerolm("bench", "run", str(file), "--metric", "quality").refused("'quality'", "directions")
    for metric in ("acc", "quality"):  # the accuracy of a perplexity's file is no perplexity
        file.write_text(json.dumps({**content, "directions": {"quality": "higher"}}))
        rows = json.loads(zerolm("bench", "run", str(file), "--metric", metric, "--json").out)["rows"]
        assert {row["tau"] for row in rows if row["score"] == "geo"} == {1.0}


@pytest.mark.parametrize("command", COMMANDS)
def test_all_goes_on_without_what_cannot_be_read(
    command: tuple[str, str], tmp_path: Path, zerolm: Zerolm
) -> None:
    data = tmp_path / "data"
    data.mkdir()
    (data / "good.json").write_text(document("good"))
    (data / "broken.json").write_text("{")
    (data / "vague.csv").write_text(table("quality", ["3", "2", "1"]))
    (data / "flat.json").write_text(document("flat", (7.0, 7.0, 7.0)))
    ran = zerolm(*command, "--all", "--data", str(data), "--json")
    assert ran.status == 0
    assert {section["benchmark"] for section in json.loads(ran.out)["sections"]} == {"good"}
    lines = ran.err.splitlines()
    assert len(lines) == 3
    for line, word in zip(lines, ("broken.json", "flat", "vague"), strict=True):
        assert line.startswith("zerolm: left out: ")
        assert word in line
    zerolm(*command, "good", "broken", "--data", str(data)).refused("broken.json")
    (data / "good.json").unlink()
    zerolm(*command, "--all", "--data", str(data)).refused("none of 3 benchmarks", "broken.json")


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("value", [1e308, -1e308, 1e101])
def test_results_beyond_arithmetic(
    value: float, command: tuple[str, str], tmp_path: Path, zerolm: Zerolm
) -> None:
    file = tmp_path / "mine.json"
    file.write_text(document(results=(1.0, 2.0, value)))
    zerolm(*command, str(file)).refused("ppl of 3", "choose a unit")


@pytest.mark.filterwarnings("error")
def test_large_results_are_compared(tmp_path: Path, zerolm: Zerolm) -> None:
    file = tmp_path / "mine.json"
    file.write_text(document(results=tuple((-1) ** i * (1e100 - 1e99 * i) for i in range(9))))
    assert zerolm("bench", "run", str(file), "--out", str(tmp_path / "out")).status == 0


def test_a_mark_at_the_beginning_of_a_file(tmp_path: Path, zerolm: Zerolm) -> None:
    """As some editors write it: JSON, CSV and YAML alike."""
    for name, text in (("a.json", document()), ("b.csv", table("ppl", ["3", "2", "1"]))):
        (tmp_path / name).write_text(text, encoding="utf-8-sig")
        assert zerolm("bench", "run", str(tmp_path / name)).status == 0
    (tmp_path / "c.yaml").write_text("space: llama\ndepth: 2\nhidden: 256\n", encoding="utf-8-sig")
    assert zerolm("search", "--config", str(tmp_path / "c.yaml"), "--json").status == 0
