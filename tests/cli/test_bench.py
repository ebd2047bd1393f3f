"""``zerolm bench run`` and ``ls``: what they find, and files that say too little, or nothing."""

import json
import os
from pathlib import Path
from typing import Any

import pytest
import yaml
from refusals import Zerolm

from zerolm.groundtruth.cache import shipped_names

CHOICES = {"n_layer": 2, "d_inner": 256, "n_head": 2, "d_embed": 128, "div_val": 1}


def table(heading: str, rows: list[str]) -> str:
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


ROWS = table("ppl", ["9", "8"])


@pytest.fixture
def csv(tmp_path: Path) -> Path:
    return tmp_path / "mine.csv"


COMMANDS = (("bench", "run"), ("lab", "ablate"))


@pytest.mark.parametrize("command", COMMANDS)
def test_a_direction_that_nobody_knows(command: tuple[str, str], csv: Path, zerolm: Zerolm) -> None:
    csv.write_text(table("quality", ["3", "2", "1"]))
    zerolm(*command, str(csv)).refused("'quality'", "quality:higher or quality:lower", "higher_is_better")


@pytest.mark.parametrize(("heading", "is_reversed"), [("quality:higher", True), ("quality:lower", False)])
def test_a_direction_by_which_larger_networks_are_worse_is_doubted(
    heading: str, is_reversed: bool, csv: Path, zerolm: Zerolm
) -> None:
    csv.write_text(table(heading, [str(3 - i / 10) for i in range(12)]))
    words = "warning: mine: larger networks have the worse quality; if lower is better, name the column"
    assert (words in zerolm("bench", "run", str(csv)).err) == is_reversed


@pytest.mark.parametrize(
    ("heading", "tau"), [("val_bpb", 1.0), ("quality:lower", 1.0), ("quality:higher", -1.0)]
)
def test_a_direction_that_is_known_or_told(heading: str, tau: float, csv: Path, zerolm: Zerolm) -> None:
    csv.write_text(table(heading, ["1.3", "1.2", "1.1"]))
    rows = zerolm("bench", "run", str(csv), "--json").document["rows"]
    assert {row["tau"] for row in rows if row["score"] == "geo"} == {tau}


def test_one_of_several_results_is_named(csv: Path, zerolm: Zerolm) -> None:
    csv.write_text(table("loss,acc", ["3,.1", "2,.2", "1,.3"]))
    zerolm("bench", "run", str(csv)).refused("2 results", "--metric", "loss, acc")
    assert zerolm("bench", "run", str(csv), "--metric", "acc").status == 0
    (row,) = zerolm("bench", "ls", "--data", str(csv.parent), "--json").document
    assert (row["metrics"], row["problem"]) == (["loss", "acc"], None)


def test_a_json_file_names_other_directions(tmp_path: Path, zerolm: Zerolm) -> None:
    file, content = tmp_path / "mine.json", json.loads(document())
    for i, entry in enumerate(content["architectures"]):
        entry["results"] |= {"quality": float(i), "acc": float(i)}
    file.write_text(json.dumps(content))
    zerolm("bench", "run", str(file), "--metric", "quality").refused("'quality'", "directions")
    for metric in ("acc", "quality"):  # the accuracy of a perplexity's file is no perplexity
        file.write_text(json.dumps({**content, "directions": {"quality": "higher"}}))
        rows = zerolm("bench", "run", str(file), "--metric", metric, "--json").document["rows"]
        assert {row["tau"] for row in rows if row["score"] == "geo"} == {1.0}


@pytest.mark.parametrize("command", COMMANDS)
def test_all_goes_on_without_the_unreadable(command: tuple[str, str], tmp_path: Path, zerolm: Zerolm) -> None:
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
def test_results_too_large(value: float, command: tuple[str, str], tmp_path: Path, zerolm: Zerolm) -> None:
    file = tmp_path / "mine.json"
    file.write_text(document(results=(1.0, 2.0, value)))
    zerolm(*command, str(file)).refused("ppl of 3", "choose a unit")


def test_a_mark_at_the_beginning_of_a_file(tmp_path: Path, zerolm: Zerolm) -> None:
    """As some editors write it: JSON, CSV and YAML alike."""
    for name, text in (("a.json", document()), ("b.csv", table("ppl", ["3", "2", "1"]))):
        (tmp_path / name).write_text(text, encoding="utf-8-sig")
        assert zerolm("bench", "run", str(tmp_path / name)).status == 0
    (tmp_path / "c.yaml").write_text("space: llama\ndepth: 2\nhidden: 256\n", encoding="utf-8-sig")
    assert zerolm("search", "--config", str(tmp_path / "c.yaml"), "--json").status == 0


@pytest.fixture
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """There is no data but that of the package."""
    monkeypatch.delenv("ZEROLM_DATA", raising=False)


@pytest.mark.usefixtures("alone")
def test_what_comes_with_zerolm_runs_at_once(zerolm: Zerolm, own_cache: Path) -> None:
    listed = {row["name"]: row for row in zerolm("bench", "ls", "--json").document}
    assert list(listed) == shipped_names()
    assert all(row["problem"] is None and row["licence"] and row["source"] for row in listed.values())
    assert listed["gpt2_wt103"]["metrics"] == ["test_ppl", "test_word_ppl", "valid_ppl"]
    assert (listed["pit_vit"]["space"], listed["pit_vit"]["count"]) == ("pit", 100)
    assert "Serianni & Kalita" in zerolm("bench", "ls").out
    ran = zerolm("bench", "run", "gpt2_wt103", "--json")
    assert {row["n"] for row in json.loads(ran.out)["rows"]} == {200}
    cache = own_cache / "benchmarks"
    cache.mkdir(parents=True)
    (cache / "gpt2_wt103.csv").write_text(ROWS)
    ran = zerolm("bench", "run", "gpt2_wt103", "--json")
    assert {row["n"] for row in json.loads(ran.out)["rows"]} == {2}
    assert str(cache) in zerolm("bench", "ls").out


def test_a_folder_named_explicitly_is_listed_alone(
    alone: None, zerolm: Zerolm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "mine.csv").write_text(ROWS)
    (tmp_path / "broken.json").write_text("{")
    (tmp_path / "folder.json").mkdir()
    ran = zerolm("bench", "ls", "--data", str(tmp_path), "--json")
    rows = {row["name"]: row for row in json.loads(ran.out)}
    assert set(rows) == {"mine", "broken"}
    assert (rows["mine"]["count"], rows["mine"]["metrics"], rows["mine"]["problem"]) == (2, ["ppl"], None)
    assert "cannot be read" in rows["broken"]["problem"]
    assert "cannot be read" in zerolm("bench", "ls", "--data", str(tmp_path)).out
    monkeypatch.setenv("ZEROLM_DATA", str(tmp_path))
    names = [row["name"] for row in zerolm("bench", "ls", "--json").document]
    assert names == sorted(["broken", "mine", *shipped_names()])


def test_data_folders_are_a_list_as_in_path(
    alone: None, zerolm: Zerolm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    for folder, names in ((first, ("mine", "both")), (second, ("both", "yours"))):
        folder.mkdir()
        for name in names:
            (folder / f"{name}.csv").write_text(ROWS)
    both = f"{first}{os.pathsep}{second}{os.pathsep}"
    rows = {row["name"]: row for row in zerolm("bench", "ls", "--data", both, "--json").document}
    assert {name: Path(row["path"]).parent for name, row in rows.items()} == {
        "mine": first, "both": first, "yours": second
    }  # fmt: skip
    monkeypatch.setenv("ZEROLM_DATA", both)
    assert zerolm("bench", "run", "yours", "mine", "--json").status == 0
    told = f"'gpt3_lm1b' is not in '{first}' or '{second}'; did you mean 'gpt2_lm1b'?"
    zerolm("bench", "run", "gpt3_lm1b").refused(told)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ZEROLM_DATA", f"first{os.pathsep}second")
    assert zerolm("bench", "run", "yours", "--out", "out").status == 0
    recorded = yaml.safe_load((tmp_path / "out" / "run.yaml").read_text())["data"]
    assert recorded == f"{first}{os.pathsep}{second}"
    monkeypatch.delenv("ZEROLM_DATA")
    monkeypatch.chdir("/")
    assert zerolm("bench", "run", "--config", str(tmp_path / "out" / "run.yaml"), "--json").status == 0
    monkeypatch.setenv("ZEROLM_DATA", f"{first}{os.pathsep}nowhere")
    assert "'nowhere' is not a folder" in zerolm("bench", "ls").err


WRONG: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "nothing of that name": (("run", "mine"), ("'mine' is not in", "there are autoformer_vit,")),
    "no folder": (("ls", "--data", "nowhere"), ("'nowhere'",)),
    "no file": (("run", "nowhere.csv"), ("'nowhere.csv'",)),
}


@pytest.mark.parametrize("name", WRONG)
def test_one_line_and_status_2(name: str, alone: None, zerolm: Zerolm, own_cache: Path) -> None:
    arguments, words = WRONG[name]
    zerolm("bench", *arguments).refused(*words)
    assert not own_cache.exists()
