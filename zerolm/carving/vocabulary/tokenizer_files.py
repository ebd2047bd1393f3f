"""The files of a checkpoint's tokenizer: read, and written with fewer tokens."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Final

from zerolm.architecture import Ints
from zerolm.carving.vocabulary.token_table import TokenTable, merges_of, model_of, pieces_of, with_ids
from zerolm.checkpoints import Checkpoint
from zerolm.checkpoints.folder import inside, read_object
from zerolm.io.brief import one_line
from zerolm.io.files import write_json
from zerolm.networks.opener import stock_tokenizer

DOCUMENT: Final = "tokenizer.json"
SETTINGS: Final = "tokenizer_config.json"
ADDED: Final = "added_tokens.json"
BY_ID: Final = "added_tokens_decoder"
MODELS: Final = ("tokenizer.model", "sentencepiece.bpe.model", "spiece.model", "sentencepiece.model")
LISTS: Final = ("vocab.json", "merges.txt", "vocab.txt")
"""Older files of the same tokenizer, written again from the new one."""
SENTENCES: Final = "config_sentence_transformers.json"
CONFIGURATIONS: Final = ("config.json", "generation_config.json")
NORMAL: Final = 1
SPECIAL: Final = ("unk_id", "bos_id", "eos_id", "pad_id")
NAMING: Final = ("_token_id", "_token_index", "_token_ids", "suppress_tokens", "bad_words_ids")
"""Ends of the names of fields that name one token or several."""
VOCAB: Final = "vocab_size"


@dataclass(frozen=True, eq=False)
class TokenizerFiles:
    """The tokenizer in a checkpoint's folder, of one of the kinds of ``TokenTable``."""

    checkpoint: Checkpoint

    @property
    def folder(self) -> Path:
        return self.checkpoint.folder

    @cached_property
    def document(self) -> dict[str, Any]:
        """The ``tokenizer.json``, or older files converted; ``ValueError`` where it runs as Python code."""
        folder = self.folder
        settings = read_object(folder, SETTINGS) if inside(folder, SETTINGS) else {}
        if settings.get("auto_map"):
            raise ValueError(
                f"the tokenizer of {str(folder)!r} is Python code of its folder (auto_map), not run"
            )
        if inside(folder, DOCUMENT):
            return read_object(folder, DOCUMENT)
        backend = getattr(stock_tokenizer(folder), "backend_tokenizer", None)
        if backend is None:
            raise ValueError(f"the tokenizer of {str(folder)!r} runs as Python code, and cannot be cut")
        document: dict[str, Any] = json.loads(backend.to_str())
        return document

    @cached_property
    def table(self) -> TokenTable:
        """The tokens; ``ValueError``, in one line, for a tokenizer that cannot be cut."""
        try:
            return TokenTable.of(self.document, self.checkpoint.layout.vocab)
        except (ValueError, KeyError, TypeError) as error:
            reason = error if isinstance(error, ValueError) else f"it is damaged at {error}"
            raise ValueError(f"the tokenizer of {str(self.folder)!r} cannot be cut: {reason}") from None

    @cached_property
    def named(self) -> frozenset[int]:
        """The ids in configurations, and those of the special tokens in transformers.

        These are tokens that begin, end or pad a text, and the like. A tokenizer class may name some that no
        file has, and would add them behind the last row.
        """
        rows = self.checkpoint.layout.vocab
        of_class = stock_tokenizer(self.folder).all_special_ids
        ids = set[int]().union(*(ids_in(config, rows) for config in self.configurations.values()))
        return frozenset(ids | {index for index in of_class if index < rows})

    @cached_property
    def configurations(self) -> dict[str, dict[str, Any]]:
        """The configurations that contain token ids, by file name."""
        names = [name for name in CONFIGURATIONS if inside(self.folder, name)]
        return {name: read_object(self.folder, name) for name in names}

    @cached_property
    def prompts(self) -> tuple[str, ...]:
        """The texts that sentence-transformers puts before sentences."""
        root = self.checkpoint.root
        if not inside(root, SENTENCES):
            return ()
        prompts = read_object(root, SENTENCES).get("prompts")
        texts = prompts.values() if isinstance(prompts, dict) else ()
        return tuple(text for text in texts if isinstance(text, str))

    def write(self, kept: Ints, place: Path) -> None:
        """Write tokenizer and configurations with the kept ids; ``ValueError`` if these cannot be read."""
        rows, new = self.checkpoint.layout.vocab, numbers(kept)
        document = cut_document(self.document, kept)
        write_compact(place / DOCUMENT, document)
        for name, config in self.configurations.items():
            write_json(place / name, renumbered(config, new, rows))
        if inside(self.folder, SETTINGS):
            write_json(place / SETTINGS, _settings(read_object(self.folder, SETTINGS), new, rows))
        if inside(self.folder, ADDED):
            added = read_object(self.folder, ADDED)
            write_json(
                place / ADDED, {token: new[number] for token, number in added.items() if number in new}
            )
        self._write_lists(document["model"], place)
        for name in MODELS:
            if inside(self.folder, name):
                ids = self.table.ids
                cut_ids = {token: new[number] for token, number in ids.items() if number in new}
                with one_line(f"the tokenizer {str(self.folder / name)!r}"):
                    write_cut(self.folder / name, place / name, ids, cut_ids)

    def _write_lists(self, model: Mapping[str, Any], place: Path) -> None:
        """Write the older files that the folder has in addition to the ``tokenizer.json``."""
        for name in LISTS:
            if not inside(self.folder, name):
                continue
            if name == "vocab.json" and isinstance(model["vocab"], dict):
                write_compact(place / name, model["vocab"])
            elif name == "merges.txt" and "merges" in model:
                pairs = (merge if isinstance(merge, str) else " ".join(merge) for merge in model["merges"])
                text = "\n".join(["#version: 0.2", *pairs, ""])
                (place / name).write_text(text, encoding="utf-8", newline="\n")
            elif name == "vocab.txt" and isinstance(model["vocab"], dict):
                text = "".join(f"{token}\n" for token in model["vocab"])
                (place / name).write_text(text, encoding="utf-8", newline="\n")
            else:
                raise ValueError(f"{str(self.folder / name)!r} is of another tokenizer than its {DOCUMENT}")


def plain_document(checkpoint: Checkpoint) -> dict[str, Any]:
    """Return the tokenizer of a folder in transformers' form, without padding and truncation."""
    stock = stock_tokenizer(checkpoint.folder).backend_tokenizer
    return {**json.loads(stock.to_str()), "truncation": None, "padding": None}


def write_compact(path: Path, value: Any) -> None:
    """Write JSON with one line for each token, as usual for large lists."""
    path.write_text(json.dumps(value, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")


def _settings(settings: dict[str, Any], new: Mapping[int, int], rows: int) -> dict[str, Any]:
    by_id = settings.get(BY_ID)
    rest = renumbered({name: part for name, part in settings.items() if name != BY_ID}, new, rows)
    if not isinstance(by_id, dict):
        return dict(rest)
    kept = {str(new[int(old)]): row for old, row in by_id.items() if old.isdecimal() and int(old) in new}
    return {**rest, BY_ID: kept}


def write_cut(source: Path, target: Path, before: Mapping[str, int], after: Mapping[str, int]) -> None:
    """Write a SentencePiece model without the normal pieces that are missing in ``after``, in their order.

    Both maps are ids by token, of the parent's tokenizer and of that with fewer tokens. Pieces of any other
    type (unknown, control, bytes, user-defined) are kept. Raises ``ValueError`` where the written pieces
    would be numbered differently relative to the ids than in the source; ``ModuleNotFoundError`` without
    sentencepiece and protobuf.
    """
    proto = opened(source)
    names = [piece.piece for piece in proto.pieces]
    pieces = [piece for piece in proto.pieces if piece.type != NORMAL or piece.piece in after]
    places = {piece.piece: place for place, piece in enumerate(pieces)}
    for place, name in enumerate(names):
        if name in after and name in before and after[name] - places[name] != before[name] - place:
            raise ValueError(f"its piece {name!r:.40} would get another place than its id")
    trainer = proto.trainer_spec
    for name in SPECIAL:
        old = getattr(trainer, name)
        if 0 <= old < len(names):
            setattr(trainer, name, places.get(names[old], -1))
    trainer.vocab_size = len(pieces)
    copies = [type(piece).FromString(piece.SerializeToString()) for piece in pieces]
    del proto.pieces[:]
    proto.pieces.extend(copies)
    target.write_bytes(proto.SerializeToString())


def opened(source: Path) -> Any:
    """Return the parsed message of a SentencePiece model; ``ValueError`` where it is not one."""
    try:
        from sentencepiece import sentencepiece_model_pb2
    except ImportError:
        raise ModuleNotFoundError(
            "a tokenizer.model is cut with sentencepiece and protobuf: pip install 'zerolm[gguf]'"
        ) from None
    messages: Any = sentencepiece_model_pb2
    proto = messages.ModelProto()
    try:
        proto.ParseFromString(source.read_bytes())
    except Exception as error:  # protobuf's own, which is no ValueError
        raise ValueError(f"{str(source)!r} is no SentencePiece model: {error}") from None
    if not proto.pieces:
        raise ValueError(f"{str(source)!r} is no SentencePiece model: it has no pieces")
    return proto


def numbers(kept: Ints) -> dict[int, int]:
    """Return the new ids by the old ones of kept rows, which ascend."""
    return {old: new for new, old in enumerate(kept.tolist())}


def cut_document(document: Mapping[str, Any], kept: Ints) -> dict[str, Any]:
    """Return a ``tokenizer.json`` with only the kept ids, renumbered; all its rules are unchanged.

    The ``kept`` rows ascend, and contain all that they need according to ``TokenTable``. Merges are kept if
    both parts and the merged token are.
    """
    new, model = numbers(kept), model_of(document)
    ids = pieces_of(model)
    vocab = {token: new[number] for token, number in ids.items() if number in new}
    changed = dict(document["model"])
    if model["type"] == "Unigram":
        rows = model["vocab"]
        changed["vocab"] = [rows[old] for old in kept.tolist() if old < len(rows)]
        if model.get("unk_id") is not None:
            changed["unk_id"] = new[model["unk_id"]]
    else:
        changed["vocab"] = dict(sorted(vocab.items(), key=lambda item: item[1]))
    if model["type"] == "BPE":
        pairs = zip(document["model"]["merges"], merges_of(model), strict=True)
        changed["merges"] = [
            merge for merge, (left, right) in pairs if vocab.keys() >= {left, right, left + right}
        ]
    whole = {**document, "model": changed}
    added = document.get("added_tokens") or []
    whole["added_tokens"] = [{**row, "id": new[row["id"]]} for row in added if row["id"] in new]
    if document.get("post_processor") is not None:
        whole["post_processor"] = with_ids(document["post_processor"], new.__getitem__)
    padding = document.get("padding")
    if isinstance(padding, dict) and padding.get("pad_id") in new:
        whole["padding"] = {**padding, "pad_id": new[padding["pad_id"]]}
    return whole


def renumbered(value: Any, new: Mapping[int, int], rows: int) -> Any:
    """Return a configuration's JSON with the new ids in all fields that name tokens, at any depth.

    ``rows`` is the size of the parent's embedding: vocabulary sizes equal to it become the number of new ids.
    ``ValueError`` names a field whose token was removed.
    """

    def changed(name: str, number: int) -> int:
        if number not in new:
            raise ValueError(f"{name} is {number}, a token that would be removed")
        return new[number]

    return resized(_with_changed(value, rows, changed), rows, len(new))


def resized(value: Any, rows: int, size: int) -> Any:
    """Return a configuration's JSON with vocabulary sizes equal to ``rows`` replaced by ``size``."""
    if isinstance(value, list):
        return [resized(part, rows, size) for part in value]
    if not isinstance(value, dict):
        return value
    return {
        name: size if name.startswith(VOCAB) and part == rows else resized(part, rows, size)
        for name, part in value.items()
    }


def ids_in(value: Any, rows: int) -> set[int]:
    """Return the token ids in the fields of a configuration, at any depth."""
    ids: set[int] = set()

    def noted(name: str, number: int) -> int:
        ids.add(number)
        return number

    _with_changed(value, rows, noted)
    return ids


def _with_changed(value: Any, rows: int, changed: Callable[[str, int], int], field: str = "") -> Any:
    """Return JSON with each id in a field that names tokens, here ``field``, as ``changed`` returns it."""
    if isinstance(value, list):
        return [_with_changed(part, rows, changed, field) for part in value]
    if isinstance(value, dict):
        return {
            name: _with_changed(part, rows, changed, name if name.endswith(NAMING) else "")
            for name, part in value.items()
        }
    is_id = field and type(value) is int and 0 <= value < rows  # else none, or -1 for none
    return changed(field, value) if is_id else value
