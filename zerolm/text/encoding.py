"""Text to tokens: tokenizers that are trained on a text, and the one place where any tokenizer is asked."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import islice
from typing import Any, Final

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerBase, PreTrainedTokenizerFast

from zerolm.text.documents import Document, documents
from zerolm.text.record_texts import Render

MASK: Final = "[MASK]"
LEAST_IDS: Final = 257
"""The ids that a byte-level tokenizer has at least: the mask and every byte."""
TRAINED_ON: Final = 16 << 20
"""Characters of a text that a tokenizer is trained on, at most."""
PIECE: Final = 1 << 16
"""Characters that a tokenizer is given at a time: it takes many times their memory."""
PAUSE: Final = re.compile(r"\n(?=\S)")
"""Where a text may be divided: never within spaces or empty lines."""
PAUSES: Final = 256
"""Places at which dividing a text is tried."""
CONTEXT: Final = 256
"""Characters on each side of a place that show whether a tokenizer divides a text there, too."""
PROBE: Final = "a"
"""A text whose tokens show what a tokenizer puts before and behind a text."""


def encoded(tokenizer: PreTrainedTokenizerBase, texts: Sequence[str]) -> list[list[int]]:
    """Return the ids of each text, without what the tokenizer puts around a text.

    A long text is tokenized in parts where these have the same tokens: as a whole it takes much more memory.
    """
    if all(len(text) <= PIECE for text in texts):
        return _encoded(tokenizer, texts)
    return [
        [
            token
            for part in parted(text, PIECE, partial(_divides, tokenizer, text))
            for token in _encoded(tokenizer, [part])[0]
        ]
        for text in texts
    ]


def _encoded(tokenizer: PreTrainedTokenizerBase, texts: Sequence[str]) -> list[list[int]]:
    ids: list[list[int]] = tokenizer(list(texts), add_special_tokens=False, verbose=False)["input_ids"]
    return ids


def _divides(tokenizer: PreTrainedTokenizerBase, text: str, place: int) -> bool:
    """Return whether no token of a text spans a place, and none depends on what is on its other side."""
    before, behind = text[max(0, place - CONTEXT) : place], text[place : place + CONTEXT]
    both, first, second = _encoded(tokenizer, [before + behind, before, behind])
    return both == first + second


def encoded_line(tokenizer: PreTrainedTokenizerBase, line: str, most: int) -> list[int]:
    """Return the ids of a line with what the tokenizer puts around it, cut to at most ``most``."""
    ids: list[int] = tokenizer(line, truncation=True, max_length=most, verbose=False)["input_ids"]
    return ids


def chat_renderer(tokenizer: PreTrainedTokenizerBase) -> Render:
    """A function that renders messages by the chat template of a tokenizer.

    It raises ``ValueError`` where there is no template, or the template refuses the messages.
    """

    def render(messages: Sequence[Mapping[str, Any]]) -> str:
        if not tokenizer.chat_template:
            raise ValueError(
                "the messages need a chat template, and the tokenizer of the model has none: add its "
                "chat_template.jinja to the folder, or name a plain-text --text-field"
            )
        try:
            return str(tokenizer.apply_chat_template([*map(dict, messages)], tokenize=False))
        except Exception as error:  # templates raise what they will
            reason = " ".join(str(error).split())[:300] or type(error).__name__
            raise ValueError(f"the chat template refuses the messages: {reason}") from None

    return render


def document_ids(
    tokenizer: PreTrainedTokenizerBase, texts: Sequence[Document], between: Sequence[int]
) -> list[list[int]]:
    """Return the ids of each document after ``between``.

    A rendered chat has the marks of its template: only what the tokenizer begins any text with stands before
    it, and that once.
    """
    begins = list(edges(tokenizer)[0])
    rows = encoded(tokenizer, [text.content for text in texts])
    before = [
        ([] if row[: len(begins)] == begins else begins) if text.is_chat else list(between)
        for text, row in zip(texts, rows, strict=True)
    ]
    return [first + row for first, row in zip(before, rows, strict=True)]


def running_ids(tokenizer: PreTrainedTokenizerBase, texts: Sequence[Document]) -> list[int]:
    """Return the ids of documents one after another, without what stands before the first."""
    between = separator(tokenizer)
    rows = document_ids(tokenizer, texts, between)
    before = list(edges(tokenizer)[0]) if texts[0].is_chat else between
    return [*rows[0][len(before) :], *(token for row in rows[1:] for token in row)]


def around(tokenizer: PreTrainedTokenizerBase) -> list[int]:
    """Return the tokens that a tokenizer adds around any text (a BOS, [CLS] and [SEP], an EOS, or none)."""
    return [int(token) for token in tokenizer("", verbose=False)["input_ids"]]


def edges(tokenizer: PreTrainedTokenizerBase) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the tokens that a tokenizer adds before any text (a BOS, [CLS], or none) and after it ([SEP],
    EOS).

    A text that is not empty shows which is which: on an empty one BOS and EOS look alike.
    """
    both = around(tokenizer)
    inside = encoded(tokenizer, [PROBE])[0]
    whole = [int(token) for token in tokenizer(PROBE, verbose=False)["input_ids"]]
    places = (place for place in range(len(both) + 1) if both[:place] + inside + both[place:] == whole)
    begins = next(places, None) if inside else None
    if begins is None:  # the probe is no text of this tokenizer
        begins = int(bool(both) and (len(both) > 1 or both[0] != tokenizer.eos_token_id))
    return tuple(both[:begins]), tuple(both[begins:])


def separator(tokenizer: PreTrainedTokenizerBase, vocabulary: int | None = None) -> list[int]:
    """Return the tokens between documents: those that begin a text, else those that end one, else none.

    An end that is not among the ``vocabulary`` tokens of the model is left out.
    """
    end = tokenizer.eos_token_id
    has_end = isinstance(end, int) and (vocabulary is None or end < vocabulary)
    return list(edges(tokenizer)[0]) or ([int(end)] if has_end else [])


def parted(
    text: str, length: int = PIECE, divides: Callable[[int], bool] = lambda place: True
) -> Iterator[str]:
    """Yield a text in parts of about ``length`` characters up to ends of lines where ``divides`` is true."""
    start = 0
    while len(text) - start > length:
        ends = (pause.end() for pause in islice(PAUSE.finditer(text, start + length), PAUSES))
        end = next(filter(divides, ends), None)
        if end is None:
            break
        yield text[start:end]
        start = end
    yield text[start:]


def pieces(content: str) -> Iterator[str]:
    return (content[start : start + PIECE] for start in range(0, len(content), PIECE))


def beginning(source: str) -> Iterator[str]:
    """Yield the documents of a text in pieces, 16 Mi characters at most."""
    remaining = TRAINED_ON
    for document in documents(source):
        content = document.content[:remaining]
        remaining -= len(content)
        yield from pieces(content)
        if not remaining:
            return


def trained_tokenizer(texts: Iterable[str], vocabulary: int) -> PreTrainedTokenizerBase:
    """Return a byte-level BPE trained on texts, of at most ``vocabulary`` ids; id 0 is the mask, ``MASK``.

    The same texts give the same tokenizer everywhere. ``ValueError`` below 257 ids.
    """
    if vocabulary < LEAST_IDS:
        raise ValueError(f"a vocabulary of {vocabulary} is too small; {LEAST_IDS} is the least")
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary,
        min_frequency=2,
        special_tokens=[MASK],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    stock: PreTrainedTokenizerBase = PreTrainedTokenizerFast(  # type: ignore[no-untyped-call]
        tokenizer_object=tokenizer,
        mask_token=MASK,
        split_special_tokens=True,  # a text that says [MASK] masks nothing
    )
    return stock


def tokenizer_of(source: str, vocabulary: int) -> PreTrainedTokenizerBase:
    """Return a byte-level BPE of at most ``vocabulary`` ids, trained on the first 16 Mi characters of a
    text."""
    return trained_tokenizer(beginning(source), vocabulary)
