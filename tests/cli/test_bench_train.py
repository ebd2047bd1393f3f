"""``zerolm bench train`` as a user types it: killed, started again, and by two at once."""

import json
import re
from pathlib import Path

import pytest
from label_training import ASKED, SPACE, flags, some_text
from refusals import Zerolm


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    some_text(tmp_path)
    return tmp_path


def test_labels_are_shown_and_written(zerolm: Zerolm, place: Path) -> None:
    asked = ("bench", "train", "llama", "--text", "text.txt", *flags())
    ran = zerolm(*asked, "--seeds", "2", "--repeated", "2", "--out", "mine.json")
    assert ran.status == 0, ran.err
    assert "5 architectures of llama, 160 tokens each" in ran.out
    assert "ceiling of tau-b" in ran.out
    assert "wrote mine.json: labels of 5 architectures" in ran.err
    truth = json.loads((place / "mine.json").read_text())
    assert len(truth["architectures"]) == 5
    again = zerolm(*asked, "--seeds", "2", "--repeated", "2", "--json")
    assert json.loads(again.out)["benchmark"]["architectures"] == truth["architectures"]
    zerolm(*asked, "--out", "mine.json").refused("--force")
    zerolm(*asked, "--out", "mine.CSV").refused("output 'mine.CSV': a file is written as JSON")
    assert zerolm(*asked, "--out", "mine.json", "--force").status == 0
    assert zerolm("calibrate", "--labels", "mine.json").status == 0
    assert "mine" in zerolm("bench", "run", "mine.json").out
    assert zerolm(*asked, "--out", "folder").status == 0
    assert {"labels.json", "report.html", "run.yaml"} <= {path.name for path in Path("folder").iterdir()}
    page = Path("folder/report.html").read_text()
    assert re.search(r">text</\w+>\s*<\w+[^>]*>[^<]*text\.txt<", page)
    assert re.search(r">compiled</\w+>\s*<\w+[^>]*>no<", page)
    ran = zerolm("bench", "train", "--config", "folder/run.yaml", "--out", "third.json")
    assert ran.status == 0, ran.err
    third = json.loads(Path("third.json").read_text())
    assert third["architectures"] == json.loads(Path("folder/labels.json").read_text())["architectures"]


def test_the_rule_of_depth_is_written_down(zerolm: Zerolm) -> None:
    asked = ("bench", "train", "llama", "--text", "text.txt", *flags(ASKED | {"count": 2}))
    for rule, words in (("none", "none"), ("linear", "branches x (depth / 4)^-1")):
        ran = zerolm(*asked, "--depth-rule", rule, "--out", f"{rule}.json")
        assert ran.status == 0, ran.err
        assert words in json.loads(Path(f"{rule}.json").read_text())["source"]["branches_and_rates_by_depth"]
    zerolm(*asked, "--depth-rule", "cube").refused()


def test_what_a_search_compared_is_trained(zerolm: Zerolm) -> None:
    """Its pick and what counting picks, by these names, on tokens by the parameters of the largest."""
    asked = flags({**SPACE, "max_params": "24k", "ffn": "16:160:8", "hidden": "16,24,32"})
    assert zerolm("search", "llama", *asked, "--out", "r").status == 0
    result = json.loads(Path("r/result.json").read_text())
    training = ("--text", "text.txt", *flags({"batch": 2, "length": 16}))
    ran = zerolm(
        "bench", "train", "--rows", "r", *training, "--tokens-per-param", "0.01", "--out", "mine.json"
    )
    assert ran.status == 0, ran.err
    truth = json.loads(Path("mine.json").read_text())
    picks = {
        one["name"]: one["choice"] for one in result["baselines"] if one["name"] in ("params", "body_params")
    }
    expected = {"pick": result["pick"], **{f"by {name}": one for name, one in picks.items()}}
    for entry in truth["architectures"]:
        for name in entry["id"].split(" = "):
            assert entry["architecture"] == expected.pop(name)["architecture"]
    assert not expected
    largest = max(one["costs"]["params"] for one in (result["pick"], *picks.values()))
    assert truth["source"]["tokens"] == max(1, round(0.01 * largest) // 32) * 32


SENSELESS: dict[str, str] = {
    "--rows mine.json --tokens 100 --tokens-per-param 1": "give one of them",
    "llama --tokens 2047": "2047 tokens are less than one batch of 8 x 256; 2048 are the least",
    "llama --tokens 9 --batch 2 --length 5": "9 tokens are less than one batch",
    "--rows mine.json --tokens-per-param 0.001": "2048 are the least",
    "llama --tokens-per-param 1": "goes by the largest of the rows",
    "--rows made": "'made' holds no result: it has no run.yaml",
    "--rows absent": "does not exist",
}


@pytest.mark.parametrize("more", SENSELESS)
def test_rows_and_tokens_that_make_no_sense(zerolm: Zerolm, more: str) -> None:
    Path("made").mkdir()
    one, other = (
        {"hidden": 16, "depth": depth, "head_size": 8, "heads": 2, "kv_heads": 2, "ffn": 32}
        for depth in (1, 2)
    )
    rows = [{"id": str(i), "architecture": choices, "results": {}} for i, choices in enumerate((one, other))]
    document = {"name": "mine", "space": "llama", "settings": {"vocab": 300}, "metric": None}
    Path("mine.json").write_text(json.dumps({**document, "higher_is_better": None, "architectures": rows}))
    zerolm("bench", "train", "--text", "text.txt", *more.split()).refused(SENSELESS[more])
