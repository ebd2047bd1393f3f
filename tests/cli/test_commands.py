"""The commands as a user types them."""

import json
import re
import warnings
from pathlib import Path

import pytest
from refusals import Zerolm

from zerolm.costs import COSTS
from zerolm.spaces import make_space
from zerolm.spaces.document import from_document

SMALL = ("search", "llama", "--max-params", "30M", "--max-kv-bytes", "8MB", "--top", "3")


def test_search_prints_json_and_writes_a_folder_that_reads_back(zerolm: Zerolm, tmp_path: Path) -> None:
    out = tmp_path / "out"
    found = zerolm(*SMALL, "--out", str(out), "--json").document
    assert (found["question"]["space"]["name"], found["question"]["score"]) == ("llama", "geo")
    assert found["certificate"].keys() >= {"method", "optimal", "gap", "seconds"}
    assert found["certificate"]["optimal"] is True
    assert found["certificate"]["gap"] == 0.0
    assert len(found["best"]) == 3
    for choice in [found["pick"], *found["best"], *found["front"]["points"]]:
        assert choice.keys() >= {"architecture", "score", "costs"}
        assert set(choice["costs"]) == set(COSTS)
        assert choice["costs"]["params"] <= 30_000_000
        assert choice["costs"]["kv_bytes"] <= 8_000_000
    ties, near_ties = (found["plateau"][name]["value"] for name in ("ties", "near_ties"))
    assert near_ties >= ties >= 1
    assert {baseline["name"] for baseline in found["baselines"]} >= {"params", "body_params", "depth", "macs"}
    assert isinstance(found["bounds"]["binding"], list)
    assert found["bounds"]["tested"] is True
    assert sorted(p.name for p in out.iterdir()) == [
        "01", "02", "03", "pick", "report.html", "result.json", "run.yaml"
    ]  # fmt: skip
    assert json.loads((out / "result.json").read_text()) == found
    pick = found["pick"]
    document = json.loads((out / "pick" / "architecture.json").read_text())
    assert from_document(document).choices == pick["architecture"]
    for path in (out / "pick", out / "pick" / "config.json"):
        scored = zerolm("score", str(path), "--json").document
        assert scored["costs"] == pick["costs"]
        values = {row["score"]: row["value"] for row in scored["scores"] if row["alpha"] is None}
        assert values["geo"] == pytest.approx(pick["score"], rel=1e-12)


def test_a_configuration_file_equals_the_flags(zerolm: Zerolm, tmp_path: Path) -> None:
    flags = zerolm("search", "llama", "--max-params", "60M", "--hidden", "256:512", "--score", "zerolm",
                   "--alpha", "1.1", "--untied", "--per-layer", "--depth", "4:5", "--head-size", "64",
                   "--heads-per-kv", "4", "--hidden-per-depth", "40:128", "--top", "2", "--bits", "4",
                   "--vocab", "8000", "--positions", "512",
                   "--json")  # fmt: skip
    file = tmp_path / "run.yaml"
    file.write_text(
        "space: llama\nmax-params: 60M\nhidden: '256:512'\nscore: zerolm\nalpha: 1.1\ntied: false\n"
        "per_layer: true\ndepth: 4:5\nhead_size: 64\nheads_per_kv: [4]\ntop: 9\nbits: 4\n"
        "vocab: 8k\npositions: 512\n"
        "hidden_per_depth: [40, 128]\njson: true\n"
    )
    config = zerolm("search", "--config", str(file), "--top", "2")
    assert flags.status == config.status == 0
    one, other = json.loads(flags.out), json.loads(config.out)
    one["certificate"].pop("seconds")
    other["certificate"].pop("seconds")
    assert one == other
    assert one["question"]["space"]["settings"]["tied"] is False


def test_spaces_lists_exact_sizes(zerolm: Zerolm) -> None:
    rows = {row["name"]: row for row in zerolm("spaces", "--json").document}
    assert (rows["flexibert"]["size"], rows["gpt2"]["size"]) == (10_621_440, make_space("gpt2").size())
    text = zerolm("spaces").out
    for row in rows.values():
        assert f"{row['size']:,}" in text


def test_search_for_people(zerolm: Zerolm) -> None:
    out = zerolm("search", "gpt2", "--max-params", "40M", "--top", "2").out
    for words in ("pick:", "Proven: of the 3.348e37", "at least", "Bounds that cost score"):
        assert words in out
    assert re.search(r"^max_params +budget +44M +\+", out, re.MULTILINE)
    assert re.search(r"^(.*, )?depth\b.* % +", out.split("What the baselines choose")[1], re.MULTILINE)
    assert "Nothing is proven" in zerolm("search", "bert", "--depth", "2", "--method", "random").out


def test_a_warning_of_the_package_is_one_line(zerolm: Zerolm, monkeypatch: pytest.MonkeyPatch) -> None:
    class DamagedWarning(UserWarning):
        __module__ = "zerolm.somewhere"

    def warn(*_: object) -> None:
        warnings.warn("a row\nis damaged", DamagedWarning, stacklevel=1)
        raise ValueError("nothing else")

    monkeypatch.setattr("zerolm.spaces.make_space", warn)
    assert zerolm("spaces").err.splitlines() == ["zerolm: a row is damaged", "zerolm: nothing else"]


def test_an_interruption_says_so(zerolm: Zerolm, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("zerolm.spaces.make_space", interrupt)
    ran = zerolm("spaces")
    assert (ran.status, ran.err.splitlines()[-1]) == (130, "zerolm: interrupted")


def test_a_space_takes_names_and_what_has_no_stock_class_is_told(zerolm: Zerolm, tmp_path: Path) -> None:
    """Names of a space come as A,B,C; a plain llama has a configuration, a block with shares has none."""
    asked = ("search", "blocks", "--depth", "4", "--hidden", "256", "--ffn", "768", "--ffn-stack", "1")
    for shares, files in (("qk,qkv", ["architecture.json"]), ("none", ["architecture.json", "config.json"])):
        ran = zerolm(*asked, "--shares", shares, "--out", str(tmp_path / shares))
        assert ran.status == 0
        assert sorted(file.name for file in (tmp_path / shares / "pick").iterdir()) == files
        assert ("no stock class shares or stacks; zerolm.lab.networks.stock_llama" in ran.err) == (
            shares != "none"
        )
        document = json.loads((tmp_path / shares / "pick" / "architecture.json").read_text())
        assert document["settings"]["shares"] == shares.split(",")
        assert from_document(document).depth == 4
