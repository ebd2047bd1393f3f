"""Texts as token files, the order in which training takes their sequences, and what is predicted of them."""

import os
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from label_training import some_text
from portion import portion
from tiny import saved, word_tokenizer
from transformers import AutoTokenizer

from zerolm.lab.zero_cost.settings import text_source
from zerolm.networks.batch import NOTHING
from zerolm.text import documents as documents_module
from zerolm.text.corpus import Corpus, Sequences, TokenFile, batch_of, token_file
from zerolm.text.defaults import HELD
from zerolm.text.documents import documents, read_text
from zerolm.text.encoding import edges, tokenizer_of
from zerolm.text.predictions import PredictedText, masked


def text(count: int, name: str = "text") -> TokenFile:
    return TokenFile(name, name, 1, np.arange(count, dtype=np.uint16))


def pairs_of(corpus: Corpus, count: int, seed: int) -> list[tuple[int, int]]:
    return [tuple(pair) for pair in corpus.ordered(count, seed).tolist()]


@given(
    st.lists(st.integers(60, 400), min_size=1, max_size=3), st.integers(1, 200), st.integers(0, 5), st.data()
)
def test_no_window_comes_twice_before_all_came(sizes: list[int], count: int, seed: int, data: Any) -> None:
    shares = data.draw(
        st.none() | st.lists(st.floats(0.1, 9.0), min_size=len(sizes), max_size=len(sizes)).map(tuple)
    )
    corpus = Corpus(tuple(map(text, sizes)), 5, shares=shares)
    pairs = pairs_of(corpus, count, seed)
    assert len(pairs) == count
    assert pairs == pairs_of(corpus, count, seed)
    wanted = np.array(shares or [train for train, _ in corpus.counts])
    for number, (train, _) in enumerate(corpus.counts):
        windows = [window for place, window in pairs if place == number]
        assert abs(len(windows) - count * wanted[number] / wanted.sum()) <= 1
        times = Counter(windows)
        assert all(0 <= window < train for window in times)
        assert max(times.values(), default=0) - min((times[w] for w in range(train)), default=0) <= 1


@given(st.integers(60, 5000), st.integers(2, 6))
def test_what_is_held_out_is_never_trained_on(size: int, length: int) -> None:
    corpus = Corpus((text(size),), length)
    ((train, held),) = corpus.counts
    assert held == min(HELD, (train + held) // 10) >= 1
    trained = {int(token) for window in range(train) for token in corpus.sequence(0, window)}
    assert trained.isdisjoint(corpus.held_out().ids.flatten().tolist())
    assert corpus.held_out().ids.shape == (held, length)


@given(st.lists(st.integers(60, 500), min_size=1, max_size=3), st.integers(2, 6))
def test_a_whole_corpus_is_every_sequence_in_order(sizes: list[int], length: int) -> None:
    corpus = Corpus(tuple(map(text, sizes)), length)
    windows = [(place, window) for place, size in enumerate(sizes) for window in range(size // length)]
    assert corpus.whole().ids.tolist() == [corpus.sequence(*pair).tolist() for pair in windows]


def test_sequences_begin_and_end_as_the_tokenizer_has_it() -> None:
    sequence = Corpus((text(400),), 8, (900,), (901,)).sequence(0, 2).tolist()
    assert sequence == [900, 12, 13, 14, 15, 16, 17, 901]


def test_numbers_tell_windows_apart() -> None:
    data = Sequences(Corpus((text(300, "a"), text(500, "b")), 5), 120, 0)
    ids, numbers = batch_of(data)
    assert len(set(numbers.tolist())) == len({tuple(row) for row in data.pairs.tolist()})
    for row, number in zip(ids, numbers, strict=True):
        (same,) = {tuple(ids[place].tolist()) for place in torch.where(numbers == number)[0].tolist()}
        assert same == tuple(row.tolist())


def test_a_text_too_short_is_refused() -> None:
    with pytest.raises(ValueError, match="has 39 tokens; 40 are the least for sequences of 4"):
        Corpus((text(39),), 4).counts  # noqa: B018


@pytest.fixture
def tokenizer(tmp_path: Path) -> Any:
    folder = saved(tmp_path / "model", "llama")
    word_tokenizer(folder)
    return AutoTokenizer.from_pretrained(folder)


def words(count: int, seed: int = 0) -> str:
    return " ".join(f"w{place}" for place in np.random.default_rng(seed).integers(0, 50, count))


def test_tokens_are_those_of_the_documents_and_come_from_the_cache(
    tmp_path: Path, tokenizer: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "text.txt"
    file.write_text(words(300))
    first = token_file(str(file), tokenizer, 1 << 20)
    start, _ = edges(tokenizer)
    own = tokenizer(words(300), add_special_tokens=False)["input_ids"]
    assert first.ids.tolist()[-len(own) :] == own
    assert len(first.ids) - len(own) == len(start)

    def never(*_: Any, **__: Any) -> Any:
        raise AssertionError

    monkeypatch.setattr(type(tokenizer), "__call__", never)
    monkeypatch.setattr("zerolm.text.corpus.separator", lambda *_: list(start))
    assert token_file(str(file), tokenizer, 1 << 20).ids.tolist() == first.ids.tolist()


def test_damaged_tokens_are_refused(tmp_path: Path, tokenizer: Any, own_cache: Path) -> None:
    file = tmp_path / "text.txt"
    file.write_text(words(300))
    token_file(str(file), tokenizer, 1 << 20)
    (ids,) = (own_cache / "tokens").glob("*/ids.bin")
    ids.write_bytes(ids.read_bytes()[:-2])
    with pytest.raises(ValueError, match="damaged: remove that folder"):
        token_file(str(file), tokenizer, 1 << 20)


def test_a_folder_is_read_wherever_it_lies(tmp_path: Path, tokenizer: Any) -> None:
    for place in ("one", "two/three"):
        folder = tmp_path / place
        (folder / "deep").mkdir(parents=True)
        (folder / "a.txt").write_text("first")
        (folder / "deep" / "b.py").write_text("second")
        (folder / ".hidden").write_text("never")
        (folder / "binary").write_bytes(b"\xff\xfe\x00")
        (folder / "empty").write_text("")
        os.symlink("/etc/passwd", folder / "link")
    one, two = (list(documents(str(tmp_path / place))) for place in ("one", "two/three"))
    assert one == two
    assert {document.content for document in one} == {"first", "second"}


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda folder: folder.mkdir(), "holds no files of UTF-8 text"),
        (lambda folder: folder.write_bytes(b"\xff\xfe"), "is not text in UTF-8"),
        (lambda folder: None, "does not exist"),
    ],
)
def test_where_there_is_nothing_to_read(tmp_path: Path, make: Any, message: str) -> None:
    make(tmp_path / "it")
    with pytest.raises(ValueError, match=message) as refused:
        list(documents(str(tmp_path / "it")))
    assert "\n" not in str(refused.value)


def test_a_data_set_of_the_hub_streams(tokenizer: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []

    def load(name: str, config: str | None, *, split: str, streaming: bool) -> Any:
        asked.append((name, config, split, streaming))
        return ({"text": words(40, seed)} for seed in range(10**6))

    monkeypatch.setattr(documents_module, "check_on_hub", lambda name: None)
    monkeypatch.setattr("datasets.load_dataset", load)
    tokens = token_file("owner/name:config:train", tokenizer, 5000)
    assert asked == [("owner/name", "config", "train", True)]
    assert 5000 <= len(tokens.ids) < 20_000
    again = token_file("owner/name:config:train", tokenizer, 5000)
    assert len(asked) == 1
    assert again.ids.tolist() == tokens.ids.tolist()


@settings(max_examples=portion(20))
@given(
    st.lists(st.integers(1, 9), max_size=2),
    st.lists(st.integers(1, 9), max_size=2),
    st.sampled_from([None, 9]),
)
def test_edges(before: list[int], behind: list[int], end: int | None) -> None:
    class Tokenizer(SimpleNamespace):
        def __call__(
            self, text: str | list[str], *, add_special_tokens: bool = True, verbose: bool = False
        ) -> dict[str, Any]:
            if isinstance(text, list):
                return {"input_ids": [[10 + ord(letter) for letter in each] for each in text]}
            return {"input_ids": [*before, *(10 + ord(letter) for letter in text), *behind]}

    made: Any = Tokenizer(eos_token_id=end)
    assert edges(made) == (tuple(before), tuple(behind))


@pytest.fixture
def corpus(tmp_path: Path) -> Corpus:
    source = str(some_text(tmp_path))
    return Corpus((token_file(source, tokenizer_of(source, 300), 10_000),), 16)


def test_the_tokenizer_is_the_one_that_proxies_train(tmp_path: Path) -> None:
    file = some_text(tmp_path)
    tokenizer, source = tokenizer_of(str(file), 300), text_source(read_text(file), 300)
    ids = tokenizer(file.read_text(), add_special_tokens=False)["input_ids"]
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
    assert torch.equal(masked(ids, 0, 5, vocabulary=1000, edges=(1, 1))[0], inputs)
    assert torch.equal(masked(ids, 0, 5, edges=(1, 1))[1], labels)
