"""Calibration tokens: spread over the text, padded or random, and errors that say what is wrong."""

import hashlib
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import PreTrainedTokenizerFast

from zerolm.text.documents import Text, read_text
from zerolm.text.tokens import LEAST_FILLED, Tokens, line_tokens, random_tokens, running_tokens


def words(*, special: bool, around: str = "[CLS] $A [SEP]") -> PreTrainedTokenizerFast:
    vocabulary = {"[PAD]": 0, "[CLS]": 1, "[SEP]": 2} | {f"w{n}": n + 3 for n in range(100)}
    made = Tokenizer(models.WordLevel(vocabulary, unk_token="[PAD]"))
    made.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    if special:
        ends = [("[CLS]", 1), ("[SEP]", 2)]
        made.post_processor = processors.TemplateProcessing(single=around, special_tokens=ends)
    return PreTrainedTokenizerFast(tokenizer_object=made, pad_token="[PAD]", eos_token="[SEP]")


def test_sequences_are_spread_over_the_text() -> None:
    text = Text(" ".join(f"w{n}" for n in range(100)), "hash")
    found = running_tokens(text, words(special=False), 3, 10)
    assert found.ids[:, 0].tolist() == [3, 48, 93]
    assert found.ids[2].tolist() == list(range(93, 103))
    assert found.text == "hash"
    assert found.mask is None
    assert found.count == 30
    assert len(running_tokens(text, words(special=False), 64, 30)) == 3
    begun = running_tokens(text, words(special=True), 3, 10)
    assert begun.ids[:, :2].tolist() == [[1, 3], [1, 48], [1, 94]]


@pytest.mark.parametrize(
    ("around", "start"),
    [("$A [SEP]", []), ("[SEP] $A", [2]), ("[CLS] [SEP] $A", [1, 2]), ("[CLS] $A [SEP]", [1])],
    ids=["end alone", "the end in front", "two in front", "both"],
)
def test_sequences_begin_as_any_text_begins(around: str, start: list[int]) -> None:
    text = Text(" ".join(f"w{n}" for n in range(100)), "hash")
    tokens = running_tokens(text, words(special=True, around=around), 3, 10)
    size = 10 - len(start)
    assert tokens.ids[0].tolist() == [*start, *range(3, 3 + size)]
    assert tokens.ids[2].tolist() == [*start, *range(103 - size, 103)]


def test_one_sequence_is_the_least() -> None:
    text = Text("w1 w2 w3", "hash")
    assert running_tokens(text, words(special=False), 9, 3).ids.tolist() == [[4, 5, 6]]
    with pytest.raises(ValueError, match="the text has 3 tokens, one sequence needs 4"):
        running_tokens(text, words(special=False), 9, 4)


def test_lines_are_padded_and_cut() -> None:
    text = Text("w0\n\n  w1 w2 w3 w4 w5\nw6 w7\n", "hash")
    found = line_tokens(text, words(special=True), 8, 5)
    assert found.ids.tolist() == [[1, 3, 2, 0, 0], [1, 4, 5, 6, 2], [1, 9, 10, 2, 0]]
    assert found.mask.sum(1).tolist() == [3, 5, 4]
    assert found.count == 12
    batches = found.batches(2)
    assert [set(batch) for batch in batches] == [{"input_ids", "attention_mask"}] * 2
    assert torch.equal(batches[0]["input_ids"], found.ids[:2])
    assert batches[1]["input_ids"].tolist() == [[1, 9, 10, 2]]  # without columns of padding only
    assert batches[1]["attention_mask"].tolist() == [[1, 1, 1, 1]]
    assert len(line_tokens(text, words(special=True), 2, 5)) == 2


def test_batches_of_the_shortest_first_pad_least() -> None:
    lines = [" ".join(["w1"] * count) for count in (5, 1, 7, 2, 7, 1, 3)]
    tokens = line_tokens(Text("\n".join(lines), "hash"), words(special=False), 9, 9)
    order = tokens.shortest_first()
    assert order.tolist() == [1, 5, 3, 6, 0, 2, 4]
    assert [batch["input_ids"].shape[1] for batch in tokens.rows(order).batches(2)] == [1, 3, 7, 7]
    assert random_tokens(10, 3, 4).shortest_first().tolist() == [0, 1, 2]


def test_random_tokens_are_seeded_and_not_special() -> None:
    found = random_tokens(10, 20, 30, special=(0, 1, 9), seed=4)
    assert torch.equal(found.ids, random_tokens(10, 20, 30, special=(0, 1, 9), seed=4).ids)
    assert not torch.equal(found.ids, random_tokens(10, 20, 30, special=(0, 1, 9), seed=5).ids)
    assert set(found.ids.ravel().tolist()) == set(range(2, 9))
    assert (found.seed, found.text) == (4, None)


def test_files_that_are_no_text(tmp_path: Path) -> None:
    file = tmp_path / "text"
    file.write_text("größer\n", encoding="utf-8")
    assert read_text(file).sha256 == hashlib.sha256("größer\n".encode()).hexdigest()
    for content, message in ((b"a\xff", "byte 1 is wrong"), (b"a\0b", "zero bytes"), (b" \n", "is empty")):
        file.write_bytes(content)
        with pytest.raises(ValueError, match=message):
            read_text(file)


@given(st.lists(st.integers(1, 9), min_size=1, max_size=40), st.integers(1, 5))
@settings(max_examples=50, deadline=None)
def test_filled_batches_hold_each_sequence_once_and_little_padding(lengths: list[int], size: int) -> None:
    longest = max(lengths)
    mask = torch.tensor([[1] * each + [0] * (longest - each) for each in lengths])
    ids = torch.arange(mask.numel()).reshape(mask.shape)
    batches = Tokens(ids, mask).filled(size)
    rows = [(row[keep.bool()]).tolist() for b in batches for row, keep in zip(*b.values(), strict=True)]
    assert sorted(rows) == sorted(row[keep.bool()].tolist() for row, keep in zip(ids, mask, strict=True))
    widths = [b["input_ids"].shape for b in batches]
    assert all(b["attention_mask"].sum(1).max() == w for b, (_, w) in zip(batches, widths, strict=True))
    assert all(count * width <= max(size * longest, LEAST_FILLED) for count, width in widths)
    whole = Tokens(ids)
    assert [b["input_ids"].tolist() for b in whole.filled(size)] == [
        b["input_ids"].tolist() for b in whole.batches(size)
    ]


@given(st.integers(3, 300), st.integers(1, 600))
@settings(max_examples=50, deadline=None)
def test_fitted_and_held_out_sequences_have_none_in_common(count: int, length: int) -> None:
    ids = torch.arange(count)[:, None].expand(count, length)
    parts = [set(part.ids[:, 0].tolist()) for part in vars(Tokens(ids).divided()).values()]
    assert set.union(*parts) == set(range(count))
    assert sum(map(len, parts)) == count
    assert len(parts[1]) == len(parts[2]) == max(1, min(count // 8, (1 << 13) // length))


def test_two_sequences_cannot_be_divided() -> None:
    with pytest.raises(ValueError, match="gives 2 sequences of 5 tokens; 3 are the least"):
        Tokens(torch.zeros(2, 5)).divided()
