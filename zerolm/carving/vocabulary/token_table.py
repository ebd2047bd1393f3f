"""The tokens of a ``tokenizer.json``: those that must be kept, and the parts that others are merged from.

A text whose tokens are all kept is encoded to the same tokens after others are removed, if every kept token
keeps the parts that it is merged from: then all its merges remain, in their order. No string is lost if the
remaining tokens can express every character that the parent can: by bytes, or each character by itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Final

SPACE: Final = "▁"
BYTES: Final = tuple(f"<0x{byte:02X}>" for byte in range(256))
KINDS: Final = ("BPE", "Unigram", "WordPiece")
MAX_TOKENS: Final = 1 << 22
Pair = tuple[str, str]


@dataclass(frozen=True, eq=False)
class TokenTable:
    """The tokens of a tokenizer of a ``kind``, for an embedding of ``rows``; rows may have no token.

    ``ids`` are by token. ``required`` must be kept: added tokens, bytes or characters, and tokens that a rule
    of the tokenizer names. ``parts`` are, by id, the two tokens that a token is merged from when it is
    encoded alone.
    """

    kind: str
    rows: int
    ids: dict[str, int]
    required: frozenset[int]
    parts: dict[int, tuple[int, int]] = field(default_factory=dict)

    @classmethod
    def of(cls, document: Any, rows: int) -> TokenTable:
        """Return the table; ``ValueError`` for an unknown kind, or ids that do not fit the embedding."""
        model, added = model_of(document), added_of(document)
        vocab = pieces_of(model)
        ids = vocab | added
        names: dict[int, str] = {}
        for token, number in ids.items():
            if names.setdefault(number, token) != token:
                raise ValueError(f"its tokens {names[number]!r:.40} and {token!r:.40} have one id, {number}")
        most = max(names, default=-1)
        if most >= rows:
            raise ValueError(f"it has ids up to {most}, and the embedding has {rows} rows")
        parts = _parts(merges_of(model), ids) if model["type"] == "BPE" else {}
        required = {*added.values(), *named_ids(document)}
        required |= {ids[token] for token in _required(model, vocab, set(added))}
        return cls(model["type"], rows, ids, frozenset(required), parts)

    def needed(self, tokens: Iterable[int]) -> set[int]:
        """Return these ids, those that must be kept, and all that they are merged from."""
        needed: set[int] = set()
        waiting = [*tokens, *self.required]
        while waiting:
            token = waiting.pop()
            if token not in needed:
                needed.add(token)
                waiting += self.parts.get(token, ())
        return needed


def model_of(document: Any) -> dict[str, Any]:
    """Return the model of a ``tokenizer.json``; ``ValueError`` for a kind that cannot be cut."""
    model = document.get("model") if isinstance(document, dict) else None
    if not isinstance(model, dict):
        raise ValueError("it has no model")
    kind = model.get("type") or ("BPE" if "merges" in model else None)
    if kind not in KINDS:
        raise ValueError(f"it is of the kind {str(kind)[:40]!r}; {', '.join(KINDS)} can be cut")
    odd = [name for name in ("dropout", "end_of_word_suffix") if model.get(name)]
    if kind == "BPE" and model.get("continuing_subword_prefix"):
        odd.append("continuing_subword_prefix")
    if odd:
        raise ValueError(f"it is a {kind} with {odd[0]}, which is not known")
    return {**model, "type": kind}


def pieces_of(model: Mapping[str, Any]) -> dict[str, int]:
    """Return the ids of a model's tokens; ``ValueError`` where they are invalid."""
    vocab: Any = model.get("vocab")
    if model["type"] == "Unigram":
        rows: Any = vocab if isinstance(vocab, list) and len(vocab) <= MAX_TOKENS else [None]
        if not all(isinstance(row, list) and len(row) == 2 and isinstance(row[0], str) for row in rows):
            raise ValueError("its vocabulary is no list of pieces with scores")
        if not all(type(row[1]) in (int, float) for row in rows):
            raise ValueError("its vocabulary has a score that is no number")
        ids = {row[0]: number for number, row in enumerate(rows)}
        if len(ids) < len(rows):
            raise ValueError("its vocabulary has a piece twice")
        return ids
    if not isinstance(vocab, dict) or not 0 < len(vocab) <= MAX_TOKENS:
        raise ValueError("its vocabulary is no object of ids by token")
    wrong = next((token for token, number in vocab.items() if type(number) is not int or number < 0), None)
    if wrong is not None:
        raise ValueError(f"its token {wrong!r:.40} has the id {str(vocab[wrong])[:40]}")
    return dict(vocab)


def added_of(document: Mapping[str, Any]) -> dict[str, int]:
    """Return the ids of added tokens, including special ones; ``ValueError`` where they are invalid."""
    rows = document.get("added_tokens") or []
    ids: dict[str, int] = {}
    for row in rows if isinstance(rows, list) else [None]:
        token, number = (row.get("content"), row.get("id")) if isinstance(row, dict) else (None, None)
        if not isinstance(token, str) or type(number) is not int or number < 0:
            raise ValueError(f"its added token {str(row)[:60]!r} has no content or no id")
        ids[token] = number
    return ids


def merges_of(model: Mapping[str, Any]) -> list[Pair]:
    """Return the merges of a BPE in their order, as pairs; ``ValueError`` where one is invalid."""
    pairs: list[Pair] = []
    merges = model.get("merges")
    for merge in merges if isinstance(merges, list) else [None]:
        pair = merge.split(" ") if isinstance(merge, str) else merge
        if not isinstance(pair, list) or len(pair) != 2 or not all(isinstance(part, str) for part in pair):
            raise ValueError(f"its merge {str(merge)[:60]!r} is no pair of tokens")
        pairs.append((pair[0], pair[1]))
    return pairs


def named_ids(document: Mapping[str, Any]) -> set[int]:
    """Return the ids that rules of the tokenizer name: tokens around a text, and padding."""
    ids: set[int] = set()

    def noted(number: int) -> int:
        ids.add(number)
        return number

    with_ids(document.get("post_processor"), noted)
    padding = document.get("padding")
    if isinstance(padding, dict) and type(padding.get("pad_id")) is int:
        ids.add(padding["pad_id"])
    return ids


def with_ids(processor: Any, renumbered: Any) -> Any:
    """Return a post-processor with other ids: ``renumbered`` returns the new one of each."""
    if not isinstance(processor, dict):
        return processor
    changed = dict(processor)
    match processor.get("type"):
        case "Sequence":
            steps = processor.get("processors") or []
            changed["processors"] = [with_ids(step, renumbered) for step in steps]
        case "TemplateProcessing":
            special = {
                name: {**row, "ids": [renumbered(number) for number in row["ids"]]}
                for name, row in (processor.get("special_tokens") or {}).items()
            }
            changed["special_tokens"] = special
        case "BertProcessing" | "RobertaProcessing":
            for name in ("sep", "cls"):
                token, number = processor[name]
                changed[name] = [token, renumbered(number)]
        case "ByteLevel":
            pass
        case kind:
            raise ValueError(f"its post-processor is of the kind {str(kind)[:40]!r}, which is not known")
    return changed


def _parts(merges: list[Pair], ids: Mapping[str, int]) -> dict[int, tuple[int, int]]:
    """Return by id the two tokens that each merged token is made of when it is encoded alone.

    A token that several merges produce is made by one of them: the last merge of its own characters. Within a
    text its characters are merged in the same order, because none of them is merged with a neighbour.
    """
    for left, right in merges:
        for token in (left, right, left + right):
            if token not in ids:
                raise ValueError(f"its merges need the token {token!r:.40}, which it has not")
    ranks = {pair: rank for rank, pair in reversed(list(enumerate(merges)))}
    makers: dict[str, list[Pair]] = {}
    for pair in ranks:
        makers.setdefault("".join(pair), []).append(pair)
    parts: dict[int, tuple[int, int]] = {}
    for token, pairs in makers.items():
        left, right = pairs[0] if len(pairs) == 1 else last_merge(token, ranks) or pairs[0]
        parts[ids[token]] = ids[left], ids[right]
    return parts


def last_merge(token: str, ranks: Mapping[Pair, int]) -> Pair | None:
    """Return the last pair that a token is merged from when it is encoded alone; None if it stays split.

    ``ranks`` are the places of pairs among the merges: the first is merged first, of equals the leftmost.
    """
    pieces, last, unmerged = list(token), None, len(ranks)
    order = [ranks.get(pair, unmerged) for pair in pairwise(pieces)]
    while order:
        place = order.index(min(order))
        if order[place] == unmerged:
            return None
        last = pieces[place], pieces[place + 1]
        pieces[place : place + 2] = ["".join(last)]
        del order[place]
        for at in (place - 1, place):  # the pairs with the neighbours
            if 0 <= at < len(order):
                order[at] = ranks.get((pieces[at], pieces[at + 1]), unmerged)
    return last


def _required(model: Mapping[str, Any], vocab: Mapping[str, int], added: set[str]) -> set[str]:
    """Return the tokens of a model without which a string would be lost, or encoded differently."""
    required = {token for token in (SPACE, " ") if token in vocab}
    bytewise = bool(model.get("byte_fallback")) and all(byte in vocab for byte in BYTES)
    if bytewise:
        required |= set(BYTES)
    match model["type"]:
        case "Unigram":
            pieces = model["vocab"]
            unknown = model.get("unk_id")
            if unknown is not None:
                if type(unknown) is not int or not 0 <= unknown < len(pieces):
                    raise ValueError(f"its unk_id is {str(unknown)[:40]}, and it has {len(pieces)} pieces")
                required.add(pieces[unknown][0])
            if pieces:  # the score of a character without a piece depends on the lowest score
                required.add(min(pieces, key=lambda piece: piece[1])[0])
            return required if bytewise else required | _written(vocab, added, "")
        case "WordPiece":
            unknown, prefix = model.get("unk_token"), model.get("continuing_subword_prefix", "##")
            required |= vocab.keys() & {unknown}
            return required | _written(vocab, added, str(prefix))
        case _:
            required |= vocab.keys() & {model.get("unk_token")}
            return required if bytewise else required | {token for token in vocab if len(token) == 1}


def _written(vocab: Mapping[str, int], added: set[str], prefix: str) -> set[str]:
    """Return the pieces of one character, and those with a character that has no such piece.

    Pieces after the first of a word begin with ``prefix``.
    """
    required: set[str] = set()
    for piece in vocab.keys() - added:
        inner = bool(prefix) and piece.startswith(prefix) and len(piece) > len(prefix)
        text = piece.removeprefix(prefix) if inner else piece
        alone = [prefix * (inner or place > 0) + character for place, character in enumerate(text)]
        if len(text) == 1 or any(part not in vocab for part in alone):
            required.add(piece)
    return required
