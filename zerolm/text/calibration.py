"""Calibration tokens of a checkpoint: of a text by its own tokenizer, or random ones."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Final

import torch
from torch import Tensor
from torch.nn import functional

from zerolm.checkpoints import Checkpoint
from zerolm.checkpoints.many_scripts import PAGE
from zerolm.checkpoints.sentences import longest_of
from zerolm.io.brief import one_line
from zerolm.networks.opener import is_decoder, stock_tokenizer
from zerolm.settings.domains import domains_of
from zerolm.text.defaults import LENGTH, RANDOM, SEQUENCES
from zerolm.text.documents import Text, read_text, whole_text
from zerolm.text.encoding import chat_renderer
from zerolm.text.pairs import sentences_of
from zerolm.text.record_texts import Render
from zerolm.text.tokens import Tokens, line_tokens, padded_lines, random_tokens, running_tokens

PAGE_LENGTH: Final = 64
PADDING: Final = 2
"""Positions that some classes leave to padding: they count from behind it."""


def tokens_of(
    checkpoint: Checkpoint, text: str, *, sequences: int = SEQUENCES, length: int = LENGTH, seed: int = 0
) -> Tokens:
    """Return calibration tokens from a text file, or sampled at random where ``text`` is ``random``.

    A decoder reads running text, an encoder one line a sequence. Of texts of several domains, which may be
    folders (``domains_of``), each gives an equal number of sequences, one text after another. ``ValueError``
    where the text or the folder's tokenizer is of no use.
    """
    named = tokens_by_domain(checkpoint, text, sequences=sequences, length=length, seed=seed)
    return named[""] if "" in named else joined(named)


def tokens_by_domain(
    checkpoint: Checkpoint, text: str, *, sequences: int = SEQUENCES, length: int = LENGTH, seed: int = 0
) -> dict[str, Tokens]:
    """Return the tokens of each domain of a text (``tokens_of``) by its name; of one text by an empty one."""
    domains, length = domains_of(text), longest_line(checkpoint, length)
    read = whole_text if domains else read_text
    return {
        name: _tokens_of(checkpoint, each, read, sequences, length, seed)
        for name, each in (domains or {"": text}).items()
    }


def _tokens_of(
    checkpoint: Checkpoint,
    text: str,
    read: Callable[[Path, Render], Text],
    sequences: int,
    length: int,
    seed: int,
) -> Tokens:
    if text == RANDOM:
        return random_tokens(
            checkpoint.layout.vocab, sequences, length, special=_special(checkpoint), seed=seed
        )
    tokenizer = stock_tokenizer(checkpoint.folder)
    content = read(Path(text), chat_renderer(tokenizer))
    make = running_tokens if is_decoder(checkpoint) else partial(line_tokens, prompt=checkpoint.prompt)
    if not is_decoder(checkpoint):
        content = replace(content, content="\n".join(sentences_of(text, content.content)))
    with one_line(f"the text {text!r} with the tokenizer of {str(checkpoint.folder)!r}"):
        tokens = make(content, tokenizer, sequences, length)
    return _within(checkpoint, tokens)


def joined(domains: Mapping[str, Tokens]) -> Tokens:
    """Return the tokens of several domains, one after another; padded where one of them is."""
    parts = list(domains.values())
    named = "".join(f"{name}={tokens.text or tokens.seed}," for name, tokens in domains.items())
    digest = hashlib.sha256(named.encode()).hexdigest()
    longest = max(tokens.ids.shape[1] for tokens in parts)
    if all(tokens.mask is None and tokens.ids.shape[1] == longest for tokens in parts):
        return Tokens(torch.cat([tokens.ids for tokens in parts]), text=digest)
    rows = [functional.pad(tokens.ids, (0, longest - tokens.ids.shape[1])) for tokens in parts]
    masks = [torch.ones_like(tokens.ids) if tokens.mask is None else tokens.mask for tokens in parts]
    padded = [functional.pad(mask, (0, longest - mask.shape[1])) for mask in masks]
    return Tokens(torch.cat(rows), torch.cat(padded), digest)


def sentence_tokens(checkpoint: Checkpoint, lines: Sequence[str], *, length: int = LENGTH) -> Tokens:
    """Return the tokens of sentences, as an encoder reads them."""
    tokenizer = stock_tokenizer(checkpoint.folder)
    with one_line(f"sentences with the tokenizer of {str(checkpoint.folder)!r}"):
        tokens = padded_lines(lines, tokenizer, longest_line(checkpoint, length), prompt=checkpoint.prompt)
    return _within(checkpoint, tokens)


def _within(checkpoint: Checkpoint, tokens: Tokens) -> Tokens:
    """Return tokens; ``ValueError`` for one that the model does not have."""
    if int(tokens.ids.max()) >= checkpoint.layout.vocab:
        raise ValueError(
            f"the tokenizer of {str(checkpoint.folder)!r} gives token {int(tokens.ids.max())}, but the model "
            f"has {checkpoint.layout.vocab}"
        )
    return tokens


def page_tokens(checkpoint: Checkpoint, length: int = PAGE_LENGTH) -> Tensor:
    """Return the first tokens of a page in many scripts and some of its middle, (2, length), for proofs.

    Fewer where the model has fewer positions. Random ones where no tokenizer fits the model.
    """
    vocab, positions = checkpoint.layout.vocab, checkpoint.layout.sizes.get("positions", length + PADDING)
    length = max(1, min(length, positions - PADDING))
    try:
        tokenizer = stock_tokenizer(checkpoint.folder)
        with one_line("a page"):
            ids = tokenizer(PAGE, verbose=False)["input_ids"]
    except ValueError:
        ids = []
    if len(ids) < length or max(ids) >= vocab:
        return torch.randint(vocab, (2, length), generator=torch.Generator().manual_seed(0))
    middle = (len(ids) - length) // 2
    return torch.tensor([ids[:length], ids[middle : middle + length]])


def longest_line(checkpoint: Checkpoint, length: int) -> int:
    """Return the most tokens of a text that a model reads: positions and modules limit them."""
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
