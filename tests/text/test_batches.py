"""Batches are cut from a text without overlap, the same everywhere, and their loss is torch's own."""

from __future__ import annotations

import argparse
import hashlib
import inspect
import re
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from portion import portion
from tiny import word_tokenizer
from torch import nn
from transformers import AutoTokenizer

from zerolm.networks.batch import Batch, loss
from zerolm.text.batches import TokenSource, random_source, stock_source, text_source
from zerolm.text.documents import Text

CONTENT = inspect.getsource(argparse)
TEXT = Text(CONTENT, hashlib.sha256(CONTENT.encode()).hexdigest())


@cache
def source(vocabulary: int = 512) -> TokenSource:
    return text_source(TEXT, vocabulary)


@cache
def numbered() -> TokenSource:
    """A text whose tokens are their places in it."""
    return TokenSource("places", torch.arange(1, 3001), 3001, 2, mask=0, classes=3001)


def predicted(batch: Batch) -> int:
    return int((batch.labels != -100).sum())


def source_ids(found: TokenSource) -> torch.Tensor:
    assert found.ids is not None
    return found.ids


@given(st.integers(1, 40), st.integers(1, 60))
@settings(max_examples=portion(60), deadline=None)
def test_next_is_shifted_by_one_and_sequences_do_not_overlap(sequences: int, length: int) -> None:
    batch = numbered().batch("next", 3001, sequences, length, seed=0)
    assert batch.inputs.shape == batch.labels.shape == (sequences, length)
    assert torch.equal(batch.labels, batch.inputs + 1)
    assert torch.equal(batch.inputs[:, 1:], batch.labels[:, :-1])
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
    wanted = max(1, round(0.15 * length))
    hidden = batch.labels != -100
    assert hidden.sum(1).tolist() == [wanted] * sequences
    assert predicted(batch) == wanted * sequences
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
    assert counts.min() > 0
    assert counts.max() < 20
    assert len({tuple(row.tolist()) for row in batches[0]}) == 40, "every sequence has places of its own"


def test_the_tokens_are_a_function_of_the_text() -> None:
    again = text_source(TEXT, 512)
    assert torch.equal(source_ids(again), source_ids(source()))
    code = (
        "import argparse, hashlib, inspect; from zerolm.text.documents import Text;"
        "from zerolm.text.batches import text_source; text = inspect.getsource(argparse);"
        "print(text_source(Text(text, ''), 512).batch('next', 512, 8, 32, 0).digest())"
    )
    environment = {"RAYON_NUM_THREADS": "3", "PYTHONHASHSEED": "7", "OMP_NUM_THREADS": "1"}
    found = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
    )
    assert found.stdout.strip() == source().batch("next", 512, 8, 32, 0).digest()
    other = text_source(Text(CONTENT[:-500], ""), 512).batch("next", 512, 8, 32, 0)
    assert other.digest() != found.stdout.strip()


def test_the_tokenizer_has_the_vocabulary_that_was_asked_or_what_the_text_gives() -> None:
    assert source().size == 512
    assert source().classes == 512
    short = text_source(Text("a text, a text\n", ""), 8192)
    assert 257 < short.size < 300
    assert int(source_ids(source()).max()) < 512
    assert len(source_ids(source(2048))) < len(source_ids(source())) < len(CONTENT.encode())
    only_bytes = source_ids(source(257))
    assert len(only_bytes) == len(CONTENT.encode())
    assert only_bytes.min() >= 1
    with pytest.raises(ValueError, match=r"^a vocabulary of 256 is too small; 257 is the least$"):
        text_source(TEXT, 256)


@pytest.mark.parametrize("text", ["[MASK]", "é\r\n\t 日本 [MASK]x", "\ufffd\x01", "x" * 70_000])
def test_any_text_has_tokens_and_none_of_them_is_the_mask(text: str) -> None:
    ids = source_ids(text_source(Text(text, ""), 257))
    assert len(ids) == len(text.encode())
    assert ids.min() >= 1


def test_where_tokens_come_from_is_said() -> None:
    assert source().batch("next", 512, 1, 4, 0).source == f"text sha256:{TEXT.sha256}"
    assert random_source(99, 3).batch("next", 99, 1, 4, 0).source == "random seed 3"
    assert source().batch("image", 10, 1, 4, 5).source == "random images seed 5"


def test_random_tokens_are_uniform_and_of_their_seed() -> None:
    batches = [random_source(11, seed).batch("next", 20, 50, 40, 0) for seed in (0, 0, 1)]
    assert batches[0].digest() == batches[1].digest() != batches[2].digest()
    counts = batches[0].inputs.flatten().bincount(minlength=11)
    assert counts[0] == 0
    assert counts[1:].min() > 140
    assert counts[1:].max() < 260
    assert batches[0].classes == 11
    with pytest.raises(ValueError, match=r"2 is the least"):
        random_source(1)


def test_images_need_no_text() -> None:
    batch = source().batch("image", 7, 20, 128, 0)
    assert batch.inputs.shape == (20, 3, 224, 224)
    assert batch.labels.shape == (20,)
    assert abs(float(batch.inputs.mean())) < 0.01
    assert abs(float(batch.inputs.std()) - 1) < 0.01
    assert batch.classes is None
    assert 0 <= int(batch.labels.min()) < int(batch.labels.max()) < 7
    assert batch.digest() == random_source().batch("image", 7, 20, 1, 0).digest()
    assert batch.digest() != source().batch("image", 7, 20, 128, 1).digest()


def test_a_text_too_short_says_how_many_sequences_it_has() -> None:
    few = TokenSource("few", torch.arange(1, 1000), 1000, 2, mask=0, classes=1000)
    told = "the text has 999 tokens, a batch of 64 x 128 needs 8256: give more text, or at most 7 sequences"
    with pytest.raises(ValueError, match=f"^{told} {re.escape('(--batch 7)')}$"):
        few.batch("next", 1000, 64, 128, 0)
    assert len(few.batch("next", 1000, 7, 128, 0)) == 7
    with pytest.raises(ValueError, match=r"needs 8192: .* at most 7 "):
        few.batch("masked", 1000, 64, 128, 0)
    with pytest.raises(ValueError, match=r"give more text, or --length 999 at most$"):
        few.batch("masked", 1000, 1, 1000, 0)
    with pytest.raises(ValueError, match=r"^a batch of 0 x 9 is empty"):
        few.batch("next", 1000, 0, 9, 0)


def test_a_network_with_too_few_classes_is_told_the_vocabulary() -> None:
    for found, classes, said in (
        (source(), 511, "257 to 511 ids are possible"),
        (source(), 100, "257 ids are the least"),
        (random_source(512), 100, "2 to 100 ids are possible"),
    ):
        told = f"the network has {classes} tokens, the tokenizer 512: {said}"
        with pytest.raises(ValueError, match=f"^{told}$"):
            found.batch("next", classes, 1, 4, 0)


def test_a_stock_tokenizer_has_its_whole_vocabulary_and_perhaps_a_mask(tmp_path: Path) -> None:
    word_tokenizer(tmp_path)
    tokenizer = AutoTokenizer.from_pretrained(tmp_path)  # type: ignore[no-untyped-call]
    text = Text(" ".join(f"w{i % 60}" for i in range(40_000)), "d1")  # longer than one piece
    found = stock_source(tokenizer, text)
    batch = found.batch("next", 64, 3, 20, 0)
    assert (batch.classes, batch.source, found.size) == (None, "text sha256:d1", 60)
    assert torch.equal(batch.inputs[0], torch.arange(20))
    with pytest.raises(ValueError, match=r"^the network has 59 tokens, .* 60: 60 ids are the least$"):
        found.batch("next", 59, 3, 20, 0)
    with pytest.raises(ValueError, match=r"^the tokenizer has no mask token"):
        found.batch("masked", 64, 3, 20, 0)
    tokenizer.mask_token = "w63"
    masked = stock_source(tokenizer, text).batch("masked", 64, 3, 20, 0)
    assert torch.equal(masked.inputs == 63, masked.labels >= 0)
    assert predicted(masked) == 9


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


def test_loss_of_images_is_that_of_torch() -> None:
    batch = random_source().batch("image", 10, 4, 1, 0)
    logits = torch.randn(4, 10)
    assert torch.allclose(loss(logits, batch), nn.CrossEntropyLoss()(logits, batch.labels))
    assert [len(part.labels) for part in batch.micro(2)] == [2, 2]


def test_parts_must_divide_the_batch() -> None:
    batch = numbered().batch("next", 3001, 12, 4, 0)
    for parts in (5, 13, 0, -3):
        with pytest.raises(ValueError, match=f"^a batch of 12 .* {parts} equal .* 1, 2, 3, 4, 6, 12 do$"):
            batch.micro(parts)


def test_the_digest_tells_inputs_labels_and_classes_apart() -> None:
    batch = numbered().batch("masked", 3001, 2, 9, 0)
    others = [
        Batch(batch.inputs.flip(0), batch.labels, batch.classes, ""),
        Batch(batch.inputs, batch.labels.flip(0), batch.classes, ""),
        Batch(batch.inputs, batch.labels, None, ""),
        Batch(batch.inputs.reshape(3, 6), batch.labels, batch.classes, ""),
        Batch(batch.labels, batch.inputs, batch.classes, ""),
    ]
    assert len({found.digest() for found in [batch, *others]}) == 6
    assert Batch(batch.inputs.clone(), batch.labels, batch.classes, "").digest() == batch.digest()
