"""An installed package with scores, a space, its network and a proxy, through the commands."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "plugin_package"
ROOT = Path(__file__).parents[2]
WARNING = "zerolm: plug-in 'broken' of zerolm.scores is left out: this plug-in is broken"
Zerolm = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Zerolm:
    folder = tmp_path_factory.mktemp("plugin")
    shutil.copytree(SOURCE, folder / "source")
    options = ("--quiet", "--no-index", "--no-deps", "--no-build-isolation")
    pip = [sys.executable, "-m", "pip", "install", *options]
    site = folder / "site"
    subprocess.run([*pip, "--target", str(site), str(folder / "source")], check=True, capture_output=True)
    paths = os.pathsep.join([str(ROOT), str(site)])
    env = {**os.environ, "PYTHONPATH": paths, "ZEROLM_CACHE": str(folder / "cache")}

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "zerolm", *arguments]
        return subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, timeout=300)

    run.folder = folder  # type: ignore[attr-defined]
    return run


def folder_of(installed: Zerolm) -> Path:
    return installed.folder  # type: ignore[attr-defined, no-any-return]


def test_its_space_and_score_are_searched_with_their_settings(installed: Zerolm) -> None:
    flags = ("--rings", "2:3", "--ring-width", "16", "--metal", "iron", "--doubled", "--score", "mine")
    flags += ("--max-params", "1M")
    ran = installed("search", "rings", *flags, "--my-option", "3", "--top", "2", "--json")
    assert (ran.returncode, ran.stderr.strip()) == (0, WARNING)
    result = json.loads(ran.stdout)
    assert result["question"]["space"]["settings"] == {
        "rings": [2, 3], "ring_width": [16], "thickness": [0.5, 1, 2], "metal": "iron", "doubled": True
    }  # fmt: skip
    assert result["question"]["options"] == {"my_option": 3}
    assert result["best"][0]["architecture"] == {"rings": 3, "width": 16, "ffn": [32, 32, 32]}
    assert result["best"][0]["score"] == 3 * (2 * 16 * 32) ** 3
    file = folder_of(installed) / "run.yaml"
    file.write_text(
        "space: rings\nrings: 2:3\nring-width: 16\nmetal: iron\ndoubled: true\n"
        "max_params: 1M\nscore: mine\nmy_option: 3\ntop: 2\njson: true\n"
    )
    again = json.loads(installed("search", "--config", str(file)).stdout)
    for one in (result, again):
        del one["certificate"]["seconds"]
    assert again == result


def test_for_people_and_in_help(installed: Zerolm) -> None:
    ran = installed("search", "rings", "--score", "narrow", "--limit-width", "20")
    assert ran.returncode == 0
    assert "pick: 1 rings of 32" in ran.stdout
    helped = installed("search", "rings", "--score", "mine", "--help").stdout
    for words in ("--ring-width RANGE", "--metal gold|iron", "--my-option"):
        assert words in helped
    listed = installed("spaces", "rings")
    assert listed.returncode == 0
    assert listed.stderr == ""  # scores are not loaded for it
    for words in ("--thickness", "0.5,1,2", "1:3", "FFN widths over that of the ring"):
        assert words in listed.stdout
    rows = json.loads(installed("spaces", "rings", "--json").stdout)["settings"]
    assert [row["name"] for row in rows] == ["rings", "ring_width", "thickness", "metal", "doubled"]
    assert rows[3] | {"help": ""} == {
        "name": "metal", "kind": "text", "default": "gold", "help": "", "choices": ["gold", "iron"]
    }  # fmt: skip


MISTAKES: dict[str, str] = {
    "rings --metal gld": "metal 'gld' is not known; did you mean 'gold'? there are gold, iron",
    "rings --score mine --my-option 9": "--my-option must be an integer from 1 to 4, not",
    "rings --score narrow": "score 'narrow' needs --limit-width: width beyond which nothing",
    "llama --ring-width 16": "space 'llama' has no setting 'ring_width'",
}


@pytest.mark.parametrize("arguments", MISTAKES)
def test_mistakes_are_one_line(arguments: str, installed: Zerolm) -> None:
    ran = installed("search", *arguments.split())
    assert (ran.returncode, ran.stdout) == (2, "")
    first, message = ran.stderr.strip().split("\n")
    assert (first, MISTAKES[arguments] in message) == (WARNING, True), message


def test_score_and_bench_go_on_without_the_score_that_needs_an_option(installed: Zerolm) -> None:
    choices = [{"rings": 2, "width": 16, "ffn": [8 * i, 16]} for i in range(1, 10)]
    file = folder_of(installed) / "one.json"
    file.write_text(json.dumps({"space": "rings", "architecture": choices[0]}))
    left_out = (
        "zerolm: narrow is left out: score 'narrow' needs --limit-width: width beyond which nothing counts"
    )
    ran = installed("score", str(file), "--my-option", "2", "--json")
    assert (ran.returncode, ran.stderr.strip().split("\n")) == (0, [WARNING, left_out])
    rows = {row["score"]: row for row in json.loads(ran.stdout)["scores"]}
    assert rows["mine"]["value"] == (2 * 16 * 8) ** 2 + (2 * 16 * 16) ** 2
    assert rows["mine"]["options"] == {"my_option": 2}
    assert "narrow" not in rows
    given = installed("score", str(file), "--limit-width", "9", "--limit-width", "12", "--json")
    values = [row["value"] for row in json.loads(given.stdout)["scores"] if row["score"] == "narrow"]
    assert (given.stderr.strip(), values) == (WARNING, [9, 12])
    labels = folder_of(installed) / "labels.csv"
    quoted = [json.dumps(choice).replace('"', '""') for choice in choices]
    labels.write_text(
        "space,architecture,ppl\n" + "".join(f'rings,"{q}",{9 - i}\n' for i, q in enumerate(quoted))
    )
    ran = installed("bench", "run", str(labels), "--json")
    assert (ran.returncode, ran.stderr.strip().split("\n")) == (0, [WARNING, left_out])
    scores = {row["score"] for row in json.loads(ran.stdout)["rows"]}
    assert {"mine", "geo"} <= scores
    assert not any("narrow" in score for score in scores)
    ran = installed("bench", "run", str(labels), "--my-option", "2", "--limit-width", "9", "--json")
    scores = {row["score"] for row in json.loads(ran.stdout)["rows"]}
    assert {"mine my_option 2", "narrow limit_width 9.0"} <= scores


def test_its_proxy_runs_on_its_network(installed: Zerolm) -> None:
    flags = ("--count", "3", "--batch", "4", "--length", "8", "--micro-batches", "2", "--json")
    ran = installed("lab", "proxies", "rings", "--proxies", "slim_gradient,grad_norm", *flags)
    assert ran.returncode == 0, ran.stderr
    assert "slim_gradient" in ran.stdout


def test_its_family_is_read(installed: Zerolm) -> None:
    file = folder_of(installed) / "config.json"
    sizes = {"num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 48, "vocab_size": 100}
    file.write_text(json.dumps({"model_type": "slimlm", "rings": 3, "width": 32, **sizes}))
    ran = installed("score", str(file), "--score", "geo", "--json")
    assert ran.returncode == 0, ran.stderr
    layer = 32 * (32 + 2 * 16) + 32 * 32 + 3 * 32 * 48 + 2 * 32
    assert json.loads(ran.stdout)["costs"]["params"] == 2 * 100 * 32 + 3 * layer + 32
