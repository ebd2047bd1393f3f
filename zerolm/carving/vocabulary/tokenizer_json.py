"""A ``tokenizer.json`` with fewer tokens, and the ids in other files."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from zerolm.architecture import Ints
from zerolm.carving.vocabulary.token_table import merges_of, model_of, pieces_of, with_ids

NAMING: Final = ("_token_id", "_token_index", "_token_ids", "suppress_tokens", "bad_words_ids")
"""Ends of the names of fields that name one token or several."""
VOCAB: Final = "vocab_size"


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
