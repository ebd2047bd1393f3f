"""Whether llama.cpp reads a text as the same tokens as a tokenizer does."""

from __future__ import annotations

import importlib.util
import unicodedata
from collections.abc import Callable, Iterable, Sequence
from contextlib import redirect_stderr
from dataclasses import dataclass
from functools import partial
from io import StringIO
from itertools import zip_longest
from pathlib import Path
from typing import Any, Final

from zerolm.checkpoints.gguf.words import WORDS
from zerolm.checkpoints.many_scripts import plain_letters, strings, without_marks
from zerolm.settings import shown


def has_llama_cpp() -> bool:
    """Return whether llama-cpp-python is installed."""
    return importlib.util.find_spec("llama_cpp") is not None


def require() -> None:
    """``ModuleNotFoundError`` where llama-cpp-python is not installed."""
    if not has_llama_cpp():
        raise ModuleNotFoundError("a gguf file is checked with llama-cpp-python: pip install 'zerolm[gguf]'")


def opened_by_llama_cpp(file: Path, **settings: Any) -> Any:
    """Return a file as llama.cpp opens it, with these settings; ``ValueError`` where it does not."""
    require()
    from llama_cpp import Llama

    try:
        with redirect_stderr(StringIO()):  # it tells of its padding even where it is told not to
            return Llama(str(file), verbose=False, **settings)
    except Exception as error:  # also those of the parser of chat templates
        reason = " ".join(str(error).split())[:300]
        raise ValueError(f"llama.cpp does not open {str(file)!r}: {reason}") from None


BARE: Final = "tokenizer.ggml.normalizer.strip_accents"
"""The key of a file for whether letters lose their accents."""
MOST_ADDED: Final = 1000
"""Added tokens that are compared, evenly from all."""


@dataclass(frozen=True)
class Difference:
    """A step that llama.cpp leaves out or does in its own way.

    ``note`` names the texts whose tokens may differ; ``spared`` returns a text without what depends on it.
    """

    note: str
    spared: Callable[[str], str]


ACCENTS: Final = Difference(
    "llama.cpp takes accents away in its own way from Hangul and from Indic vowel signs, whose tokens may be "
    "others than the tokenizer's",
    without_marks,
)
NORMALISATION: Final = Difference(
    "llama.cpp does not normalise text to NFC: tokens are the tokenizer's for text that is NFC already",
    partial(unicodedata.normalize, "NFC"),
)
LETTERS: Final = Difference(
    "llama.cpp splits words at combining marks, and not before capital letters beyond ASCII: such words may "
    "have other tokens than the tokenizer's",
    plain_letters,
)
FRONT: Final = Difference(
    "llama.cpp puts a space also before a text that begins with one, and behind special tokens in a text",
    lambda text: text.lstrip(" "),
)


def differences(opened: Any, steps: Sequence[str] = ()) -> tuple[Difference, ...]:
    """The differences between llama.cpp, with an opened file, and a tokenizer of these ``steps``.

    These are the types of normalizers and pre-tokenizers, as ``tokenizer.json`` calls them.
    """
    metadata = opened.metadata
    coarse = {name for words in WORDS if words.coarse for name in words.names}
    present = {
        ACCENTS: metadata.get(BARE) == "true",
        NORMALISATION: "NFC" in steps,
        LETTERS: metadata.get("tokenizer.ggml.pre") in coarse,
        FRONT: "Metaspace" in steps and metadata.get("tokenizer.ggml.add_space_prefix") == "true",
    }
    return tuple(difference for difference, is_there in present.items() if is_there)


def compare_tokens(
    opened: Any,
    encode: Callable[[str], list[int]],
    added: Iterable[tuple[str, int]],
    without: Iterable[Difference] = (),
    more: Iterable[str] = (),
) -> None:
    """Raise ``ValueError`` where a text in many scripts, one ``more``, or an ``added`` token has other ids.

    Texts are compared ``without`` what differences are known for.
    """
    rows, spared = list(added), tuple(without)
    for text in (*strings(), *more):
        for content, _ in rows if FRONT in spared else ():
            text = text.replace(content, "")
        for difference in spared:
            text = difference.spared(text)
        expected = encode(text)
        ids = opened.tokenize(text.encode(), add_bos=True, special=True)
        if ids != expected:
            place = next(i for i, pair in enumerate(zip_longest(ids, expected)) if pair[0] != pair[1])
            raise ValueError(
                f"llama.cpp reads {shown(text)} as other tokens than the tokenizer, from the token {place} "
                f"on: {ids[place : place + 4]} instead of {expected[place : place + 4]}"
            )
    for name, number in rows[:: 1 + len(rows) // MOST_ADDED]:
        read = opened.tokenize(name.encode(), add_bos=False, special=True)
        if read != [number]:
            raise ValueError(f"llama.cpp reads the added token {name!r} as {read} instead of {number}")


def check_same_tokens(file: Path, tokenizer: Path) -> None:
    """Raise ``ValueError`` where the vocabulary of a file and a ``tokenizer.json`` are not the same."""
    require()
    from tokenizers import Tokenizer

    try:
        reference: Any = Tokenizer.from_file(str(tokenizer))
    except BaseException as error:  # a panic of the library is not even an Exception
        if isinstance(error, KeyboardInterrupt | SystemExit):
            raise
        raise ValueError(f"its tokenizer is not sound: {' '.join(str(error).split())[:200]}") from None
    opened = opened_by_llama_cpp(file, vocab_only=True)
    try:
        added = ((token.content, index) for index, token in reference.get_added_tokens_decoder().items())
        compare_tokens(opened, lambda text: list(reference.encode(text).ids), added, differences(opened))
    finally:
        opened.close()
