"""Long texts are tokenized in parts, with the same tokens."""

from collections.abc import Callable
from functools import partial
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st
from made_tokenizers import CORPUS, byte_level, sentence_piece, unigram, word_piece
from tokenizers import Tokenizer
from transformers import PreTrainedTokenizerFast

from zerolm.text import encoding

KINDS = {
    "byte level": byte_level,
    "with spaces in front": sentence_piece,
    "without spaces in front": lambda: sentence_piece(in_front=False),
    "unigram": unigram,
    "word pieces": word_piece,
}
WORDS = st.sampled_from(
    ["def", " ", "\n", "\n\n", "    ", "word", "é", "漢", "x=1", "\t", "\r\n", "-" * 40, "<s>"]
)


def tokenizer_of(kind: str) -> PreTrainedTokenizerFast:
    make: Callable[[], str] = KINDS[kind]
    return PreTrainedTokenizerFast(tokenizer_object=Tokenizer.from_str(make()))  # type: ignore[no-untyped-call]


@pytest.mark.parametrize("kind", KINDS)
@given(texts=st.lists(st.lists(WORDS, max_size=400).map("".join), min_size=1, max_size=3))
def test_parts_have_the_tokens_of_the_whole(kind: str, texts: list[str]) -> None:
    tokenizer = tokenizer_of(kind)
    with patch.object(encoding, "PIECE", 64):
        rows = encoding.encoded(tokenizer, texts)
    assert rows == [tokenizer(text, add_special_tokens=False)["input_ids"] for text in texts]


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind not in ("with spaces in front", "unigram")])
def test_a_long_text_is_divided(kind: str) -> None:
    """Except by tokenizers that put a space in front of every text."""
    tokenizer, text = tokenizer_of(kind), 5 * CORPUS[2]
    parts = list(encoding.parted(text, 1024, partial(encoding._divides, tokenizer, text)))
    assert "".join(parts) == text
    assert max(map(len, parts)) < len(text) / 5
