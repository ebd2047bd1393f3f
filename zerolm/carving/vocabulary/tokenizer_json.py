"""A ``tokenizer.json`` with fewer tokens, and the ids in other files."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from zerolm.architecture import Ints
from zerolm.carving.vocabulary.token_table import merges_of, model_of, pieces_of, with_ids

SINGLE: Final = ("_token_id", "_token_index")
SEVERAL: Final = ("_token_ids", "suppress_tokens", "bad_words_ids")
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
    if isinstance(value, list):
        return [renumbered(part, new, rows) for part in value]
    if not isinstance(value, dict):
        return value
    changed: dict[str, Any] = {}
    for name, part in value.items():
        if isinstance(part, dict):
            changed[name] = renumbered(part, new, rows)
        elif name.endswith(SINGLE) or name.endswith(SEVERAL):
            changed[name] = _new_ids(name, part, new, rows)
        else:
            changed[name] = renumbered(part, new, rows)
    return resized(changed, rows, len(new))


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
    if isinstance(value, list):
        return ids.union(*(ids_in(part, rows) for part in value))
    if isinstance(value, dict):
        for name, part in value.items():
            named = name.endswith(SINGLE) or name.endswith(SEVERAL)
            ids |= set(_numbers(part, rows)) if named and not isinstance(part, dict) else ids_in(part, rows)
    return ids


def _numbers(part: Any, rows: int) -> list[int]:
    if isinstance(part, list):
        return [number for each in part for number in _numbers(each, rows)]
    return [part] if type(part) is int and 0 <= part < rows else []


def _new_ids(name: str, part: Any, new: Mapping[int, int], rows: int) -> Any:
    if isinstance(part, list):
        return [_new_ids(name, each, new, rows) for each in part]
    if type(part) is not int or not 0 <= part < rows:  # none, or -1 for none
        return part
    if part not in new:
        raise ValueError(f"{name} is {part}, a token that would be removed")
    return new[part]
