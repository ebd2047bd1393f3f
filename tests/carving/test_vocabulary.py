"""Tokenizers with fewer tokens: no string is lost, and texts of kept tokens are read as before."""

import json
from dataclasses import replace
from functools import cache
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from made_tokenizers import CORPUS, KINDS, SPECIAL
from tokenizers import Tokenizer

from zerolm.carving.vocabulary.cut_parent import check_rows
from zerolm.carving.vocabulary.text_use import TokenUse, listed
from zerolm.carving.vocabulary.token_table import TokenTable, last_merge
from zerolm.carving.vocabulary.tokenizer_files import cut_document, ids_in, numbers, renumbered

ROWS = 1400


@cache
def whole(kind: str) -> tuple[dict[str, Any], Tokenizer, TokenTable]:
    """The tokenizer of a kind: its document, opened, and its table."""
    text = KINDS[kind]()
    document = json.loads(text)
    return document, Tokenizer.from_str(text), TokenTable.of(document, ROWS)


def use(kind: str, text: str) -> TokenUse:
    """How often its tokens are met in a text."""
    _, tokenizer, table = whole(kind)
    ids = tokenizer.encode(text, add_special_tokens=False).ids
    return TokenUse(table, np.bincount(ids, minlength=ROWS))


@cache
def cut(kind: str, share: float) -> tuple[np.ndarray[Any, Any], Tokenizer]:
    """The tokenizer with a share of what may leave gone, the least used of the first page first."""
    document, _, table = whole(kind)
    counted = use(kind, CORPUS[0])
    kept = counted.kept(counted.least + round((1 - share) * (table.rows - counted.least)))
    return kept, Tokenizer.from_str(json.dumps(cut_document(document, kept)))


STRINGS = st.one_of(
    st.text(max_size=40),
    st.lists(
        st.sampled_from([*SPECIAL, "def ", "  ", "\n", "ё", "名", "🙂", "the", "import json", "'ll"])
    ).map("".join),
    st.sampled_from([line for text in CORPUS for line in text.splitlines() if line.strip()]),
)


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=200, deadline=None)
@given(text=STRINGS, share=st.sampled_from([0.4, 0.8, 1.0]))
def test_any_string_is_written_back_and_kept_tokens_stay(kind: str, text: str, share: float) -> None:
    """As by the parent; a text of kept tokens is read as the same ones."""
    _, before, _ = whole(kind)
    kept, after = cut(kind, share)
    ours, theirs = (one.encode(text).ids for one in (after, before))
    kept_special = {"skip_special_tokens": False}
    assert after.decode(ours, **kept_special) == before.decode(theirs, **kept_special)
    new = numbers(kept)
    if all(token in new for token in theirs):
        assert ours == [new[token] for token in theirs]


@pytest.mark.parametrize("kind", KINDS)
def test_a_text_needs_what_it_uses_and_its_tokens_stay(kind: str) -> None:
    """The used tokens are kept, each with what it is merged from, and the text is read as before."""
    document, before, table = whole(kind)
    for text in CORPUS[:2]:
        counted = use(kind, text)
        kept = counted.kept(counted.used)
        after = Tokenizer.from_str(json.dumps(cut_document(document, kept)))
        new = numbers(kept)
        assert after.encode(text).ids == [new[token] for token in before.encode(text).ids]
        assert set(np.flatnonzero(counted.counts)) <= set(kept.tolist())
        assert counted.used < len(table.ids)
        assert counted.growth(counted.used) == 0
        with pytest.raises(ValueError, match="must be"):
            counted.kept(counted.least - 1)


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_kept_is_closed_and_grows(kind: str) -> None:
    _, _, table = whole(kind)
    counted = use(kind, CORPUS[0])
    sizes = np.linspace(counted.least, ROWS, 12).astype(int).tolist()
    kept = [set(counted.kept(size).tolist()) for size in sizes]
    for smaller, larger in pairwise(kept):
        assert smaller <= larger
    for tokens in kept:
        assert table.required <= tokens
        assert tokens == table.needed(tokens) | tokens
    grown = counted.growths(counted.counts, sizes)
    assert grown == sorted(grown, reverse=True)


@pytest.mark.parametrize("kind", ["byte level", "SentencePiece with bytes"])
def test_a_text_grows_by_what_was_foretold(kind: str) -> None:
    """Each use of a merged token becomes two tokens, unless its parts are merged otherwise: about so many."""
    document, before, _ = whole(kind)
    counted = use(kind, CORPUS[0])
    size = counted.used - 60
    after = Tokenizer.from_str(json.dumps(cut_document(document, counted.kept(size))))
    lengths = [len(one.encode(CORPUS[0]).ids) for one in (before, after)]
    foretold = counted.growth(size)
    assert foretold > 20
    assert 0.8 * foretold <= lengths[1] - lengths[0] <= foretold


@pytest.mark.parametrize("kind", ["byte level", "SentencePiece with bytes", "SentencePiece without bytes"])
def test_the_last_merge_is_that_of_the_tokenizer(kind: str) -> None:
    """Without the merges that make a token its string is read as the two parts, by the tokenizer itself."""
    from tokenizers import models

    document, _, table = whole(kind)
    vocab, merges = document["model"]["vocab"], [tuple(pair) for pair in document["model"]["merges"]]
    names = {number: token for token, number in table.ids.items()}
    ranks = {pair: rank for rank, pair in enumerate(merges)}
    for token in [names[number] for number in sorted(table.parts)[::7]]:
        others = [pair for pair in merges if "".join(pair) != token]
        read = [piece.value for piece in models.BPE(vocab=vocab, merges=others).tokenize(token)]
        pair = last_merge(token, ranks)
        if len(models.BPE(vocab=vocab, merges=merges).tokenize(token)) > 1:
            assert pair is None
            continue
        assert list(pair) == read


@pytest.mark.parametrize("kind", KINDS)
def test_tokens_that_are_predicted_stay_before_others_never_met(kind: str) -> None:
    """Probabilities rank what a count cannot: other text needs fewer tokens that are gone."""
    _, _, table = whole(kind)
    counted, other = use(kind, CORPUS[0]), use(kind, CORPUS[1])
    assert (replace(counted, likely=np.zeros(ROWS)).kept(counted.used) == counted.kept(counted.used)).all()
    likely = replace(counted, likely=other.counts / other.counts.sum())
    size = (counted.used + len(table.ids)) // 2

    def lacking(kept: Any) -> int:
        return int(other.counts[np.setdiff1d(np.arange(ROWS), kept)].sum())

    assert lacking(likely.kept(size)) < lacking(counted.kept(size))
    every = likely.without_unused().kept(counted.used)
    assert every.tolist() == sorted(table.needed(np.flatnonzero(counted.counts).tolist()))


def test_rows_without_a_token_leave_first() -> None:
    _, _, table = whole("byte level")
    counted = use("byte level", CORPUS[0])
    empty = ROWS - len(table.ids)
    assert empty > 0
    assert counted.kept(ROWS - empty).tolist() == sorted(table.ids.values())


def test_listed_tokens_bring_what_they_need() -> None:
    document, before, table = whole("byte level")
    token = max(table.parts)
    kept = listed(table, [token])
    assert {token, *table.parts[token], *table.required} <= set(kept.tolist())
    after = Tokenizer.from_str(json.dumps(cut_document(document, kept)))
    text = before.decode([token])
    assert after.decode(after.encode(text).ids) == text
    with pytest.raises(ValueError, match=f"no token of id {ROWS}"):
        listed(table, [ROWS])


def test_ids_in_configurations_follow() -> None:
    config = {
        "vocab_size": 10, "eos_token_id": [3, 7], "pad_token_id": None, "image_token_index": 9,
        "text_config": {"vocab_size": 10, "bos_token_id": 3, "sep_token_id": -1}, "suppress_tokens": [7],
        "hidden_size": 10,
    }  # fmt: skip
    new = numbers(np.array([0, 3, 7, 9]))
    assert ids_in(config, 10) == {3, 7, 9}
    assert renumbered(config, new, 10) == {
        "vocab_size": 4, "eos_token_id": [1, 2], "pad_token_id": None, "image_token_index": 3,
        "text_config": {"vocab_size": 4, "bos_token_id": 1, "sep_token_id": -1}, "suppress_tokens": [2],
        "hidden_size": 10,
    }  # fmt: skip
    with pytest.raises(ValueError, match="eos_token_id is 3, a token that would be removed"):
        renumbered(config, numbers(np.array([0, 7, 9])), 10)


BAD: dict[str, tuple[dict[str, Any], str]] = {
    "no model": ({}, "it has no model"),
    "a kind": ({"model": {"type": "WordLevel", "vocab": {"a": 0}}}, "'WordLevel'; BPE, Unigram, WordPiece"),
    "an id twice": ({"model": {"type": "WordPiece", "vocab": {"a": 0, "b": 0}}}, "have one id, 0"),
    "beyond": ({"model": {"type": "WordPiece", "vocab": {"a": 9}}}, "ids up to 9, and the embedding has 4"),
    "no number": ({"model": {"type": "WordPiece", "vocab": {"a": "x"}}}, "has the id x"),
    "a merge": ({"model": {"type": "BPE", "vocab": {"a": 0}, "merges": ["a b c"]}}, "no pair of tokens"),
    "a part": ({"model": {"type": "BPE", "vocab": {"a": 0}, "merges": ["a a"]}}, "need the token 'aa'"),
    "suffixes": (
        {"model": {"type": "BPE", "vocab": {"a": 0}, "merges": [], "end_of_word_suffix": "</w>"}},
        "end_of_word_suffix",
    ),
    "pieces": ({"model": {"type": "Unigram", "vocab": [["a", 0], ["a", 1]]}}, "has a piece twice"),
    "unknown": ({"model": {"type": "Unigram", "vocab": [["a", 0]], "unk_id": 4}}, "unk_id is 4"),
    "a processor": (
        {"model": {"type": "WordPiece", "vocab": {"a": 0}}, "post_processor": {"type": "Own"}},
        "post-processor is of the kind 'Own'",
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_what_cannot_be_cut_is_refused(case: str) -> None:
    document, message = BAD[case]
    with pytest.raises(ValueError, match=message):
        TokenTable.of(document, 4)


def test_rows_are_those_of_the_ids_of_stock_tokenizers() -> None:
    kept, whole = np.array([0, 2, 5]), {"a": 0, "b": 2, "c": 5, "d": 3}
    check_rows(whole, {"a": 0, "b": 1, "c": 2, "new": 3}, kept)
    for wrong in ({"a": 1}, {"b": 2}, {"c": 3}):
        with pytest.raises(ValueError, match=r"has row \d, not that of its id"):
            check_rows(whole, wrong, kept)
