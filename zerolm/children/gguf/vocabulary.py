"""The kinds of tokenizers that can be written as GGUF: byte-level BPE, SentencePiece's BPE, and WordPiece."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from tokenizers import models

from zerolm.checkpoints.gguf.words import SPACE, WORDS, Words, parts_of, words_of

NFC: Final = "NFC"
WORD_PIECE: Final = "WordPiece"
WORD_PIECES: Final = "bert"
"""GGUF's name for WordPiece."""
MOST_DOUBTFUL: Final = 5000


@dataclass(frozen=True)
class Pieces:
    """Tokens of GGUF's tokenizer model ``kind``; ``words`` is its name for the splitting of text into words.

    ``doubtful`` are texts on which readers have to be compared with the tokenizer.

    - ``gpt2``: ``merges`` in order of priority, ``scores`` empty. - ``llama``: ``scores`` of each token (of
    merges the highest comes first), ``merges`` empty; ``space``: whether a space is put before a text. -
    ``bert``: tokens that begin a word have a space in front; ``lower`` and ``bare``: whether letters are
    lowercased and stripped of accents, as in an encoder's tokenizer.
    """

    kind: str
    words: str
    tokens: tuple[str, ...]
    merges: tuple[str, ...] = ()
    scores: tuple[float, ...] = ()
    space: bool = False
    lower: bool | None = None
    bare: bool | None = None
    doubtful: tuple[str, ...] = ()

    @property
    def title(self) -> str:
        """The kind of tokenizer in words; for byte-level BPE llama.cpp's name of the splitting into words."""
        return {"llama": "SentencePiece's BPE", WORD_PIECES: "WordPiece"}.get(self.kind, self.words)


def pieces_of(document: Mapping[str, Any], tokens: tuple[str, ...]) -> Pieces:
    """Return the pieces of a ``tokenizer.json`` whose kind has passed ``check_model``."""
    model = document["model"]
    if model["type"] == WORD_PIECE:
        return word_piece(document, tokens)
    return (sentence_piece if model.get("byte_fallback") else byte_level)(document, tokens)


def byte_level(document: Mapping[str, Any], tokens: tuple[str, ...]) -> Pieces:
    """Return byte-level BPE (GPT-2, Llama 3, Qwen) from a ``tokenizer.json``; else ``ValueError``.

    Readers do not normalise text: the only normalizer allowed is NFC, and a note reports it.
    """
    model = document["model"]
    kinds = step_types(document["normalizer"], "normalizers")
    if not set(kinds) <= {NFC}:
        odd = next(kind for kind in kinds if kind != NFC)
        raise ValueError(f"gguf has no byte-level BPE with the normalizer {odd}; none and NFC are written")
    words = _words(document["pre_tokenizer"], model, {each["content"] for each in document["added_tokens"]})
    merges = tuple(f"{left} {right}" for left, right in model["merges"])
    return Pieces("gpt2", words.name, tokens, merges)


def step_types(part: Any, name: str) -> list[str]:
    """Return the types of the steps of a normalizer or pre-tokenizer."""
    return [str(step.get("type")) for step in parts_of(part, name)]


def sentence_piece(document: Mapping[str, Any], tokens: tuple[str, ...]) -> Pieces:
    """Return SentencePiece's BPE with bytes for unknown characters, as in Llama 2, Mistral and Gemma.

    A reader of GGUF merges any pair that makes a token, by the score of the token; a ``tokenizer.json``
    merges its listed pairs, by their rank. A token's score is the rank of its first pair. Both agree if an
    unlisted pair never meets, because its text merges to the token by another pair. That is checked. Where
    the pairs of a token are not consecutive, other merges may come between: such texts are ``doubtful`` and
    have to be compared.

    A text gets a space in front where the tokenizer puts one. A reader does so also before a text that begins
    with a space, and after each special token within a text, as SentencePiece itself does.
    """
    model = document["model"]
    space = _space(document["normalizer"], document["pre_tokenizer"])
    lacking = [f"<0x{byte:02X}>" for byte in range(256) if not _has_byte(byte, model["vocab"])]
    if lacking or model.get("ignore_merges"):
        odd = f"without {lacking[0]}" if lacking else "with ignore_merges"
        raise ValueError(f"gguf has SentencePiece tokenizers with all bytes and merges, not one {odd}")
    _check_pairs(model, {token["content"] for token in document["added_tokens"]})
    order: dict[str, int] = {}
    for left, right in model["merges"]:
        order.setdefault(left + right, len(order))
    scores = tuple(float(-order.get(token, len(order))) for token in tokens)
    return Pieces("llama", "default", tokens, scores=scores, space=space, doubtful=_doubtful(model))


def _doubtful(model: Mapping[str, Any]) -> tuple[str, ...]:
    """Return texts where a token's pair meets a pair ranked before it, but behind the token's first pair.

    Raises ``ValueError`` where there are too many to compare.
    """
    ranks = [(left, right) for left, right in model["merges"]]
    first: dict[str, int] = {}
    behind: dict[str, list[int]] = {}
    before: dict[str, list[int]] = {}
    for rank, (left, right) in enumerate(ranks):
        first.setdefault(left + right, rank)
        behind.setdefault(left, []).append(rank)
        before.setdefault(right, []).append(rank)
    texts: dict[str, None] = {}
    for rank, (left, right) in enumerate(ranks):
        start = first[left + right]
        for other in _between(behind.get(right, []), start, rank):
            texts[left + right + ranks[other][1]] = None
        for other in _between(before.get(left, []), start, rank):
            texts[ranks[other][0] + left + right] = None
        if len(texts) > MOST_DOUBTFUL:
            raise ValueError(
                f"gguf merges by tokens, and the merges that make {left + right!r:.40} do not stand together"
            )
    return tuple(text.replace(SPACE, " ") for text in texts)


def _between(places: list[int], start: int, end: int) -> list[int]:
    """Return those of ascending places that lie between two others."""
    return places[bisect_right(places, start) : bisect_left(places, end)]


def _has_byte(byte: int, vocab: Mapping[str, int]) -> bool:
    """Return whether there is a token for a byte, or for the character of that byte (Gemma's tab)."""
    return f"<0x{byte:02X}>" in vocab or (byte < 128 and chr(byte) in vocab)


def _check_pairs(model: Mapping[str, Any], added: set[str]) -> None:
    """Raise ``ValueError`` for two tokens that form a third one if the tokenizer does not merge them."""
    pairs = {(left, right) for left, right in model["merges"]}
    merging = _merging(model)
    plain = model["vocab"].keys() - added
    for token in plain:
        for cut in range(1, len(token)):
            pair = token[:cut], token[cut:]
            if pair not in pairs and plain.issuperset(pair) and len(merging.tokenize(token)) > 1:
                raise ValueError(
                    f"gguf merges whatever makes a token, and the tokenizer does not merge {pair}"
                )


def word_piece(document: Mapping[str, Any], tokens: tuple[str, ...]) -> Pieces:
    """Return the WordPiece of a BERT; ``ValueError`` for one that splits text into words differently.

    Readers mark pieces that begin a word by a space in front, and continuing pieces by none. Unlike the
    tokenizer they do not skip words for their length.
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

    def spaced(token: str) -> str:
        return token.removeprefix(go_on) if token.startswith(go_on) else SPACE + token

    pieces = tuple(token if token in special else spaced(token) for token in tokens)
    if len(set(pieces)) < len(pieces):
        raise ValueError(f"gguf marks pieces that begin a word by {SPACE}, and two of these are one then")
    return Pieces(WORD_PIECES, "default", pieces, lower=lower, bare=bare)


def check_model(model: Mapping[str, Any]) -> None:
    """Raise ``ValueError`` for all but plain BPE and WordPiece."""
    if model.get("type") == WORD_PIECE:
        return
    odd = [name for name in ("dropout", "continuing_subword_prefix", "end_of_word_suffix") if model.get(name)]
    if model.get("type") != "BPE" or odd:
        kind = f"{model.get('type')} with {odd[0]}" if odd else model.get("type")
        raise ValueError(
            f"gguf is written with byte-level BPE, SentencePiece's BPE or WordPiece, not with {kind}"
        )


def _words(splitting: Any, model: Mapping[str, Any], added: set[str]) -> Words:
    """Return the readers' splitting of text into words for byte-level BPE; ``ValueError`` if they have none.

    Under some names readers take a word that is a token as a whole, under others they merge it. A tokenizer
    that does the opposite is equivalent if all its tokens are merged from bytes.
    """
    steps = words_of(splitting)
    names = [words for words in WORDS if words.steps == steps]
    if not names:
        kinds = ", ".join(step_types(splitting, "pretokenizers")) or "not at all"
        possible = ", ".join(words.name for words in WORDS)
        raise ValueError(
            f"gguf is written where text is cut into words as llama.cpp does for {possible}, and this "
            f"tokenizer does it otherwise ({kinds})"
        )
    whole = bool(model.get("ignore_merges"))
    fitting = next((words for words in names if words.whole == whole), None)
    if fitting is not None:
        return fitting
    merging = _merging(model)
    plain = (token for token in model["vocab"] if token not in added)
    token = next((token for token in plain if len(merging.tokenize(token)) > 1), None)
    if token is not None:
        raise ValueError(
            f"gguf {'merges words' if whole else 'takes words whole'} that are cut as {names[0].name} cuts "
            f"them, and this tokenizer {'takes them whole' if whole else 'merges them'}: its token "
            f"{token!r:.40} is not merged from bytes"
        )
    return names[0]


def _merging(model: Mapping[str, Any]) -> models.BPE:
    """Return a model that merges pairs even for words that the original takes as a whole."""
    merges = [(left, right) for left, right in model["merges"]]
    return models.BPE(vocab=dict(model["vocab"]), merges=merges)


def _space(normalizer: Any, splitting: Any) -> bool:
    """Return whether a SentencePiece tokenizer puts a space before a text.

    A split at spaces has no effect once they are replaced, as in Gemma.
    """
    swap = {"type": "Replace", "pattern": {"String": " "}, "content": SPACE}
    steps, cuts = parts_of(normalizer, "normalizers"), parts_of(splitting, "pretokenizers")
    if swap in steps:
        cuts = [cut for cut in cuts if (cut["type"], cut.get("pattern")) != ("Split", {"String": " "})]
    match steps, cuts:
        case [{"type": "Prepend", "prepend": "▁"}, last], [] if last == swap:
            return True
        case [only], [] if only == swap:
            return False
        case [], [{"type": "Metaspace", "replacement": "▁", "split": False, "prepend_scheme": str(scheme)}]:
            return scheme != "never"
    raise ValueError("gguf has SentencePiece tokenizers that only turn spaces into ▁, and this one does more")
