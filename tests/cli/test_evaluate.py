"""``zerolm eval``: its table, its JSON, tasks of lm-evaluation-harness, and wrong input in one line."""

import json
import shutil
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import transformers
from once import once
from refusals import Zerolm
from tiny import DECODER, saved, word_tokenizer

import zerolm as package

FEW = ("--text", "text.txt", "--sequences", "6", "--length", "12")


@pytest.fixture(autouse=True)
def here(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder with a parent, a child of it and a text: a copy of what is carved once."""

    def make(folder: Path) -> None:
        monkeypatch.chdir(folder)
        word_tokenizer(saved(Path("parent"), "llama"))
        Path("text.txt").write_text(" ".join(f"w{i * i % 61}" for i in range(400)))
        package.carve("parent", "child", keep_ffn=0.5, keep_heads=0.5)

    shutil.copytree(once(tmp_path_factory, "parent_and_child", make), tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)


def ran(zerolm: Zerolm, *flags: str) -> str:
    found = zerolm("eval", "child", "--parent", "parent", *flags)
    assert found.status == 0, found.err
    return str(found.out)


def refused(zerolm: Zerolm, words: str, *flags: str, child: str = "child", parent: str = "parent") -> None:
    zerolm("eval", child, "--parent", parent, *flags).refused(words)


def test_the_table_shows_what_json_holds(zerolm: Zerolm) -> None:
    found = json.loads(ran(zerolm, *FEW, "--json"))
    first, head, *lines = ran(zerolm, *FEW).splitlines()
    child, parent, *_ = found["rows"]
    assert first == (
        f"6 sequences, 72 tokens: perplexity {child['perplexity']:.2f} (parent {parent['perplexity']:.2f}), "
        f"KL {child['kl']:.4f}"
    )
    by_position = ["KL", "first", "KL", "1-15", "KL", "rest"]  # 12 tokens: none at 16 and behind it
    assert head.split() == ["network", "parameters", "perplexity", "KL", *by_position[:4],
                            "range", "over", "draws"]  # fmt: skip
    assert (child["name"], child["perplexity"], child["kl"]) == ("child", found["perplexity"], found["kl"])
    assert (parent["perplexity"], parent["kl"]) == (found["parent_perplexity"], 0.0)
    for row, line in zip(found["rows"], lines, strict=False):
        name, rest = line.strip()[: len(row["name"])], line.strip()[len(row["name"]) :]
        _, perplexity, kl, first, others, *spread = rest.split()
        assert (name, perplexity, kl) == (row["name"], f"{row['perplexity']:,.2f}", f"{row['kl']:.4f}")
        at = row["kl_by_position"]
        assert (float(first), float(others)) == (round(at["first"], 4), round(at["1-15"], 4))  # -0 is 0
        assert row["kl"] == pytest.approx((at["first"] + 10 * at["1-15"]) / 11)
        assert bool(spread) == ("spread" in row) == (name == "random")
        assert line.index(kl) + len(kl) == head.index("KL") + 2  # below its head
    assert "no repair, no rotation" in lines[-1] == found["note"]


def test_pairs_of_sentences_judge_an_encoder(zerolm: Zerolm) -> None:
    word_tokenizer(saved(Path("encoder"), "bert"))
    rows = [f"w{i} w{i + 1},w{i * i % 64} w{i + 2},{i % 5}" for i in range(9)]
    Path("pairs.csv").write_text("\n".join(["sentence1,sentence2,score", *rows]))
    found = zerolm("eval", "encoder", "--parent", "encoder", "--data", "pairs.csv")
    assert found.status == 0, found.err
    first, head, *_ = found.out.splitlines()
    assert first.startswith("18 sequences, ")
    assert "order 1.0000, nearest 1.0000, pairs 0." in first or "pairs -0." in first
    assert head.split()[6:9] == ["order", "nearest", "pairs"]
    refused(zerolm, "pairs judge encoders, and a llama is none", "--data", "pairs.csv")
    refused(zerolm, "'text.txt' is no table", "--data", "text.txt", child="encoder", parent="encoder")


def gguf(name: str) -> None:
    Path(name).mkdir()
    Path(name, "model.gguf").write_bytes(b"GGUF")
    Path(name, "recipe.json").write_text("{}")


def test_what_cannot_be_evaluated_is_said_in_one_line(zerolm: Zerolm) -> None:
    gguf("packed")
    refused(zerolm, "is not a sound GGUF file", *FEW, child="packed")
    refused(zerolm, "is not a sound GGUF file", *FEW, child="packed/model.gguf")
    refused(zerolm, "nowhere", *FEW, child="nowhere")
    word_tokenizer(saved(Path("encoder"), "bert"))
    refused(zerolm, "a decoder and an encoder cannot be compared: bert and llama", *FEW, child="encoder")
    larger = transformers.LlamaForCausalLM(transformers.LlamaConfig(**DECODER | {"vocab_size": 80}))
    larger.save_pretrained("larger")
    refused(zerolm, "vocabularies of 80 and 64 tokens cannot be compared", *FEW, child="larger")
    for content, words in ((b" \n", "is empty"), (b"\xff\xfe\x00", "not text"), (b"w1 w2 w3", "more text")):
        Path("text.txt").write_bytes(content)
        refused(zerolm, words, *FEW)
    refused(zerolm, "none.txt", "--text", "none.txt")


def test_a_child_and_its_parent_that_are_exchanged(zerolm: Zerolm) -> None:
    refused(zerolm, "is larger than its parent", *FEW, child="parent", parent="child")
    refused(zerolm, "tokens): exchange them", *FEW, child="parent", parent="child")
    same = zerolm("eval", "parent", "--parent", "parent", *FEW, "--json").document
    assert (same["kl"], same["perplexity"]) == (pytest.approx(0.0, abs=1e-6), same["parent_perplexity"])


TASK = """
task: next_word
dataset_path: json
dataset_kwargs: {{data_files: {folder}/data.json, cache_dir: {folder}/datasets}}
test_split: train
output_type: multiple_choice
doc_to_text: "{{{{question}}}}"
doc_to_choice: "{{{{choices}}}}"
doc_to_target: "{{{{answer}}}}"
metric_list: [{{metric: acc, aggregation: mean, higher_is_better: true}}]
"""
QUESTIONS = [
    {
        "question": f"w{i} w{i * i % 59} w{i * 3}",
        "choices": [f"w{(i + j * 17) % 64}" for j in range(4)],
        "answer": i % 4,
    }
    for i in range(20)
]


def right(folder: str, questions: list[dict[str, Any]]) -> float:
    """The share of questions whose answer is the likeliest next token of the choices."""
    network = transformers.AutoModelForCausalLM.from_pretrained(folder).eval()
    hits = 0
    for each in questions:
        ids = torch.tensor([[int(word[1:]) for word in each["question"].split()]])
        with torch.no_grad():
            logits = network(ids).logits[0, -1]
        hits += int(logits[[int(word[1:]) for word in each["choices"]]].argmax()) == each["answer"]
    return hits / len(questions)


@pytest.fixture
def task(tmp_path: Path) -> str:
    pytest.importorskip("lm_eval", reason="lm-evaluation-harness is not installed (zerolm[tasks])")
    tokenizer = transformers.AutoTokenizer.from_pretrained("parent")
    tokenizer.add_special_tokens({"eos_token": "w0", "pad_token": "w0"})
    tokenizer.save_pretrained("parent")
    Path("data.json").write_text("\n".join(map(json.dumps, QUESTIONS)))
    Path("task.yaml").write_text(TASK.format(folder=tmp_path))
    return "task.yaml"


def test_a_task_of_a_file_is_scored_on_both(zerolm: Zerolm, task: str) -> None:
    found = json.loads(ran(zerolm, "--tasks", task, "--json"))
    (row,) = found["tasks"]
    assert set(found) == {"tasks"}
    assert (row["task"], row["metric"], row["samples"]) == ("next_word", "acc", 20)
    for name in ("child", "parent"):
        share = right(name, QUESTIONS)
        assert row[name] == pytest.approx(share)
        assert row[f"{name}_stderr"] == pytest.approx((share * (1 - share) / 19) ** 0.5)


def test_tasks_and_text_stand_in_one_answer(zerolm: Zerolm, task: str) -> None:
    *rows, head, line = ran(zerolm, *FEW, "--tasks", task, "--limit", "8").splitlines()
    assert rows[0].startswith("6 sequences, 72 tokens: ")
    assert rows[1].startswith("Of 1 task metrics")
    assert head.split() == ["task", "metric", "samples", "child", "parent"]
    shares = [right(name, QUESTIONS[:8]) for name in ("child", "parent")]
    assert line.split()[:3] == ["next_word", "acc", "8"]
    assert [line.split()[at] for at in (3, 6)] == [f"{share:.4f}" for share in shares]


def test_tasks_that_cannot_be_run_are_said_in_one_line(zerolm: Zerolm, task: str) -> None:
    refused(zerolm, "task file 'none.yaml' does not exist", "--tasks", f"{task},none.yaml")
    Path("broken.yaml").write_text("task: [")
    refused(zerolm, "cannot run broken.yaml", "--tasks", "broken.yaml")
    Path("data.json").write_text("{")
    refused(zerolm, "cannot run task.yaml", "--tasks", task)
    word_tokenizer(saved(Path("encoder"), "bert"))
    refused(zerolm, "tasks need a decoder", "--tasks", task, child="encoder", parent="encoder")


def test_unknown_tasks_have_neighbours(zerolm: Zerolm, task: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The harness's list is replaced by a short one, for it takes long to read."""
    few = SimpleNamespace(all_tasks=["arc_easy", "hellaswag", "piqa"])
    monkeypatch.setattr("lm_eval.tasks.TaskManager", lambda include_defaults: few)
    refused(zerolm, "near it are hellaswag", "--tasks", "helaswag")


def test_without_the_harness_its_extra_is_named(zerolm: Zerolm, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "lm_eval", None)
    refused(zerolm, "pip install 'zerolm[tasks]'", "--tasks", "hellaswag")
