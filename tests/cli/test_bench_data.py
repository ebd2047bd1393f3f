"""``zerolm bench ls`` and ``zerolm bench download``: what they print, and one line when anything is wrong."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from upstream import Server, path_of, published

from zerolm.groundtruth.sources import SOURCES

SHIPPED = ("decoder_pairs", "llama_small")
FLEXIBERT = path_of("flexibert_glue")
ROWS = """\
space,architecture,ppl
gpt2,"{""n_layer"":1, ""d_model"":64, ""d_inner"":[256], ""n_head"":[2], ""d_embed"":128, ""div_val"":1}",9
gpt2,"{""n_layer"":1, ""d_model"":128, ""d_inner"":[256], ""n_head"":[2], ""d_embed"":128, ""div_val"":1}",8
"""


def test_from_download_to_run(
    server: Server, zerolm: Callable[..., Any], data_folder: Path, tmp_path: Path
) -> None:
    server.answers = published(data_folder)
    ran = zerolm("bench", "download", "flexibert_glue", "gpt2_wt103", "--json")
    assert (ran.status, ran.err) == (0, "")
    rows = json.loads(ran.out)
    assert [set(row) >= {"name", "path", "sha256", "source", "licence"} for row in rows] == [True, True]
    assert {row["name"]: row["licence"] for row in rows} == {
        "flexibert_glue": "CC-BY-4.0",
        "gpt2_wt103": "MIT",
    }
    again = zerolm("bench", "download", "flexibert_glue")
    assert again.err == "zerolm: flexibert_glue is already there\n"
    assert rows[0]["path"] in again.out
    listed = {row["name"]: row for row in json.loads(zerolm("bench", "ls", "--json").out)}
    assert set(listed) == {*SOURCES, *SHIPPED}
    assert {name for name, row in listed.items() if row["path"]} == {
        *SHIPPED, "flexibert_glue", "gpt2_wt103"
    }  # fmt: skip
    assert listed["gpt2_wt103"]["metrics"] == ["test_ppl", "test_word_ppl", "valid_ppl"]
    assert (listed["pit_vit"]["space"], listed["pit_vit"]["count"]) == ("pit", 100)
    table = zerolm("bench", "ls").out
    assert "zerolm bench download pit_vit" in table
    assert rows[0]["path"] in table
    ran = zerolm("bench", "run", "gpt2_wt103", "--json")
    assert {row["n"] for row in json.loads(ran.out)["rows"]} == {200}


def test_a_folder_named_explicitly_is_listed_alone(
    server: Server, zerolm: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
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
    names = [row["name"] for row in json.loads(zerolm("bench", "ls", "--json").out)]
    assert names == ["broken", *SHIPPED, "mine", *SOURCES]


def test_data_folders_are_a_list_as_in_path(
    server: Server, zerolm: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    for folder, names in ((first, ("mine", "both")), (second, ("both", "yours"))):
        folder.mkdir()
        for name in names:
            (folder / f"{name}.csv").write_text(ROWS)
    both = f"{first}{os.pathsep}{second}{os.pathsep}"
    rows = {row["name"]: row for row in json.loads(zerolm("bench", "ls", "--data", both, "--json").out)}
    assert {name: Path(row["path"]).parent for name, row in rows.items()} == {
        "mine": first, "both": first, "yours": second
    }  # fmt: skip
    monkeypatch.setenv("ZEROLM_DATA", both)
    assert zerolm("bench", "run", "yours", "mine", "--json").status == 0
    ran = zerolm("bench", "run", "gpt2_lm1b")
    assert (ran.status, ran.err.count("\n")) == (2, 1)
    assert f"'gpt2_lm1b' is not in '{first}' or '{second}'; there are both, mine, yours;" in ran.err
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


def test_benchmarks_of_the_package_need_no_folder(server: Server, zerolm: Callable[..., Any]) -> None:
    ran = zerolm("bench", "run", "decoder_pairs", "--json")
    assert (ran.status, ran.err) == (0, "")
    assert {row["n"] for row in json.loads(ran.out)["rows"]} == {7}
    told = zerolm("bench", "run").err
    assert all(name in told for name in SHIPPED)


def test_who_downloads_beside_zerolm_data_is_told(
    server: Server, zerolm: Callable[..., Any], data_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.answers = published(data_folder)
    monkeypatch.setenv("ZEROLM_DATA", str(data_folder))
    ran = zerolm("bench", "download", "flexibert_glue")
    assert ran.status == 0
    assert "ZEROLM_DATA is set" in ran.err


def test_a_csv_is_a_benchmark(zerolm: Callable[..., Any], tmp_path: Path) -> None:
    (tmp_path / "mine.csv").write_text(ROWS)
    for arguments in ([str(tmp_path / "mine.csv")], ["mine", "--data", str(tmp_path)]):
        ran = zerolm("bench", "run", *arguments, "--json")
        assert ran.status == 0
        assert {row["tau"] for row in json.loads(ran.out)["rows"] if row["score"] == "geo"} == {1.0}


WRONG: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "unknown benchmark": (("download", "gpt3"), ("'gpt3'", "gpt2_wt103")),
    "not found": (("download", "gpt2_wt103"), ("404", "/microsoft/archai/tar.gz/")),
    "wrong checksum": (("download", "flexibert_glue"), ("wrong checksum", "BERT_benchmark.json")),
    "wrong checksum, by force": (("download", "flexibert_glue", "--force"), ("wrong checksum",)),
    "one of several": (("download", "flexibert_glue", "gpt2_wt103"), ("wrong checksum",)),
    "not downloaded": (("run", "gpt2_wt103"), ("there are none", "zerolm bench download gpt2_wt103")),
    "nothing of that name": (("run", "mine"), ("there are none", "zerolm bench download")),
    "no folder": (("ls", "--data", "nowhere"), ("'nowhere'",)),
    "no file": (("run", "nowhere.csv"), ("'nowhere.csv'",)),
}


@pytest.mark.parametrize("name", WRONG)
def test_one_line_and_status_2(
    name: str, server: Server, zerolm: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.answers[FLEXIBERT] = b"[]"
    arguments, words = WRONG[name]
    ran = zerolm("bench", *arguments)
    assert (ran.status, ran.out, ran.err.count("\n")) == (2, "", 1)
    for word in words:
        assert word in ran.err
    assert not (tmp_path / "cache").exists()


def test_no_network(server: Server, zerolm: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ZEROLM_MIRROR", "http://127.0.0.1:1")
    ran = zerolm("bench", "download", "flexibert_glue")
    assert (ran.status, ran.out, ran.err.count("\n")) == (2, "", 1)
    assert "Connection refused" in ran.err


def test_without_torch(
    server: Server, zerolm: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    ran = zerolm("bench", "download")
    assert (ran.status, ran.out, ran.err.count("\n")) == (2, "", 1)
    assert "zerolm[torch]" in ran.err
    assert server.asked == []
    assert not (tmp_path / "cache").exists()


def test_a_csv_that_cannot_be(zerolm: Callable[..., Any], tmp_path: Path) -> None:
    for old, new, words in [
        (",8\n", ",low\n", "line 3, column 'ppl'"),
        ("128", "130.5", "architecture line 2"),
    ]:
        (tmp_path / "mine.csv").write_text(ROWS.replace(old, new))
        ran = zerolm("bench", "run", str(tmp_path / "mine.csv"))
        assert (ran.status, ran.out, ran.err.count("\n")) == (2, "", 1)
        assert words in ran.err
