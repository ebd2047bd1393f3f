"""Wrong input of the commands that run networks: one line, exit status 2, and the store as it was."""

import csv
import json
import math
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file, save_file
from small_benchmarks import FEW, llamas
from tiny import saved, word_tokenizer

from zerolm.io.kept_rows import KeptRows
from zerolm.lab.zero_cost import candidates as needed
from zerolm.lab.zero_cost import proxy
from zerolm.lab.zero_cost.registry import PROXIES
from zerolm.verbs.shared import needing_torch

Zerolm = Callable[..., Any]


@pytest.fixture(autouse=True)
def files(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder with a benchmark, a text, and a store that holds something."""
    monkeypatch.delenv("ZEROLM_DATA", raising=False)
    llamas(Path("mine.csv"), 3)
    Path("short.txt").write_text("a few words")
    Path("other.db").write_text("no database at all")


def rows() -> dict[str, Any]:
    return KeptRows(Path("s")).results


def refused(zerolm: Zerolm, *arguments: str, words: str) -> None:
    """That a command fails in one line, with these words, and leaves the store as it was."""
    before = rows()
    zerolm(*arguments).refused(words)
    assert rows() == before


BENCHMARK = ("lab", "proxies", "mine.csv", *FEW, "--store", "s")
SPACE = ("lab", "proxies", "flexibert", *FEW, "--store", "s", "--count", "1")
BENCH = ("lab", "bench", "mine.csv", "--out", "out")


@pytest.mark.parametrize(
    ("command", "arguments", "words"),
    [
        (BENCHMARK, "--proxies snpi", "proxy 'snpi' is not known; did you mean 'snip'?"),
        (BENCHMARK, "--proxies ,", "no proxy is named; there are"),
        (BENCHMARK, "--batch 16M", "too large"),
        (BENCHMARK, "--micro-batches 3", "3 equal micro-batches of 16 are not possible; 2 are"),
        (BENCHMARK, "--micro-batches 99", "99 equal micro-batches of 16 are not possible; 16 are"),
        (BENCHMARK, "--mode insane", "mode 'insane' is not known; did you mean 'sane'? there are sane"),
        (BENCHMARK, "--jobs 2 --backend ray", "jobs 2 are for loky"),
        (BENCHMARK, "--view trained", "view 'trained' is not one of mine.csv's; there are none"),
        (BENCHMARK, "--count 3", "count is of a space; this is a benchmark: leave it out"),
        (BENCHMARK, "--metric bleu", "architecture line 2 has no metric 'bleu'; it has loss"),
        (BENCHMARK, "--text missing.txt", "missing.txt"),
        (BENCHMARK, "--text short.txt", "a vocabulary of 64 is too small; 257 is the least"),
        (BENCHMARK, "--text other.db", "257"),
        (BENCHMARK, "--text .", "257"),
        (BENCHMARK[:3], "--store other.db", "name another with --store"),
        (BENCHMARK[:3], "--store .", "name another with --store"),
        (SPACE, "--limit 5", "limit is of a benchmark; this is a space: leave it out"),
        (SPACE, "--metric ppl", "metric is of a benchmark; this is a space"),
        (SPACE, "--data .", "data is of a benchmark; this is a space"),
        (SPACE, "--view odd", "view 'odd' is not known; there are declared, published, trained"),
        (SPACE, "--length 513 --proxies snip", "network 0: 513 tokens are given; this network has"),
        (SPACE, "--text short.txt --proxies snip", "network 0: the text has"),
        (BENCH, "", "lab bench needs --proxies"),
        (BENCH, "--proxies snpi", "did you mean 'snip'?"),
        (BENCH, "--proxies ,", "no proxy is named"),
        (BENCH, "--proxies snip --text missing.txt", "'missing.txt' does not exist; a file, a folder"),
        (BENCH, "--proxies snip --store other.db", "name another with --store"),
        (("lab", "proxies", "flexbert", *FEW), "--count 2", "flexibert"),
        (("lab", "proxies", " "), "", "TARGET names no file"),
    ],
)
def test_wrong_settings(zerolm: Zerolm, command: tuple[str, ...], arguments: str, words: str) -> None:
    refused(zerolm, *command, *arguments.split(), words=words)
    assert not Path("out").exists()
    assert Path("other.db").read_text() == "no database at all"


@pytest.mark.parametrize("name", ["count", "limit", "view", "metric", "data"])
def test_of_a_model(zerolm: Zerolm, name: str) -> None:
    saved(Path("model"), "llama")
    value = "3" if name in ("count", "limit") else "x"
    refused(zerolm, "lab", "proxies", "model", f"--{name}", value, "--store", "s", words=f"{name} is of a ")


def test_a_target_that_is_nothing(zerolm: Zerolm, monkeypatch: pytest.MonkeyPatch) -> None:
    for target, words in (
        ("lama", "'lama' is no space and no benchmark; did you mean 'llama'?"),
        ("lama", "or name a file of labels"),
        ("no/such", "'no/such' cannot be read"),
        ("lost.csv", "'lost.csv' cannot be read"),
    ):
        refused(zerolm, "lab", "proxies", target, words=words)
    monkeypatch.setenv("ZEROLM_DATA", ".")
    refused(zerolm, "lab", "proxies", "mime", words="did you mean 'mine'?")


def test_folders_that_are_no_models(zerolm: Zerolm) -> None:
    folder, command = Path("folder"), ("lab", "proxies", "folder", *FEW, "--store", "s")
    folder.mkdir()
    refused(zerolm, *command, words="config.json")
    for config, words in (("{", "config.json"), ('{"model_type": "rwkv"}', "model_type 'rwkv' is not known")):
        (folder / "config.json").write_text(config)
        refused(zerolm, *command, words=words)
    (folder / "pytorch_model.bin").write_bytes(b"cos\nsystem\n(S'touch hacked'\ntR.")
    refused(zerolm, *command, words="folder")
    assert not Path("hacked").exists()


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_loss_that_is_not_finite(zerolm: Zerolm, value: float) -> None:
    file = saved(Path("model"), "llama") / "model.safetensors"
    tensors = load_file(file)
    tensors["model.layers.1.mlp.up_proj.weight"][0] = value
    save_file(tensors, file, metadata={"format": "pt"})
    for name in ("snip", "naswot"):
        arguments = ("lab", "proxies", "model", *FEW, "--proxies", name, "--store", "s")
        refused(zerolm, *arguments, words="model: the loss is nan, not finite")
    arguments = ("lab", "proxies", "model", *FEW, "--proxies", "spectral_capacity_weights", "--store", "s")
    refused(zerolm, *arguments, words="model: a matrix that is not finite")


@pytest.mark.parametrize(("value", "words"), [(math.nan, "not a finite number for 1 of 1"), ("x", "not 'x'")])
def test_a_proxy_of_a_plugin_without_a_value(
    value: object, words: str, zerolm: Zerolm, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where another proxy has one, the first is left out, if it is a number."""
    monkeypatch.setattr(PROXIES, "_entries", dict(PROXIES._entries))
    proxy("mine", source="a test")(lambda passes: value)  # type: ignore[arg-type, return-value]
    arguments = ("lab", "proxies", str(saved(Path("model"), "llama")), *FEW, "--store", "t", "--proxies")
    zerolm(*arguments, "mine").refused(words)
    ran = zerolm(*arguments, "mine,params", "--out", "out")
    assert (ran.status, Path("out").is_dir()) == ((2, False) if value == "x" else (0, True))
    assert ran.status or "1 proxy of 1 network." in ran.out


def test_networks_that_read_images_have_no_text(zerolm: Zerolm) -> None:
    arguments = ("lab", "proxies", "autoformer", "--count", "1", *FEW, "--proxies", "params")
    refused(zerolm, *arguments, "--text", "short.txt", words="read images and no text: leave out --text")
    ran = zerolm(*arguments)
    assert "Images are sampled at random." in ran.out
    assert "okens" not in ran.out


def test_too_little_text_and_memory_of_a_model(zerolm: Zerolm, monkeypatch: pytest.MonkeyPatch) -> None:
    word_tokenizer(saved(Path("model"), "llama"))
    arguments = ("lab", "proxies", "model", *FEW, "--text", "short.txt", "--store", "s")
    refused(zerolm, *arguments, words="model: the text has 3 tokens, 16 sequences of 9 need 144")
    monkeypatch.setattr("zerolm.networks.opener.free_memory", lambda: 1000)
    refused(zerolm, "lab", "proxies", "model", *FEW, "--store", "s", words="of memory")


def test_too_large_a_network(zerolm: Zerolm, monkeypatch: pytest.MonkeyPatch) -> None:
    """What came before it is kept; nothing of it is."""
    sizes = {"depth": 64, "hidden": 16384, "head_size": 128, "heads": 128, "kv_heads": 128, "ffn": 65536}
    with Path("mine.csv").open("a", newline="") as file:
        csv.writer(file).writerow(["llama", json.dumps(sizes), json.dumps({"vocab": 64}), 1.0])
    few = (*BENCHMARK, "--proxies", "snip")
    ran = zerolm(*few)
    assert (ran.status, len(ran.err.splitlines())) == (2, 1)
    assert "mine line 5: the passes take about" in ran.err
    assert len(rows()) == 3
    refused(zerolm, *few, words="mine line 5: the passes take about")
    llamas(Path("mine.csv"), 3)
    monkeypatch.setattr(needed, "free_memory", lambda: 1000)
    refused(zerolm, *few, "--seed", "1", words="0.0 GB are free: take a smaller network")


def test_without_torch() -> None:
    """The extra is named; commands that need no torch go on."""
    code = """import sys
sys.modules["torch"] = None
from zerolm.cli import main
for more in (["lab", "proxies", "flexibert"], ["lab", "bench", "mine.csv", "--proxies", "snip"]):
    assert main(more) == 2
assert main(["bench", "run", "mine.csv"]) == 0"""
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    lines = ran.stderr.splitlines()
    assert len(lines) == 2
    assert all(line.endswith("pip install 'zerolm[torch]'") for line in lines), lines


def test_without_something_else_of_the_extra() -> None:
    said = "proxies run networks, which needs joblib: pip install 'zerolm[torch]'"
    for error, words in (
        (ModuleNotFoundError("No module named 'joblib'", name="joblib"), said),
        (ModuleNotFoundError("said already"), "said already"),
    ):
        with pytest.raises(ModuleNotFoundError) as caught, needing_torch():
            raise error
        assert str(caught.value) == words
