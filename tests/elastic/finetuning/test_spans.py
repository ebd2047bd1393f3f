"""Spans: from places in a text to tokens and back, and measures beside golden values."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny import word_tokenizer
from transformers import AutoTokenizer

from zerolm.elastic.finetuning.spans import NEVER, Spans, exact, f1


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = tmp_path_factory.mktemp("tokenizer")
    word_tokenizer(folder, "w63")
    return AutoTokenizer.from_pretrained(folder)


def test_measures_are_those_of_squad() -> None:
    assert exact("The Cat!", "cat") == 1
    assert exact("a cat", "cats") == 0
    assert f1("the big cat", "cat") == pytest.approx(2 / 3)
    assert f1("cat cat", "cat") == pytest.approx(2 / 3)
    assert (f1("", ""), f1("", "cat"), f1("cat", "")) == (1, 0, 0)


@settings(max_examples=40)
@given(data=st.data())
def test_the_tokens_of_an_answer_give_it_back(tokenizer: Any, data: st.DataObject) -> None:
    words = data.draw(st.lists(st.sampled_from([f"w{i}" for i in range(60)]), min_size=1, max_size=12))
    first = data.draw(st.integers(0, len(words) - 1))
    last = data.draw(st.integers(first, len(words) - 1))
    context, answer = "  ".join(words), "  ".join(words[first : last + 1])
    start = len("  ".join([*words[:first], ""]))
    told = data.draw(st.sampled_from([answer, {"text": [answer], "answer_start": [start]}]))
    row = {"question": "w61 w62", "context": context, "answer": told}
    if not isinstance(told, dict):
        row["answer_start"] = str(start)
    examples = Spans(True).encode([row], tokenizer, 40)
    places = [int(examples.tensors[name][0]) for name in ("start_positions", "end_positions")]
    assert places == [2 + first, 2 + last]
    logits = [torch.full((1, examples.tensors["input_ids"].shape[1]), NEVER) for _ in places]
    for part, place in zip(logits, places, strict=True):
        part[0, place] = 9.0
    assert Spans(True).measure(logits, examples, [row], tokenizer) == {"exact": 1.0, "f1": 1.0}


def test_no_answer_is_the_first_token(tokenizer: Any) -> None:
    rows = [
        {"question": "w1", "context": "w2 w3", "answer": ""},
        {"question": "w1", "context": "w4", "answer": "w4"},
    ]
    task = Spans.of(rows, "question", "context", "answer")
    assert task.may_lack
    examples = task.encode(rows, tokenizer, 9)
    assert examples.tensors["start_positions"].tolist() == [0, 1]
    assert examples.tensors["attention_mask"].tolist() == [[1, 1, 1], [1, 1, 0]]
    first = torch.tensor([[9.0, 0.0, 0.0], [0.0, 9.0, 0.0]])
    assert task.measure([first, first], examples, rows, tokenizer)["exact"] == 1
    always = Spans(False).measure([first, first], examples, rows, tokenizer)
    assert always["exact"] == 0.5
    assert task.baseline(rows) == {"f1": 0.5}


def test_the_likeliest_pair_is_in_order_and_in_the_context(tokenizer: Any) -> None:
    rows = [{"question": "w1", "context": "w2 w3 w4", "answer": "w3 w4"}]
    start, end = torch.tensor([[99.0, 1.0, 5.0, 4.0]]), torch.tensor([[99.0, 9.0, 1.0, 2.0]])
    examples = Spans(False).encode(rows, tokenizer, 9)
    # the end w2 before the start w3 would be 14; w2 alone is 10, w3 to w4 is 7
    assert Spans(False).measure([start, end], examples, rows, tokenizer) == {"exact": 0.0, "f1": 0.0}


def test_what_is_cut_off_is_no_answer(tokenizer: Any) -> None:
    row = {"question": "w1", "context": "w2 w3 w4 w5 w6 w7", "answer": "w6 w7"}
    assert Spans(True).encode([row], tokenizer, 6).tensors["start_positions"].tolist() == [0]


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"question": "w1", "context": "w2", "answer": "w9"}, "row 1: the answer 'w9' is not in its text"),
        ({"question": "w1 w1 w1 w1 w1 w1", "context": "w2", "answer": "w2"}, "leaves no room in 9"),
    ],
)
def test_what_cannot_be_found_is_refused(tokenizer: Any, row: dict[str, str], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Spans(True).encode([row], tokenizer, 9)
