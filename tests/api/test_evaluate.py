"""``zerolm.eval``: results on a text and on tasks that save, load and repeat themselves."""

from pathlib import Path
from typing import Any

import pytest
import transformers
from refusals import Zerolm
from repeated import check_report
from tiny import DECODER, saved, word_tokenizer

import zerolm as package

FEW: dict[str, Any] = {"text": "text.txt", "sequences": 6, "length": 12}


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    word_tokenizer(saved(Path("parent"), "llama"))
    Path("text.txt").write_text(" ".join(f"w{i * i % 61}" for i in range(400)))


@pytest.mark.parametrize("name", ["llama", "bert"])
def test_it_saves_loads_and_repeats(name: str, zerolm: Zerolm, tmp_path: Path) -> None:
    word_tokenizer(saved(Path("other"), name, seed=1))
    report = package.eval(Path("other"), parent="parent" if name == "llama" else "other", **FEW)
    check_report(report, zerolm, tmp_path / "out")
    assert [row["name"] for row in report.rows()] == ["child", "parent", "random", "uniform"]
    columns = ["perplexity", "kl"] if name == "llama" else ["cosine", "distance"]
    assert report.measures == columns
    assert report.rows()[2][f"{columns[0]}_low"] <= report.rows()[2][columns[0]]


def test_texts_of_several_domains_are_told_apart(zerolm: Zerolm, tmp_path: Path) -> None:
    word_tokenizer(saved(Path("other"), "llama", seed=1))
    Path("chat").mkdir()
    Path("chat", "a.md").write_text(" ".join(f"w{i % 7}" for i in range(200)))
    texts = {"code": "text.txt", "chat": Path("chat")}
    report = package.eval("other", parent="parent", **FEW | {"text": texts, "loops": 2})
    check_report(report, zerolm, tmp_path / "out")
    assert report.measures == ["perplexity", "kl", "loops"]
    assert (report.sequences, report.prompts) == (12, 2)
    assert report.rows()[0]["kl_on_chat"] == report.networks[0].domains["chat"]["kl"]
    for words in ("KL on chat", "perplexity on code", "of 2 looping", "Looping answers"):
        assert words in report.page()


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "nothing to evaluate on": ({}, "give --text FILE"),
    "no tasks": ({"tasks": []}, "give --text FILE"),
    "a limit alone": (FEW | {"limit": 3}, "give --tasks TASKS too"),
    "no others": (FEW | {"beside": []}, "beside names no folder"),
    "others without a text": ({"tasks": "piqa", "beside": "other"}, "--beside compares on a text"),
    "random tokens": (FEW | {"text": "random"}, "random tokens cannot evaluate"),
    "a random domain": (FEW | {"text": "code=text.txt,noise=random"}, "random tokens cannot evaluate"),
    "a domain twice": (FEW | {"text": "code=text.txt,code=text.txt"}, "the domain 'code' has two texts"),
    "a domain without a text": (FEW | {"text": "code=,chat=text.txt"}, "the domain 'code' has no text"),
    "an empty domain": (FEW | {"text": "code=text.txt,chat=empty.txt"}, "empty.txt is empty"),
    "a short domain": (FEW | {"text": "code=text.txt,chat=short.txt"}, "short.txt' with .* give more text"),
    "prompts without a text": ({"tasks": "piqa", "loops": 3}, "--loops takes its prompts from a text"),
    "fewer prompts than none": (FEW | {"loops": -1}, "loops must be an integer from 0"),
    "prompts of an encoder": (
        FEW | {"loops": 3, "child": "encoder", "parent": "encoder"},
        "--loops counts answers of models that predict the next token, and a bert does not",
    ),
    "answers without positions": (
        FEW | {"loops": 3, "child": "gpt2", "parent": "gpt2"},
        "at least 32 tokens: after prompts of 6 the model has positions for 26",
    ),
    "domains of a child of other tokens": (
        FEW | {"text": "a=text.txt,b=text.txt", "child": "larger"},
        "a child of other tokens than its parent's is judged on one text at a time",
    ),
    "prompts of a child of other tokens": (FEW | {"loops": 3, "child": "larger"}, "leave --loops out"),
}


@pytest.mark.parametrize("case", WRONG)
def test_settings_that_do_not_go_together_are_said_in_one_line(case: str) -> None:
    settings, words = WRONG[case]
    Path("empty.txt").write_text(" ")
    Path("short.txt").write_text("w1 w2")
    for folder, kind in (("encoder", "bert"), ("gpt2", "gpt2")):
        if folder in settings.values():
            word_tokenizer(saved(Path(folder), kind))
    if "larger" in settings.values():
        larger = transformers.LlamaForCausalLM(transformers.LlamaConfig(**DECODER | {"vocab_size": 80}))
        larger.save_pretrained("larger")
    with pytest.raises(ValueError, match=words) as told:
        package.eval(**({"child": "parent", "parent": "parent"} | settings))
    assert "\n" not in str(told.value)


@pytest.mark.parametrize(
    ("name", "length", "words"),
    [
        ("llama", 12, []),
        ("gpt2", 100_000, ["at most 32 tokens, not 100,000: the model has no more positions"]),
        ("bert", 256, ["at most 32 tokens, not 256: the model has no more positions"]),
        ("bert", 20, ["at most 10 tokens, not 20: no line of the text is longer"]),
        ("bert", 8, []),
    ],
)
def test_sequences_that_are_shorter_than_asked_are_told(name: str, length: int, words: list[str]) -> None:
    word_tokenizer(saved(Path("model"), name))
    if name == "bert":
        Path("text.txt").write_text(
            "\n".join(" ".join(f"w{i * j % 61}" for i in range(10)) for j in range(9))
        )
    report = package.eval("model", parent="model", text="text.txt", sequences=2, length=length)
    assert report.remarks == [f"sequences have {text}" for text in words]
    assert ("shortened" in report.to_json()) == bool(words)
