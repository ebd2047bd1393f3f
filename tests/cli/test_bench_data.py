"""``zerolm bench ls`` and the benchmarks that ``bench run`` finds: one line when anything is wrong."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
import yaml
from refusals import Zerolm

from zerolm.groundtruth.cache import shipped_names

ROWS = """\
space,architecture,ppl
gpt2,"{""n_layer"":1, ""d_model"":64, ""d_inner"":[256], ""n_head"":[2], ""d_embed"":128, ""div_val"":1}",9
gpt2,"{""n_layer"":1, ""d_model"":128, ""d_inner"":[256], ""n_head"":[2], ""d_embed"":128, ""div_val"":1}",8
"""


@pytest.fixture
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """There is no data but that of the package."""
    monkeypatch.delenv("ZEROLM_DATA", raising=False)


@pytest.mark.usefixtures("alone")
def test_what_comes_with_zerolm_runs_at_once(zerolm: Zerolm, own_cache: Path) -> None:
    listed = {row["name"]: row for row in json.loads(zerolm("bench", "ls", "--json").out)}
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
    names = [row["name"] for row in json.loads(zerolm("bench", "ls", "--json").out)]
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
    rows = {row["name"]: row for row in json.loads(zerolm("bench", "ls", "--data", both, "--json").out)}
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


def test_benchmarks_of_the_package_need_no_folder(alone: None, zerolm: Zerolm) -> None:
    ran = zerolm("bench", "run", "decoder_pairs", "--json")
    assert (ran.status, ran.err) == (0, "")
    assert {row["n"] for row in json.loads(ran.out)["rows"]} == {7}
    told = zerolm("bench", "run").err
    assert all(name in told for name in shipped_names())


def test_a_csv_is_a_benchmark(zerolm: Zerolm, tmp_path: Path) -> None:
    (tmp_path / "mine.csv").write_text(ROWS)
    for arguments in ([str(tmp_path / "mine.csv")], ["mine", "--data", str(tmp_path)]):
        ran = zerolm("bench", "run", *arguments, "--json")
        assert ran.status == 0
        assert {row["tau"] for row in json.loads(ran.out)["rows"] if row["score"] == "geo"} == {1.0}


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
