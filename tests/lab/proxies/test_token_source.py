"""Batches are cut from a text without overlap, the same everywhere, and their loss is torch's own."""

import argparse
import hashlib
import inspect
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from portion import portion
from tiny import word_tokenizer
from torch import nn
from transformers import AutoTokenizer

from zerolm.lab.zero_cost.settings import TokenSource, random_source, text_source
from zerolm.networks.batch import Batch, loss
from zerolm.text.documents import Text

CONTENT = inspect.getsource(argparse)
TEXT = Text(CONTENT, hashlib.sha256(CONTENT.encode()).hexdigest())


@cache
def source(vocabulary: int = 512) -> TokenSource:
    return text_source(TEXT, vocabulary)


@cache
def numbered(count: int = 3000) -> TokenSource:
    """A text whose tokens are their places in it."""
    return TokenSource("places", torch.arange(1, count + 1), count + 1, mask=0, classes=count + 1)


def predicted(batch: Batch) -> int:
    return int((batch.labels != -100).sum())


def source_ids(source: TokenSource) -> torch.Tensor:
    assert source.ids is not None
    return source.ids


@given(st.integers(1, 40), st.integers(1, 60))
@settings(max_examples=portion(60), deadline=None)
def test_next_is_shifted_by_one_and_sequences_do_not_overlap(sequences: int, length: int) -> None:
    batch = numbered().batch("next", 3001, sequences, length, seed=0)
    assert batch.inputs.shape == batch.labels.shape == (sequences, length)
    assert torch.equal(batch.labels, batch.inputs + 1)
    used = torch.cat([batch.inputs, batch.labels[:, -1:]], 1).flatten()  # every token that is read
    assert bool((used[1:] > used[:-1]).all())
    assert used[0] == 1
    assert sequences == 1 or used[-1] == 3000
    gaps = batch.inputs[1:, 0] - batch.inputs[:-1, 0]
    assert sequences == 1 or int(gaps.max() - gaps.min()) <= 1


@given(st.integers(1, 12), st.integers(1, 90), st.integers(0, 9))
@settings(max_examples=portion(60), deadline=None)
def test_masked_hides_exactly_15_percent_of_every_sequence(sequences: int, length: int, seed: int) -> None:
    batch = source().batch("masked", 600, sequences, length, seed)
    hidden = batch.labels != -100
    assert hidden.sum(1).tolist() == [max(1, round(0.15 * length))] * sequences
    assert torch.equal(batch.inputs == 0, hidden), "the mask stands where something is predicted, only there"
    whole = torch.where(hidden, batch.labels, batch.inputs)
    ids = source_ids(source())
    firsts = [step * (len(ids) - length) // max(1, sequences - 1) for step in range(sequences)]
    assert whole.tolist() == [ids[first : first + length].tolist() for first in firsts]


def test_masks_are_drawn_under_the_seed_and_everywhere() -> None:
    batches = [source().batch("masked", 512, 40, 50, seed).labels != -100 for seed in (0, 0, 1)]
    assert torch.equal(batches[0], batches[1])
    assert not torch.equal(batches[0], batches[2])
    counts = batches[0].sum(0)  # (t,), 40 sequences of 8 masks: 6.4 a place
    assert 0 < counts.min() <= counts.max() < 20
    assert len({tuple(row.tolist()) for row in batches[0]}) == 40, "every sequence has places of its own"


def test_the_tokens_are_a_function_of_the_text() -> None:
    code = (
        "import argparse, inspect; from zerolm.text.documents import Text;"
        "from zerolm.lab.zero_cost.settings import text_source; text = inspect.getsource(argparse);"
        "print(text_source(Text(text, ''), 512).batch('next', 512, 8, 32, 0).digest())"
    )
    environment = {"RAYON_NUM_THREADS": "3", "PYTHONHASHSEED": "7", "OMP_NUM_THREADS": "1"}
    ran = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
    )
    assert ran.stdout.strip() == source().batch("next", 512, 8, 32, 0).digest()
    other = text_source(Text(CONTENT[:-500], ""), 512).batch("next", 512, 8, 32, 0)
    assert other.digest() != ran.stdout.strip()


def test_the_tokenizer_has_the_vocabulary_that_was_asked_or_what_the_text_gives() -> None:
    assert source().size == source().classes == 512
    assert 257 < text_source(Text("a text, a text\n", ""), 8192).size < 300
    assert len(source_ids(source(2048))) < len(source_ids(source())) < len(CONTENT.encode())
    with pytest.raises(ValueError, match=r"^a vocabulary of 256 is too small; 257 is the least$"):
        text_source(TEXT, 256)


@pytest.mark.parametrize("text", ["[MASK]", "é\r\n\t 日本 [MASK]x", "\ufffd\x01", "x" * 70_000])
def test_any_text_has_tokens_and_none_of_them_is_the_mask(text: str) -> None:
    ids = source_ids(text_source(Text(text, ""), 257))
    assert len(ids) == len(text.encode())
    assert ids.min() >= 1


def test_random_tokens_are_uniform_and_of_their_seed() -> None:
    batches = [random_source(11, seed).batch("next", 20, 50, 40, 0) for seed in (0, 0, 1)]
    assert batches[0].digest() == batches[1].digest() != batches[2].digest()
    counts = batches[0].inputs.flatten().bincount(minlength=11)
    assert counts[0] == 0
    assert 140 < counts[1:].min() <= counts[1:].max() < 260
    assert (batches[0].classes, batches[2].source) == (11, "random seed 1")
    with pytest.raises(ValueError, match=r"2 is the least"):
        random_source(1)


def test_images_need_no_text() -> None:
    batch = source().batch("image", 7, 20, 128, 0)
    assert (batch.inputs.shape, batch.labels.shape) == ((20, 3, 224, 224), (20,))
    assert abs(float(batch.inputs.mean())) < 0.01
    assert abs(float(batch.inputs.std()) - 1) < 0.01
    assert (batch.classes, batch.source) == (None, "random images seed 0")
    assert 0 <= int(batch.labels.min()) < int(batch.labels.max()) < 7
    assert batch.digest() == random_source().batch("image", 7, 20, 1, 0).digest()
    assert batch.digest() != source().batch("image", 7, 20, 128, 1).digest()


@given(st.sampled_from(["next", "masked"]), st.integers(1, 20), st.integers(2, 20))
def test_a_text_too_short_is_refused(task: Any, sequences: int, length: int) -> None:
    span = length + (task == "next")
    assert len(numbered(sequences * span).batch(task, 3001, sequences, length, 0)) == sequences
    with pytest.raises(ValueError, match=f"sequences of {span} need {sequences * span}: give more text"):
        numbered(sequences * span - 1).batch(task, 3001, sequences, length, 0)


def test_a_stock_tokenizer_has_its_whole_vocabulary_and_perhaps_a_mask(tmp_path: Path) -> None:
    word_tokenizer(tmp_path)
    tokenizer = AutoTokenizer.from_pretrained(tmp_path)  # type: ignore[no-untyped-call]
    text = Text(" ".join(f"w{i % 60}" for i in range(40_000)), "d1")  # longer than one piece
    stock = text_source(text, tokenizer=tokenizer, name="t.txt")
    batch = stock.batch("next", 64, 3, 20, 0)
    assert (batch.classes, batch.source, stock.size) == (None, "text 't.txt' (sha256 d1)", 60)
    assert torch.equal(batch.inputs[0], torch.arange(20))
    with pytest.raises(ValueError, match=r"^the network has 59 tokens, fewer than the 60 of the tokenizer$"):
        stock.batch("next", 59, 3, 20, 0)
    with pytest.raises(ValueError, match=r"^the tokenizer has no mask token"):
        stock.batch("masked", 64, 3, 20, 0)
    tokenizer.mask_token = "w63"
    batch = text_source(text, tokenizer=tokenizer).batch("masked", 64, 3, 20, 0)
    assert torch.equal(batch.inputs == 63, batch.labels >= 0)
    assert predicted(batch) == 9


@given(st.sampled_from(["next", "masked"]), st.sampled_from([1, 2, 3, 6, 12]), st.integers(0, 5))
@settings(max_examples=portion(40), deadline=None)
def test_loss_is_that_of_torch_and_of_its_parts(task: str, parts: int, seed: int) -> None:
    batch = source().batch(task, 600, 12, 21, seed)  # type: ignore[arg-type]
    uneven = batch.labels.clone()  # parts that predict differently many
    uneven[0, :] = -100
    uneven[0, 0] = 5
    batch = Batch(batch.inputs, uneven, batch.classes, batch.source)
    logits = torch.randn(12, 21, 600, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    known = logits[..., : batch.classes]
    whole = loss(known, batch)
    wanted = nn.CrossEntropyLoss()(logits[:, :, :512].transpose(1, 2), batch.labels)
    assert torch.allclose(whole, wanted, rtol=1e-12)
    micro = batch.micro(parts)
    assert [len(part) for part in micro] == [12 // parts] * parts
    assert torch.equal(torch.cat([part.inputs for part in micro]), batch.inputs)
    losses = [loss(out, part) * predicted(part) for out, part in zip(known.chunk(parts), micro, strict=True)]
    assert torch.allclose(sum(losses, torch.zeros(())) / predicted(batch), whole, rtol=1e-12)


def test_loss_of_images_is_that_of_torch_and_parts_divide_the_batch() -> None:
    batch, logits = random_source().batch("image", 10, 4, 1, 0), torch.randn(4, 10)
    assert torch.allclose(loss(logits, batch), nn.CrossEntropyLoss()(logits, batch.labels))
    assert [len(part.labels) for part in batch.micro(2)] == [2, 2]
    for parts in (5, 3, 0, -3):
        with pytest.raises(ValueError, match=f"^a batch of 4 .* {parts} equal .* 1, 2, 4 do$"):
            batch.micro(parts)


def test_the_digest_tells_inputs_labels_and_classes_apart() -> None:
    batch = numbered().batch("masked", 3001, 2, 9, 0)
    inputs, labels, classes = batch.inputs, batch.labels, batch.classes
    others = [(inputs.flip(0), labels, classes), (inputs, labels.flip(0), classes), (inputs, labels, None)]
    others += [(inputs.reshape(3, 6), labels, classes), (labels, inputs, classes)]
    assert len({batch.digest(), *(Batch(*each, "").digest() for each in others)}) == 6
    assert Batch(inputs.clone(), labels, classes, "").digest() == batch.digest()
