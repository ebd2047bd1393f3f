"""The kinds of tokenizers that are written as GGUF: byte-level BPE, SentencePiece's BPE, and WordPiece."""

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
"""What GGUF calls it."""
MOST_DOUBTFUL: Final = 5000


@dataclass(frozen=True)
class Pieces:
    """``kind`` is GGUF's tokenizer model, ``words`` its name of the way text is cut into words.

    ``doubtful`` are texts on which readers have to be compared with the tokenizer.

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
    doubtful: tuple[str, ...] = ()

    @property
    def title(self) -> str:
        """The kind of tokenizer in words; of byte-level BPE llama.cpp's name of the way to cut words."""
        return {"llama": "SentencePiece's BPE", WORD_PIECES: "WordPiece"}.get(self.kind, self.words)


def pieces_of(document: Mapping[str, Any], tokens: tuple[str, ...]) -> Pieces:
    """Return what a ``tokenizer.json`` has whose kind ``check_model`` has passed."""
    model = document["model"]
    if model["type"] == WORD_PIECE:
        return word_piece(document, tokens)
    return (sentence_piece if model.get("byte_fallback") else byte_level)(document, tokens)


def byte_level(document: Mapping[str, Any], tokens: tuple[str, ...]) -> Pieces:
    """Return byte-level BPE (GPT-2, Llama 3, Qwen) from a ``tokenizer.json``; ``ValueError`` for another.

    Readers do not normalise text, which is left to their note: NFC alone is possible.
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
    """Return SentencePiece's BPE with bytes for unknown characters, as Llama 2, Mistral and Gemma have it.

    A reader of GGUF merges whatever makes a token, by the score of the token; a ``tokenizer.json`` merges its
    pairs, by their rank. Scores follow the first pair that makes a token. Both do the same if a pair that is
    left out never meets: the token comes of its own text by another pair. That is checked. Where the pairs of
    a token do not stand together, others may come between: such texts are ``doubtful``, to be compared. A
    text gets a space in front where the tokenizer puts one; a reader does so also before a text that begins
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
    """Return texts in which a pair of a token meets a pair that stands before it, but behind another one of
    the same token; ``ValueError`` where there are more than can be compared."""
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
    """Return whether there is a token of a byte, or of the character that the byte is (Gemma's tab)."""
    return f"<0x{byte:02X}>" in vocab or (byte < 128 and chr(byte) in vocab)


def _check_pairs(model: Mapping[str, Any], added: set[str]) -> None:
    """Refuse two tokens that meet and make a third one, though the tokenizer leaves them apart."""
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
        raise ValueError(f"gguf marks pieces that begin a word by {SPACE}, and two of these are one then")
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


def _words(splitting: Any, model: Mapping[str, Any], added: set[str]) -> Words:
    """Return how byte-level BPE cuts a text into words, as readers have it; ``ValueError`` if they have not.

    Readers of some names take a word whole that is a token, of others they do not. A tokenizer that does
    otherwise is the same if all its tokens are merged from bytes.
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
    token = _unmerged(model, added)
    if token is not None:
        raise ValueError(
            f"gguf {'merges words' if whole else 'takes words whole'} that are cut as {names[0].name} cuts "
            f"them, and this tokenizer {'takes them whole' if whole else 'merges them'}: its token "
            f"{token!r:.40} is not merged from bytes"
        )
    return names[0]


def _unmerged(model: Mapping[str, Any], added: set[str]) -> str | None:
    """Return a token that its own text is not merged to; None where there is none."""
    merging = _merging(model)
    plain = (token for token in model["vocab"] if token not in added)
    return next((token for token in plain if len(merging.tokenize(token)) > 1), None)


def _merging(model: Mapping[str, Any]) -> models.BPE:
    """Return a model that merges pairs, whatever it takes whole."""
    merges = [(left, right) for left, right in model["merges"]]
    return models.BPE(vocab=dict(model["vocab"]), merges=merges)


def _space(normalizer: Any, splitting: Any) -> bool:
    """Whether a SentencePiece tokenizer puts a space before a text.

    A split at spaces finds none once they are swapped, as Gemma has it.
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
