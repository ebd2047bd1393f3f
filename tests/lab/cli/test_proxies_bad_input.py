"""Wrong input of the commands that run networks: one line, exit status 2, and the store as it was."""

from __future__ import annotations

import csv
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from small_benchmarks import FEW, llamas
from tiny import saved, word_tokenizer

from zerolm.lab.zero_cost import memory as needed
from zerolm.lab.zero_cost.store import Store
from zerolm.verbs.shared import needing_torch

Zerolm = Callable[..., Any]


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder with a benchmark, a text, and a store that holds something."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("ZEROLM_DATA", raising=False)
    llamas(Path("mine.csv"), 3)
    Path("short.txt").write_text("a few words")
    Path("other.db").write_text("no database at all")


def rows() -> list[Any]:
    """What is in the store, of which every network is whole."""
    if not Path("s").exists():
        return []
    with Store(Path("s")) as store:
        return store._database.execute("SELECT * FROM measurements").fetchall()


def refused(zerolm: Zerolm, *arguments: str, words: str) -> None:
    """That a command fails in one line, with these words, and leaves the store as it was."""
    before = rows()
    zerolm(*arguments).refused(words)
    assert rows() == before


BENCHMARK = ("mine.csv", *FEW, "--store", "s")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--proxies", "snpi"], "proxy 'snpi' is not known; did you mean 'snip'?"),
        (["--proxies", " , "], "no proxy is named; there are"),
        (["--batch", "16M"], "too large"),
        (["--micro-batches", "3"], "3 equal micro-batches of 16 are not possible; 2 are"),
        (["--micro-batches", "99"], "99 equal micro-batches of 16 are not possible; 16 are"),
        (["--mode", "insane"], "mode 'insane' is not known; did you mean 'sane'? there are sane, faithful"),
        (["--jobs", "2", "--backend", "ray"], "jobs 2 are for loky"),
        (["--view", "trained"], "view 'trained' is not one of mine.csv's; there are none"),
        (["--count", "3"], "count is of a space; this is a benchmark: leave it out"),
        (["--metric", "bleu"], "has no metric 'bleu'; it has loss"),
        (["--text", "missing.txt"], "missing.txt"),
        (["--text", "short.txt"], "a vocabulary of 64 is too small; 257 is the least"),
        (["--text", "other.db"], "257"),
        (["--text", "."], "is not a regular file"),
    ],
)
def test_of_a_benchmark(zerolm: Zerolm, arguments: list[str], words: str) -> None:
    refused(zerolm, "lab", "proxies", *BENCHMARK, *arguments, words=words)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--limit", "5"], "limit is of a benchmark; this is a space: leave it out"),
        (["--metric", "ppl"], "metric is of a benchmark; this is a space"),
        (["--data", "."], "data is of a benchmark; this is a space"),
        (["--view", "odd"], "view 'odd' is not known; there are declared, published, trained"),
        (["--length", "513", "--proxies", "snip"], "network 0: 513 tokens are given; this network has"),
        (["--text", "short.txt", "--proxies", "snip"], "network 0: the text has"),
    ],
)
def test_of_a_space(zerolm: Zerolm, arguments: list[str], words: str) -> None:
    few = [*FEW, "--count", "1"]
    refused(zerolm, "lab", "proxies", "flexibert", "--store", "s", *few, *arguments, words=words)


@pytest.mark.parametrize("name", ["count", "limit", "view", "metric", "data"])
def test_of_a_model(zerolm: Zerolm, name: str) -> None:
    saved(Path("model"), "llama")
    value = "3" if name in ("count", "limit") else "x"
    refused(zerolm, "lab", "proxies", "model", f"--{name}", value, "--store", "s", words=f"{name} is of a ")


def test_a_target_that_is_nothing(zerolm: Zerolm, monkeypatch: pytest.MonkeyPatch) -> None:
    refused(zerolm, "lab", "proxies", "lama", words="'lama' is nothing that is known: spaces are bert")
    refused(zerolm, "lab", "proxies", "lama", words="benchmarks are autoformer_vit, decoder_pairs,")
    refused(zerolm, "lab", "proxies", "no/such", words="'no/such' cannot be read")
    refused(zerolm, "lab", "proxies", "lost.csv", words="'lost.csv' cannot be read")
    monkeypatch.setenv("ZEROLM_DATA", ".")
    refused(zerolm, "lab", "proxies", "lama", words="llama_small, mine, pit_vit,")


def test_folders_that_are_no_models(zerolm: Zerolm) -> None:
    folder = Path("folder")
    folder.mkdir()
    refused(zerolm, "lab", "proxies", "folder", *FEW, "--store", "s", words="config.json")
    (folder / "config.json").write_text("{")
    refused(zerolm, "lab", "proxies", "folder", *FEW, "--store", "s", words="config.json")
    (folder / "config.json").write_text(json.dumps({"model_type": "rwkv", "hidden_size": 8}))
    refused(zerolm, "lab", "proxies", "folder", *FEW, "--store", "s", words="model_type 'rwkv' is not known")
    (folder / "pytorch_model.bin").write_bytes(b"cos\nsystem\n(S'touch hacked'\ntR.")
    refused(zerolm, "lab", "proxies", "folder", *FEW, "--store", "s", words="folder")
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


def test_too_little_text_and_memory_of_a_model(zerolm: Zerolm, monkeypatch: pytest.MonkeyPatch) -> None:
    word_tokenizer(saved(Path("model"), "llama"))
    arguments = ("lab", "proxies", "model", *FEW, "--text", "short.txt", "--store", "s")
    refused(zerolm, *arguments, words="model: the text has 3 tokens, a batch of 16 x 8 needs 144")
    monkeypatch.setattr("zerolm.networks.opener.free_memory", lambda: 1000)
    refused(zerolm, "lab", "proxies", "model", *FEW, "--store", "s", words="of memory")


def test_too_large_a_network(zerolm: Zerolm, monkeypatch: pytest.MonkeyPatch) -> None:
    """What came before it is kept; nothing of it is."""
    sizes = {"depth": 64, "hidden": 16384, "head_size": 128, "heads": 128, "kv_heads": 128, "ffn": 65536}
    with Path("mine.csv").open("a", newline="") as file:
        csv.writer(file).writerow(["llama", json.dumps(sizes), json.dumps({"vocab": 64}), 1.0])
    few = ("lab", "proxies", *BENCHMARK, "--proxies", "snip")
    ran = zerolm(*few)
    assert (ran.status, len(ran.err.splitlines())) == (2, 1)
    assert "mine line 5: the passes take about" in ran.err
    assert len(rows()) == 3
    refused(zerolm, *few, words="mine line 5: the passes take about")
    llamas(Path("mine.csv"), 3)
    monkeypatch.setattr(needed, "free_memory", lambda: 1000)
    refused(zerolm, *few, "--seed", "1", words="0.0 GB are free: take a smaller network")


def test_a_store_that_is_none(zerolm: Zerolm) -> None:
    for name in ("other.db", "."):
        refused(
            zerolm, "lab", "proxies", "mine.csv", *FEW, "--store", name, words="name another with --store"
        )
    assert Path("other.db").read_text() == "no database at all"


def test_no_gpu(zerolm: Zerolm, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    refused(zerolm, "lab", "proxies", *BENCHMARK, "--device", "cuda", words="there is no device 'cuda' here")


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


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "lab bench needs --proxies"),
        (["--proxies", "snpi"], "did you mean 'snip'?"),
        (["--proxies", ""], "no proxy is named"),
        (["--proxies", "snip", "--text", "missing.txt"], "missing.txt"),
        (["--proxies", "snip", "--store", "other.db"], "name another with --store"),
    ],
)
def test_of_lab_bench(zerolm: Zerolm, arguments: list[str], words: str) -> None:
    refused(zerolm, "lab", "bench", "mine.csv", "--out", "out", *arguments, words=words)
    assert not Path("out").exists()


def test_a_misspelt_space_is_named_before_its_options(zerolm: Zerolm) -> None:
    refused(zerolm, "lab", "proxies", "flexbert", *FEW, "--count", "2", words="flexibert")
    refused(zerolm, "lab", "proxies", " ", *FEW, words="TARGET names no file")
    refused(zerolm, "lab", "proxies", "mine.csv", *FEW, "--count", "2", words="count is of a space")
