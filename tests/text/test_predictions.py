"""Texts with a tokenizer of their own, and what is to be predicted of their sequences."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from label_training import some_text

from zerolm.networks.batch import NOTHING
from zerolm.text.batches import masked, text_source
from zerolm.text.corpus import Corpus, token_file
from zerolm.text.documents import read_text
from zerolm.text.encoding import tokenizer_of
from zerolm.text.predictions import PredictedText, predicted


@pytest.fixture
def corpus(tmp_path: Path) -> Corpus:
    source = str(some_text(tmp_path))
    return Corpus((token_file(source, tokenizer_of(source, 300), 10_000),), 16)


def test_the_tokenizer_is_the_one_that_proxies_train(tmp_path: Path) -> None:
    file = some_text(tmp_path)
    tokenizer, source = tokenizer_of(str(file), 300), text_source(read_text(file), 300)
    ids = tokenizer(file.read_text(), add_special_tokens=False)["input_ids"]
    assert source.ids is not None
    assert ids == source.ids.tolist()
    assert (len(tokenizer), tokenizer.mask_token_id) == (source.size, source.mask)


def test_a_text_that_says_mask_masks_nothing(tmp_path: Path) -> None:
    file = tmp_path / "text.txt"
    file.write_text("a [MASK] b [MASK] c " * 40)
    tokenizer = tokenizer_of(str(file), 280)
    assert tokenizer.mask_token_id not in tokenizer(file.read_text())["input_ids"]


def test_the_next_token_is_predicted_at_every_place_but_the_last(corpus: Corpus) -> None:
    data = PredictedText(corpus, "next", 0, 0).data(20, 3)
    for place in range(20):
        item, whole = data[place], data.sequences[place]["input_ids"]
        assert item["input_ids"].equal(whole)
        assert item["labels"][:-1].equal(whole[1:])
        assert item["labels"][-1] == NOTHING


def test_masked_tokens_are_what_stood_there_and_other_ones_each_time(corpus: Corpus) -> None:
    rounds = 3 * corpus.counts[0][0]
    data = PredictedText(corpus, "masked", 0, 0).data(rounds, 3)
    by_number: dict[int, set[tuple[bool, ...]]] = {}
    for place in range(rounds):
        item, whole = data[place], data.sequences[place]["input_ids"]
        hidden = item["labels"] != NOTHING
        assert int(hidden.sum()) == round(0.15 * 16)
        assert torch.where(hidden, item["labels"], item["input_ids"]).equal(whole)
        assert (item["input_ids"][hidden] == 0).all()
        by_number.setdefault(int(data.sequences.numbers[place]), set()).add(tuple(hidden.tolist()))
        assert data[place]["labels"].equal(item["labels"])
    assert sum(len(masks) > 1 for masks in by_number.values()) > 0.9 * len(by_number)
    other = PredictedText(corpus, "masked", 0, 0).data(rounds, 4)
    assert any(not (data[i]["labels"] == other[i]["labels"]).all() for i in range(9))


def test_text_held_out_is_masked_alike_for_all(corpus: Corpus) -> None:
    ids = corpus.held_out().ids
    assert all(one.equal(other) for one, other in zip(
        predicted(ids, "masked", 0), predicted(ids.clone(), "masked", 0), strict=True
    ))  # fmt: skip


def test_with_a_vocabulary_tokens_are_replaced_as_bert_does() -> None:
    """80 % masked, 10 % random, 10 % as they are; what begins and ends a sequence is left alone."""
    ids = torch.full((400, 102), 7)
    inputs, labels = masked(ids, 0, 5, vocabulary=1000, edges=(1, 1))
    predicted_at = labels != NOTHING
    assert predicted_at.sum(1).tolist() == [15] * 400
    assert not bool(predicted_at[:, [0, -1]].any())
    assert bool((inputs[~predicted_at] == 7).all())
    assert bool((labels[predicted_at] == 7).all())
    drawn = inputs[predicted_at]
    shares = [float((drawn == token).double().mean()) for token in (0, 7)]
    assert abs(shares[0] - 0.8) < 5 * (0.8 * 0.2 / 6000) ** 0.5
    assert abs(shares[1] - 0.1) < 5 * (0.1 * 0.9 / 6000) ** 0.5
    assert len(drawn.unique()) > 300
    assert int(drawn.max()) < 1000
    again = masked(ids, 0, 5, vocabulary=1000, edges=(1, 1))
    assert torch.equal(again[0], inputs)
    assert torch.equal(masked(ids, 0, 5, edges=(1, 1))[1], labels)
