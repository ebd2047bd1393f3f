"""Whether llama.cpp reads a text as the same tokens as a tokenizer does."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterable
from contextlib import redirect_stderr
from io import StringIO
from itertools import zip_longest
from pathlib import Path
from typing import Any, Final

from zerolm.checkpoints.many_scripts import PAGE, without_marks


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
"""The key of a file that says whether letters lose their accents."""


def loses_accents(opened: Any) -> bool:
    """Return whether llama.cpp takes the accents of an opened file's text away."""
    return bool(opened.metadata.get(BARE) == "true")


def compare_tokens(opened: Any, encode: Callable[[str], list[int]], added: Iterable[tuple[str, int]]) -> None:
    """Raise ``ValueError`` where a page in many scripts, or an ``added`` token by itself, has other ids.

    Where accents are lost the page is ``without_marks``, which llama.cpp reads in its own way then.
    """
    page = without_marks(PAGE) if loses_accents(opened) else PAGE
    theirs = encode(page)
    ours = opened.tokenize(page.encode(), add_bos=True, special=True)
    if ours != theirs:
        place = next(i for i, pair in enumerate(zip_longest(ours, theirs)) if pair[0] != pair[1])
        raise ValueError(
            f"llama.cpp reads a page of text as other tokens than the tokenizer, from the token {place} on: "
            f"{ours[place : place + 4]} instead of {theirs[place : place + 4]}"
        )
    for text, token in added:
        read = opened.tokenize(text.encode(), add_bos=False, special=True)
        if read != [token]:
            raise ValueError(f"llama.cpp reads the added token {text!r} as {read} instead of {token}")


def check_same_tokens(file: Path, tokenizer: Path) -> None:
    """Raise ``ValueError`` where the vocabulary of a file and a ``tokenizer.json`` are not the same."""
    require()
    from tokenizers import Tokenizer

    try:
        ours: Any = Tokenizer.from_file(str(tokenizer))
    except BaseException as error:  # a panic of the library is not even an Exception
        if isinstance(error, KeyboardInterrupt | SystemExit):
            raise
        raise ValueError(f"its tokenizer is not sound: {' '.join(str(error).split())[:200]}") from None
    opened = opened_by_llama_cpp(file, vocab_only=True)
    try:
        added = ((token.content, index) for index, token in ours.get_added_tokens_decoder().items())
        compare_tokens(opened, lambda text: list(ours.encode(text).ids), added)
    finally:
        opened.close()
