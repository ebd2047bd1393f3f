"""``zerolm lab proxies`` and ``zerolm lab bench``: what they compute, keep and print."""

import json
import math
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from small_benchmarks import FEW, llamas
from tiny import saved, word_tokenizer

from zerolm.lab.zero_cost import job as evaluate
from zerolm.lab.zero_cost import proxy_names, registry
from zerolm.lab.zero_cost.result import ProxyPasses

Zerolm = Callable[..., Any]


@pytest.fixture(autouse=True)
def without_data(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ZEROLM_DATA", raising=False)


@pytest.fixture
def computed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the networks that are computed in this process, as they come."""
    names: list[str] = []
    call = evaluate.ProxyWork.__call__

    def counting(self: evaluate.ProxyWork, task: Any) -> Any:
        names.append(task[0].name)
        return call(self, task)

    monkeypatch.setattr(evaluate.ProxyWork, "__call__", counting)
    return names


def told(zerolm: Zerolm, *arguments: str) -> dict[str, Any]:
    document: dict[str, Any] = zerolm(*arguments, "--json").document
    return document


def test_a_space(zerolm: Zerolm, computed: list[str]) -> None:
    names = ["params", "synflow", "zerolm_weights"]
    arguments = ("lab", "proxies", "flexibert", "--count", "2", "--proxies", ",".join(names), *FEW)
    found = told(zerolm, *arguments)
    assert found["networks"] == ["network 0", "network 1"] == computed
    assert set(found["values"]) == set(names)
    assert all(len(column) == 2 for column in found["proxies"].values())
    assert found["proxies"]["params"] == [value for (value,) in found["values"]["params"]] == found["params"]
    assert found["settings"] == vars(ProxyPasses(batch=16, length=8, parts=4))
    assert found["text"].startswith("random")
    assert set(found["seconds"]) == set(found["proxies"])
    ran = zerolm(*arguments)
    assert ran.status == 0
    for words in ("flexibert: 2 networks", "sampled at random", "rho with params", "synflow"):
        assert words in ran.out
    assert len(computed) == 2
    wider = told(zerolm, *arguments, "--view", "trained")
    assert wider["proxies"]["params"] != found["proxies"]["params"]


def test_a_benchmark(zerolm: Zerolm, computed: list[str]) -> None:
    llamas(Path("mine.csv"), 24)
    found = told(zerolm, "lab", "proxies", "mine.csv", *FEW, "--store", "s")
    assert len(computed) == 24
    assert set(found["values"]) == set(proxy_names())
    assert not found["left_out"]
    assert set(found["proxies"]) - {"params"} <= {row["score"] for row in found["rows"]}
    assert (found["metric"], found["params"]) == ("loss", found["proxies"]["params"])
    assert found["libra"]["calibration"] + found["libra"]["test"] == 24
    assert set(found["libra"]["chosen"]) <= set(found["proxies"])
    ran = zerolm("lab", "proxies", "mine.csv", *FEW, "--store", "s")
    assert len(computed) == 24
    for words in ("mine: loss, 24 architectures", "synflow", "body_params", "labels that chose: 12"):
        assert words in ran.out


def test_a_second_run_computes_only_what_is_new(zerolm: Zerolm, computed: list[str]) -> None:
    llamas(Path("mine.csv"), 3)
    base = ("lab", "proxies", "mine.csv", *FEW, "--proxies")
    few = told(zerolm, *base, "snip")
    more = told(zerolm, *base, "snip,synflow")
    assert len(computed) == 6
    assert more["proxies"]["snip"] == few["proxies"]["snip"]
    assert more["seconds"]["snip"] == few["seconds"]["snip"]
    assert told(zerolm, *base, "snip,synflow") == more
    assert len(computed) == 6
    for other in (["--seed", "1"], ["--mode", "faithful"], ["--upstream", "task"], ["--length", "9"]):
        before = len(computed)
        told(zerolm, *base, "snip", *other)
        assert len(computed) == before + 3
    llamas(Path("mine.csv"), 4)
    assert told(zerolm, *base, "snip")["proxies"]["snip"][:3] == few["proxies"]["snip"]
    assert computed[-1] == "mine line 5"


@pytest.mark.parametrize(("weights", "own"), [(True, True), (False, False)])
def test_a_model(zerolm: Zerolm, computed: list[str], weights: bool, own: bool) -> None:
    folder = saved(Path("model"), "llama" if own else "gpt2")
    if own:
        word_tokenizer(folder)
    if not weights:
        (folder / "model.safetensors").unlink()
    Path("t.txt").write_text(" ".join(f"w{i * 7 % 64}" for i in range(400)))
    text = ("--text", "t.txt") if own else ()
    found = told(zerolm, "lab", "proxies", "model", *FEW, *text)
    assert told(zerolm, "lab", "proxies", "model", *FEW, *text) == found
    assert computed == ["model"]
    again = told(zerolm, "lab", "proxies", "model", *FEW, *text, "--store", "other")
    assert again | {"seconds": None} == found | {"seconds": None}
    assert len(computed) == 2
    assert set(found["left_out"]) == {"az_nas", "v_pca", "w_pca"}
    assert found["text"].startswith("text 't.txt' (sha256 " if own else "random")
    ran = zerolm("lab", "proxies", "model", *FEW, *text)
    assert len(computed) == 2
    assert "synflow" in ran.out
    assert ("sampled at random" in ran.out) != own
    assert ("tokens of the text 't.txt' (sha256" in ran.out) == own
    if own:  # a folder is read as its files are, and other weights are another model
        Path("texts").mkdir()
        shutil.copy("t.txt", "texts")
        read = told(zerolm, "lab", "proxies", "model", *FEW, "--text", "texts")
        assert (read["proxies"], read["text"][:12]) == (found["proxies"], "text 'texts'")
        saved(Path("model"), "llama", 1)
        assert told(zerolm, "lab", "proxies", "model", *FEW, *text)["proxies"] != found["proxies"]
        assert len(computed) == 3


def test_a_model_without_a_tokenizer_reads_bytes(zerolm: Zerolm) -> None:
    """A tokenizer is learnt from the text; the model must know as many tokens as there are bytes."""
    import transformers

    config = {"vocab_size": 300, "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2}
    more = {"intermediate_size": 24, "max_position_embeddings": 32}
    transformers.LlamaConfig(**config, **more).save_pretrained("model")
    Path("t.txt").write_text(" ".join(f"word{i * 7 % 64}" for i in range(400)))
    found = told(zerolm, "lab", "proxies", "model", *FEW, "--proxies", "snip", "--text", "t.txt")
    other = told(zerolm, "lab", "proxies", "model", *FEW, "--proxies", "snip")
    assert found["proxies"] != other["proxies"]


def test_the_list(zerolm: Zerolm) -> None:
    rows: list[Any] = told(zerolm, "lab", "proxies", "ls")  # type: ignore[assignment]
    assert [row["name"] for row in rows] == proxy_names()
    count, _, *lines = zerolm("lab", "proxies", "ls").out.splitlines()
    assert count.startswith(f"{len(rows)} proxies: ")
    for line, row in zip(lines, rows, strict=True):
        assert line.startswith(row["name"])
        assert line.endswith(row["source"])
        assert ("lower" in line.split()) == (row["sign"] < 0)


def test_what_cannot_be_computed_is_left_out(zerolm: Zerolm, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two samples make four patterns; a single micro-batch does not vary."""
    monkeypatch.setattr(registry.PROXIES, "_entries", dict(registry.PROXIES._entries))
    registry.proxy("odd", source="a test")(lambda passes: [1.0, math.nan])
    registry.proxy("late", source="a test", finish=lambda pool: {"late": [math.inf for _ in pool]})(
        lambda passes: 1.0
    )
    llamas(Path("mine.csv"), 3)
    arguments = ("lab", "proxies", "mine.csv", "--batch", "2", "--length", "4", "--micro-batches", "1")
    found = told(zerolm, *arguments)
    assert {"swap", "zico", "l_swag", "odd", "late"} <= set(found["left_out"])
    assert (found["values"]["swap"], found["values"]["odd"]) == ([[], [], []], [[1.0, None]] * 3)
    assert found["left_out"]["odd"] == "not a finite number for 3 of 3 networks"
    assert not set(found["left_out"]) & set(found["proxies"])
    ran = zerolm(*arguments)
    assert "Left out" in ran.out
    assert "\nzico: it compares micro-batches" in ran.out


def test_beside_the_scores_of_a_benchmark(zerolm: Zerolm, computed: list[str]) -> None:
    llamas(Path("mine.csv"), 9)
    plain = told(zerolm, "bench", "run", "mine.csv")
    with_proxies = ("lab", "bench", "mine.csv", "--proxies", "synflow,params,zerolm_weights", "--store", "s")
    found = told(zerolm, *with_proxies)
    names = {row["score"] for row in found["rows"]} - {row["score"] for row in plain["rows"]}
    assert {"synflow", "zerolm_weights 0.5"} <= names
    assert [row for row in found["rows"] if row["score"] not in names] == plain["rows"]
    assert len(computed) == 9
    ran = zerolm(*with_proxies, "--out", "out")
    assert ran.status == 0, ran.err
    assert len(computed) == 9
    assert "synflow" in ran.out
    assert "synflow" in Path("out/report.html").read_text()
    assert "synflow" in Path("out/scores.csv").read_text().splitlines()[0].split(",")
    same = told(zerolm, "lab", "proxies", "mine.csv", "--proxies", "synflow", "--store", "s")
    assert len(computed) == 9
    lines = Path("out/scores.csv").read_text().splitlines()
    column = lines[0].split(",").index("synflow")
    assert [float(line.split(",")[column]) for line in lines[1:]] == same["proxies"]["synflow"]


def test_what_bench_leaves_out_is_said(zerolm: Zerolm, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry.PROXIES, "_entries", dict(registry.PROXIES._entries))

    @registry.proxy("never", source="a test")
    def never(passes: object) -> float:
        raise registry.LeftOut("never")

    llamas(Path("mine.csv"), 3)
    ran = zerolm("lab", "bench", "mine.csv", "--proxies", "never", "--json")
    assert ran.status == 0
    assert "never" not in {row["score"] for row in json.loads(ran.out)["rows"]}
    assert ran.err == "zerolm: mine: never is left out: never (3 of 3 networks)\n"


def test_random_tokens_are_said_beside_the_scores(zerolm: Zerolm, tmp_path: Path) -> None:
    llamas(Path("mine.csv"), 4)
    asked = ("lab", "bench", "mine.csv", "--proxies", "snip", "--store", "s")
    assert "Tokens are sampled at random" in zerolm(*asked, "--out", "folder").out
    assert "Tokens are sampled at random" in Path("folder", "report.html").read_text()
    assert "tokens are sampled at random" in zerolm(*asked, "--json").document["note"]
    assert "note" not in zerolm("bench", "run", "mine.csv", "--json").document
