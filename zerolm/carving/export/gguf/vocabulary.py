"""The kinds of tokenizers that are written as GGUF: byte-level BPE, SentencePiece's BPE, and WordPiece."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from tokenizers import models

from zerolm.checkpoints.gguf.words import DIGITS, GPT2, SPACE, SPLIT_PATTERNS

WORD_PIECE: Final = "WordPiece"
WORD_PIECES: Final = "bert"
"""What GGUF calls it."""


@dataclass(frozen=True)
class Pieces:
    """``kind`` is GGUF's tokenizer model, ``words`` its name of the way text is cut into words.

    ``gpt2``: ``merges`` from the first, ``scores`` empty. ``llama``: ``scores`` of each token (those that are
    merged from others: the highest is merged first), ``merges`` empty; ``space`` says whether a text gets a
    space in front. ``bert``: tokens that begin a word have a space in front; ``lower`` and ``bare`` say
    whether letters become small ones, and lose their accents, as an encoder's tokenizer has it.
    """

    kind: str
    words: str
    tokens: tuple[str, ...]
    merges: tuple[str, ...] = ()
    scores: tuple[float, ...] = ()
    space: bool = False
    lower: bool | None = None
    bare: bool | None = None


def pieces_of(document: Mapping[str, Any], tokens: tuple[str, ...]) -> Pieces:
    """Return what a ``tokenizer.json`` has whose kind ``check_model`` has passed."""
    model = document["model"]
    if model["type"] == WORD_PIECE:
        return word_piece(document, tokens)
    return (sentence_piece if model.get("byte_fallback") else byte_level)(document, tokens)


def byte_level(document: Mapping[str, Any], tokens: tuple[str, ...]) -> Pieces:
    """Return byte-level BPE (GPT-2, Llama 3) from a ``tokenizer.json``; ``ValueError`` for another."""
    model = document["model"]
    if document["normalizer"] is not None:
        raise ValueError(f"gguf has no byte-level BPE with the normalizer {document['normalizer']['type']}")
    words = _words(document["pre_tokenizer"], bool(model.get("ignore_merges")))
    merges = tuple(f"{left} {right}" for left, right in model["merges"])
    return Pieces("gpt2", words, tokens, merges)


def sentence_piece(document: Mapping[str, Any], tokens: tuple[str, ...]) -> Pieces:
    """Return SentencePiece's BPE with bytes for unknown characters, as Llama 2 and Mistral have it.

    A reader of GGUF merges whatever makes a token, by the score of the token; a ``tokenizer.json`` merges its
    pairs, by their rank. Both do the same if the pairs that make a token stand together, and if a pair that
    is left out never meets: the token comes of its own text by another pair. Both are checked. A text gets a
    space in front where the tokenizer puts one; a reader does so also before a text that begins with a space,
    and after each special token within a text, as SentencePiece itself does.
    """
    model = document["model"]
    space = _space(document["normalizer"], document["pre_tokenizer"])
    lacking = [f"<0x{byte:02X}>" for byte in range(256) if f"<0x{byte:02X}>" not in model["vocab"]]
    if lacking or model.get("ignore_merges"):
        odd = f"without {lacking[0]}" if lacking else "with ignore_merges"
        raise ValueError(f"gguf has SentencePiece tokenizers with all bytes and merges, not one {odd}")
    _check_pairs(model, {token["content"] for token in document["added_tokens"]})
    order = _order(model)
    scores = tuple(float(-order.get(token, len(order))) for token in tokens)
    return Pieces("llama", "default", tokens, scores=scores, space=space)


def _order(model: Mapping[str, Any]) -> dict[str, int]:
    """Return the place of each merged token among them, in the order of their merges."""
    order: dict[str, int] = {}
    for left, right in model["merges"]:
        token = left + right
        if order.setdefault(token, len(order)) != len(order) - 1:
            raise ValueError(
                f"gguf merges by tokens, and the merges that make {token!r} do not stand together"
            )
    return order


def _check_pairs(model: Mapping[str, Any], added: set[str]) -> None:
    """Refuse two tokens that meet and make a third one, though the tokenizer leaves them apart."""
    pairs = {(left, right) for left, right in model["merges"]}
    merging = models.BPE(
        vocab=dict(model["vocab"]), merges=[(left, right) for left, right in model["merges"]]
    )
    plain = model["vocab"].keys() - added
    for token in plain:
        for cut in range(1, len(token)):
            pair = token[:cut], token[cut:]
            if pair not in pairs and plain.issuperset(pair) and len(merging.tokenize(token)) > 1:
                raise ValueError(
                    f"gguf merges whatever makes a token, and the tokenizer does not merge {pair}"
                )


def word_piece(document: Mapping[str, Any], tokens: tuple[str, ...]) -> Pieces:
    """Return the WordPiece of a BERT; ``ValueError`` for one that cuts text into words otherwise.

    Readers know the pieces that begin a word by a space in front, and those that go on by none. They do not
    leave a word unread for its length alone.
    """
    model, normalizer = document["model"], document["normalizer"] or {}
    splitting = (document["pre_tokenizer"] or {}).get("type")
    cleans = bool(normalizer.get("clean_text")) and bool(normalizer.get("handle_chinese_chars"))
    if normalizer.get("type") != "BertNormalizer" or splitting != "BertPreTokenizer" or not cleans:
        raise ValueError("gguf has WordPiece with the words of BERT, and this one cuts text into others")
    go_on = model.get("continuing_subword_prefix")
    if not isinstance(go_on, str) or not go_on:
        raise ValueError("gguf has WordPiece whose pieces within a word have a prefix, and this one has none")
    special = {token["content"] for token in document["added_tokens"]}
    lower = bool(normalizer.get("lowercase"))
    bare = lower if normalizer.get("strip_accents") is None else bool(normalizer["strip_accents"])
    pieces = tuple(token if token in special else _spaced(token, go_on) for token in tokens)
    if len(set(pieces)) < len(pieces):
        raise ValueError(f"gguf tells pieces that begin a word by {SPACE}, and two of these are one then")
    return Pieces(WORD_PIECES, "default", pieces, lower=lower, bare=bare)


def _spaced(token: str, go_on: str) -> str:
    """Return a piece with a space in front where it begins a word, without its prefix where it goes on."""
    return token.removeprefix(go_on) if token.startswith(go_on) else SPACE + token


def check_model(model: Mapping[str, Any]) -> None:
    """Refuse all but plain BPE and WordPiece."""
    if model.get("type") == WORD_PIECE:
        return
    odd = [name for name in ("dropout", "continuing_subword_prefix", "end_of_word_suffix") if model.get(name)]
    if model.get("type") != "BPE" or odd:
        kind = f"{model.get('type')} with {odd[0]}" if odd else model.get("type")
        raise ValueError(
            f"gguf is written with byte-level BPE, SentencePiece's BPE or WordPiece, not with {kind}"
        )


def _words(splitting: Any, whole_words: bool) -> str:
    """Return GGUF's name of a pre-tokenizer of byte-level BPE."""
    steps = _steps(splitting, "pretokenizers")
    match steps:
        case [{"type": "ByteLevel", "add_prefix_space": False, "use_regex": True}] if not whole_words:
            return GPT2
        case [
            {"type": "Digits", "individual_digits": True},
            {"type": "ByteLevel", "add_prefix_space": False, "use_regex": True},
        ] if not whole_words:
            return DIGITS
        case [
            {"type": "Split", "pattern": {"Regex": str(expression)}, "behavior": "Isolated", "invert": False},
            {"type": "ByteLevel", "add_prefix_space": False, "use_regex": False},
        ] if (expression, whole_words) in SPLIT_PATTERNS:
            return SPLIT_PATTERNS[expression, whole_words]
    raise ValueError(
        "gguf is written where text is cut into words as GPT-2, SmolLM, Llama 3 or Qwen 2 do it, and this "
        f"tokenizer does it otherwise ({', '.join(str(step.get('type')) for step in steps) or 'not at all'})"
    )


def _space(normalizer: Any, splitting: Any) -> bool:
    """Whether a SentencePiece tokenizer puts a space before a text."""
    swap = {"type": "Replace", "pattern": {"String": " "}, "content": SPACE}
    match _steps(normalizer, "normalizers"), splitting:
        case [{"type": "Prepend", "prepend": "▁"}, last], None if last == swap:
            return True
        case [only], None if only == swap:
            return False
        case [], {"type": "Metaspace", "replacement": "▁", "split": False, "prepend_scheme": str(scheme)}:
            return scheme != "never"
    raise ValueError("gguf has SentencePiece tokenizers that only turn spaces into ▁, and this one does more")


def _steps(part: Any, name: str) -> list[dict[str, Any]]:
    """Return the parts of a sequence, or the one that stands alone."""
    if part is None:
        return []
    return list(part[name]) if part["type"] == "Sequence" else [part]
