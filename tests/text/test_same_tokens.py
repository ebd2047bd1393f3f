"""The tokens that every reader of a text gets, by their SHA-256: results that were published rest on them."""

import hashlib
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

import numpy as np
import pytest
import torch
from tiny import saved
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from torch import Tensor
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from zerolm.checkpoints import Checkpoint
from zerolm.lab.supernets.text import ElasticText
from zerolm.lab.zero_cost.settings import random_source, text_source
from zerolm.progress import silent
from zerolm.text.calibration import tokens_of
from zerolm.text.corpus import Corpus, Sequences, batch_of, token_file
from zerolm.text.documents import read_text
from zerolm.text.encoding import edges, tokenizer_of
from zerolm.text.predictions import PredictedText
from zerolm.text.tokens import line_tokens, running_tokens
from zerolm.text.vocabularies import token_counts
from zerolm.training.labels import LabelText
from zerolm.training.request import Schedule, TrainingRequest

REQUEST: Final = TrainingRequest(160, 2, 16, Schedule(0.01))
EDGES: Final = {"none": [], "begin": ["w60"], "end": ["w61"], "both": ["w60", "w61"]}
"""What tokenizers put around a text: nothing, what begins it, what ends it, both."""
GOLDEN: Final = json.loads((Path(__file__).parent / "same_tokens.json").read_text())


def digest(parts: Iterable[Any]) -> str:
    total = hashlib.sha256()
    for part in parts:
        values = part if isinstance(part, Tensor) else torch.as_tensor(np.array(part))
        total.update(f"{values.dtype} {tuple(values.shape)}".encode() + values.contiguous().numpy().tobytes())
    return total.hexdigest()[:16]


def check(name: str, *parts: Any) -> None:
    assert digest(parts) == GOLDEN[name], name


def folder_of(place: Path, family: str, around: str) -> Path:
    """A tiny model with a tokenizer of 64 words that puts something around a text, or nothing."""
    words = {f"w{i}": i for i in range(64)}
    tokenizer = Tokenizer(models.WordLevel(words, unk_token="w0"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    special = EDGES[around]
    if special:
        pattern = {"begin": "w60 $A", "end": "$A w61", "both": "w60 $A w61"}[around]
        ids = [(word, words[word]) for word in special]
        tokenizer.post_processor = processors.TemplateProcessing(single=pattern, special_tokens=ids)
    stock = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token="w62", mask_token="w63",
        **{name: word for name, word in (("bos_token", "w60"), ("eos_token", "w61")) if word in special},
    )  # fmt: skip
    saved(place, family)
    stock.save_pretrained(place)
    return place


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A folder of two texts of words that repeat, 90 kB: more than a piece of what tokenizers are given."""
    folder = tmp_path / "text"
    folder.mkdir()
    draw = np.random.default_rng(7)
    for name, count in (("a.txt", 3_000), ("b.txt", 24_000)):
        words = [f"w{i}" for i in draw.integers(0, 60, count)]
        lines = [" ".join(words[start : start + 9]) for start in range(0, count, 9)]
        (folder / name).write_text("\n".join(lines))
    return folder


@pytest.mark.parametrize("around", EDGES)
def test_with_the_tokenizer_of_a_model(source: Path, tmp_path: Path, around: str) -> None:
    tokenizer: Any = AutoTokenizer.from_pretrained(folder_of(tmp_path / "llama", "llama", around))
    text = read_text(source / "b.txt")
    check(f"running {around}", running_tokens(text, tokenizer, 40, 24).ids)
    lines = line_tokens(text, tokenizer, 40, 9)
    check(f"lines {around}", lines.ids, lines.mask)
    stock = text_source(text, tokenizer=tokenizer)
    batches = stock.batch("next", 64, 12, 20, 0), stock.batch("masked", 64, 12, 20, 3)
    check(f"stock {around}", stock.ids, *(x for batch in batches for x in (batch.inputs, batch.labels)))
    check(f"file {around}", token_file(str(source), tokenizer, 1 << 20).ids)
    start, end = edges(tokenizer)
    corpus = Corpus((token_file(str(source), tokenizer, 9_000),), 16, start, end)
    check(f"corpus {around}", corpus.held_out().ids, corpus.whole().ids, *batch_of(Sequences(corpus, 40, 3)))
    for family in ("llama", "bert"):
        checkpoint = Checkpoint.open(folder_of(tmp_path / family, family, around))
        calibrating = tokens_of(checkpoint, str(source / "b.txt"), sequences=12, length=16)
        drawn = tokens_of(checkpoint, "random", sequences=12, length=16, seed=3)
        check(f"calibration {family} {around}", calibrating.ids, drawn.ids)


def test_with_a_tokenizer_of_their_own(source: Path) -> None:
    text = text_source(read_text(source / "b.txt"), 300)
    batches = text.batch("next", 300, 12, 20, 0), text.batch("masked", 300, 12, 20, 3)
    check("trained", text.ids, *(x for batch in batches for x in (batch.inputs, batch.labels)))
    check("random", random_source(300, 5).batch("next", 300, 4, 20, 0).inputs)
    tokenizer = tokenizer_of(str(source), 300)
    corpus = Corpus((token_file(str(source), tokenizer, 9_000),), 16)
    for task in ("next", "masked"):
        for vocabulary in (0, 300):
            data = PredictedText(corpus, task, 0, vocabulary).data(40, 3)  # type: ignore[arg-type]
            check(f"predictions {task} {vocabulary}", *(x for i in range(40) for x in data[i].values()))
    counts = token_counts(str(source), [270, 300])
    check("vocabularies", [counts.size, *counts.tokens.values()])


@pytest.mark.parametrize("task", ["next", "masked"])
@pytest.mark.parametrize("around", [None, "both"])
def test_of_supernets(source: Path, tmp_path: Path, task: Any, around: str | None) -> None:
    folder = None if around is None else folder_of(tmp_path / "model", "llama", around)
    text = ElasticText.of(str(source), task, length=16, batch=2, most=9_000, tokenizer=folder, vocabulary=300)
    data = text.data(REQUEST.sequences, REQUEST.seed)
    check(f"supernet {task} {around}", *text.held_out, *(x for i in range(10) for x in data[i].values()))


@pytest.mark.parametrize("space", ["llama", "bert"])
@pytest.mark.parametrize("judged", [False, True])
def test_of_labels(source: Path, space: str, judged: bool) -> None:
    other = str(source / "a.txt") if judged else None
    text = LabelText.of(str(source), space, {}, REQUEST, silent, other)
    data = text.data(REQUEST.sequences, 3)
    check(f"labels {space} {judged}", text.held_ids, *(x for i in range(10) for x in data[i].values()))
