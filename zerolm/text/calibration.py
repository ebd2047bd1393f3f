"""Calibration tokens of a checkpoint: of a text by its own tokenizer, or random ones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from zerolm.checkpoints import Checkpoint
from zerolm.checkpoints.sentences import longest_of
from zerolm.networks.opener import is_decoder, one_line, stock_tokenizer
from zerolm.text.defaults import LENGTH, RANDOM, SEQUENCES
from zerolm.text.documents import read_text
from zerolm.text.pairs import sentences_of
from zerolm.text.tokens import Tokens, line_tokens, padded_lines, random_tokens, running_tokens


def tokens_of(
    checkpoint: Checkpoint, text: str, *, sequences: int = SEQUENCES, length: int = LENGTH, seed: int = 0
) -> Tokens:
    """Return calibration tokens from a text file, or drawn at random where ``text`` is ``random``.

    A decoder reads running text, an encoder one line a sequence. ``ValueError`` where the text or the
    folder's tokenizer is of no use.
    """
    length = longest_line(checkpoint, length)
    if text == RANDOM:
        return random_tokens(
            checkpoint.layout.vocab, sequences, length, special=_special(checkpoint), seed=seed
        )
    content = read_text(Path(text))
    tokenizer = stock_tokenizer(checkpoint.folder)
    make = running_tokens if is_decoder(checkpoint) else line_tokens
    if not is_decoder(checkpoint):
        content = replace(content, content="\n".join(sentences_of(text, content.content)))
    with one_line(f"the text {text!r} with the tokenizer of {str(checkpoint.folder)!r}"):
        tokens = make(content, tokenizer, sequences, length)
    return _within(checkpoint, tokens)


def sentence_tokens(checkpoint: Checkpoint, lines: Sequence[str], *, length: int = LENGTH) -> Tokens:
    """Return the tokens of sentences, as an encoder reads them."""
    tokenizer = stock_tokenizer(checkpoint.folder)
    with one_line(f"sentences with the tokenizer of {str(checkpoint.folder)!r}"):
        tokens = padded_lines(lines, tokenizer, longest_line(checkpoint, length))
    return _within(checkpoint, tokens)


def _within(checkpoint: Checkpoint, tokens: Tokens) -> Tokens:
    """Return tokens; ``ValueError`` for one that the model does not have."""
    if int(tokens.ids.max()) >= checkpoint.layout.vocab:
        raise ValueError(
            f"the tokenizer of {str(checkpoint.folder)!r} gives token {int(tokens.ids.max())}, but the model "
            f"has {checkpoint.layout.vocab}"
        )
    return tokens


def longest_line(checkpoint: Checkpoint, length: int) -> int:
    """Return at most so many tokens as a model reads of a text: it has positions, and modules may cut."""
    longest = [length, checkpoint.layout.sizes.get("positions", length)]
    if checkpoint.sentences:
        longest += [longest_of(checkpoint.folder) or int(stock_tokenizer(checkpoint.folder).model_max_length)]
    return min(longest)


def _special(checkpoint: Checkpoint) -> list[int]:
    """Return tokens that no text holds; none are known where there is no tokenizer."""
    try:
        return list(stock_tokenizer(checkpoint.folder).all_special_ids)
    except ValueError:
        return []
