"""The recipe of a child: plain JSON that says what was kept of the parent, and rebuilds the same bytes."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from zerolm.carving.importance.weights import REPAIRS, WEIGHTS_ONLY, WITH_TOKENS
from zerolm.carving.kept_units import Cut, Dimensions, LayerCut
from zerolm.carving.planning.lonas import choices_in
from zerolm.checkpoints import Checkpoint, Ledger
from zerolm.io.files import parse_json, read_text

if TYPE_CHECKING:
    from zerolm.carving.carve import Carved

FORMAT: Final = "zerolm-recipe"
VERSION: Final = 2
MAX_BYTES: Final = 64 << 20
MAX_TOKENS: Final = 1 << 26
"""Calibration tokens, of whose hidden states three are in memory."""
NAMES: Final = ("criterion", "repair", "plan", "shape", "written_as")


@dataclass(frozen=True, eq=False)
class Recipe:
    """A child's recipe as it was read; ``ridges`` by (layer, role), ``calibration`` None without tokens."""

    cut: Cut
    criterion: str
    repair: str
    plan: str
    shape: str
    written_as: str
    calibration: Mapping[str, Any] | None
    ridges: dict[tuple[int, str], float]
    space: str | None


def fingerprint(checkpoint: Checkpoint, ledger: Ledger) -> str:
    """A SHA-256 that tells one state of weights from another: names, types, shapes, extremes of tensors."""
    lines = []
    for name in sorted(checkpoint.layout.slots):
        info, total = checkpoint.tensors[name], ledger.total(name)
        lines.append(f"{name} {info.dtype} {info.shape} {float(total.largest)!r} {float(total.smallest)!r}")
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


def widths(cut: Cut) -> list[dict[str, int]]:
    """The sizes of each kept layer."""
    per_group = cut.parent.heads_per_group
    return [
        {
            "layer": layer.layer,
            "heads": len(layer.groups) * per_group,
            "kv_heads": len(layer.groups),
            "ffn": len(layer.ffn),
        }
        for layer in cut.layers
    ]


def to_layers(cut: Cut) -> list[dict[str, Any]]:
    """A cut as plain JSON: the kept units of each kept layer."""
    return [
        {"layer": layer.layer, "groups": layer.groups.tolist(), "ffn": layer.ffn.tolist()}
        for layer in cut.layers
    ]


def from_layers(parent: Dimensions, layers: Any) -> Cut:
    """The cut of a recipe's layers; ``ValueError`` where it does not fit the parent."""
    if not isinstance(layers, list) or not layers:
        raise ValueError("a recipe lists the kept layers")
    cuts: list[LayerCut] = []
    for entry in layers:
        if not isinstance(entry, dict) or set(entry) != {"layer", "groups", "ffn"}:
            raise ValueError("each layer of a recipe has layer, groups and ffn")
        layer = entry["layer"]
        if type(layer) is not int or not 0 <= layer < parent.depth or (cuts and layer <= cuts[-1].layer):
            raise ValueError(
                f"layer {layer!r} of the recipe is out of order, or beyond {parent.depth} layers"
            )
        kept = []
        for kind, whole in (("groups", parent.kv_heads), ("ffn", parent.ffn)):
            units = entry[kind]
            sound = isinstance(units, list) and units and all(type(unit) is int for unit in units)
            if not sound or units != sorted(set(units)) or units[0] < 0 or units[-1] >= whole:
                raise ValueError(f"{kind} of layer {layer} must ascend within 0 to {whole - 1}")
            kept.append(np.array(units, np.int64))
        cuts.append(LayerCut(layer, *kept))
    return Cut(parent, tuple(cuts))


def document(
    checkpoint: Checkpoint,
    weights: str,
    carved: Carved,
    calibration: Mapping[str, Any] | None,
    ridges: Mapping[Any, float],
) -> dict[str, Any]:
    """The recipe of a child; ``weights`` is the parent's fingerprint, ``calibration`` tells of the tokens."""
    return {
        "format": FORMAT,
        "version": VERSION,
        "parent": checkpoint.folder.name,
        "parent_weights": weights,
        "family": carved.family,
        "criterion": carved.criterion,
        "repair": carved.repair,
        "plan": carved.plan,
        "shape": carved.shape,
        "written_as": carved.format,
        "space": carved.space,
        "costs": carved.costs,
        "losses": carved.losses,
        "calibration": calibration,
        "ridges": {f"{role} {layer}": ridge for (layer, role), ridge in ridges.items()},
        "layers": to_layers(carved.cut),
    }


def read_recipe(file: Path, checkpoint: Checkpoint, parent: Dimensions, weights: str) -> Recipe:
    """Read a recipe for this parent; ``ValueError`` where it is none, or of another parent."""
    try:
        document = parse_json(read_text(file, MAX_BYTES))
        if not isinstance(document, dict) or document.get("format") != FORMAT:
            raise ValueError("it is no recipe of a carved child")
        if document.get("version") != VERSION:
            raise ValueError(f"its version is {document.get('version')!r}; {VERSION} can be read")
        if document.get("parent_weights") != weights:
            raise ValueError(
                f"it was made for a parent with other weights: {str(document.get('parent'))[:80]!r}"
            )
        texts: dict[str, str] = {name: _text(name, document.get(name)) for name in NAMES}
        for name, known in (("repair", REPAIRS), ("criterion", (*WEIGHTS_ONLY, *WITH_TOKENS))):
            if texts[name] not in known:
                raise ValueError(
                    f"its {name} {texts[name][:40]!r} is not known; there are {', '.join(known)}"
                )
        if document.get("family") != checkpoint.family.name:
            raise ValueError(
                f"it was made for a {str(document.get('family'))[:40]}, not a {checkpoint.family.name}"
            )
        return Recipe(
            from_layers(parent, document.get("layers")),
            **texts,
            calibration=_calibration(document.get("calibration")),
            ridges=_ridges(document.get("ridges"), parent.depth),
            space=_space(document.get("space"), checkpoint),
        )
    except (OSError, ValueError, RecursionError) as error:
        raise ValueError(f"recipe {str(file)!r} cannot be used: {error}") from None


def _space(given: Any, checkpoint: Checkpoint) -> str | None:
    if given is not None:
        choices_in(_text("space", given), checkpoint)
    return given if isinstance(given, str) else None


def _text(name: str, given: Any) -> str:
    if not isinstance(given, str):
        raise ValueError(f"its {name} is {str(given)[:40]!r}")
    return given


def _calibration(given: Any) -> Mapping[str, Any] | None:
    if given is None:
        return None
    fields = {"text": (str, type(None)), "seed": (int, type(None)), "sequences": (int,), "length": (int,)}
    sound = isinstance(given, dict) and set(given) == set(fields)
    if not sound or not all(isinstance(given[name], kinds) for name, kinds in fields.items()):
        raise ValueError(f"its calibration must hold {', '.join(fields)}")
    sequences, length = given["sequences"], given["length"]
    if not (sequences >= 1 and length >= 2 and sequences * length <= MAX_TOKENS):
        raise ValueError(f"its calibration has {sequences} sequences of {length} tokens")
    return dict(given)


def _ridges(given: Any, depth: int) -> dict[tuple[int, str], float]:
    found: dict[tuple[int, str], float] = {}
    if not isinstance(given, dict):
        raise ValueError("it lists no ridges")
    for place, ridge in given.items():
        role, _, layer = place.partition(" ")
        known = role in ("o", "down") and layer.isdecimal() and int(layer) < depth
        if not known or not isinstance(ridge, float | int) or not 0 < ridge < 1e6:
            raise ValueError(f"its ridge of {place[:40]!r} is {ridge!r}")
        found[int(layer), role] = float(ridge)
    return found
