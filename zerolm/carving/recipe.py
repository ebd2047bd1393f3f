"""The recipe of a child: plain JSON that lists the kept parts of the parent, and rebuilds the same bytes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

import numpy as np

import zerolm
from zerolm.architecture import MAX_VOCAB, Ints
from zerolm.carving.experts.expert_scores import EXPERT_CRITERIA
from zerolm.carving.experts.expert_width import layer_from_hex
from zerolm.carving.experts.fewer_experts import NEURONS, FewerExperts
from zerolm.carving.request import MAX_TOKENS, Methods
from zerolm.carving.result import Carved, CarvingMethod
from zerolm.checkpoints import Checkpoint
from zerolm.checkpoints.origin import Origin
from zerolm.checkpoints.weight_types import BY_NAME
from zerolm.io.files import parse_json, read_text
from zerolm.planning.size_spaces import SIZE_SPACES
from zerolm.repairing.rules import REPAIRS
from zerolm.settings import nearest
from zerolm.text.defaults import GENERATED, NO_FILES, RANDOM
from zerolm.units.importance.criteria import CRITERIA
from zerolm.units.kept_units import Cut, Dimensions, LayerCut, dimensions
from zerolm.units.ridges import Ridges
from zerolm.units.stream.narrowing import Width
from zerolm.units.within_layers import NAMES

RECIPE_FORMAT: Final = "zerolm-recipe"
RECIPE_VERSION: Final = 1
MAX_RECIPE_BYTES: Final = 64 << 20
MAX_NAME: Final = 80
Place = tuple[int, str]
BASES: Final = ("loss", "weights")
MAX_STAGES: Final = 1000
STAGE: Final = {
    **dict.fromkeys(("tokens", "batch", "length", "seed", "held_out"), int),
    **{"teacher": str, "rate": (int, float), "losses": list, "texts": list},
}
"""Fields of a stage of healing that a card shows."""
OF_EXPERTS: Final = ("experts", "criterion_of_experts", "repair_of_experts")
"""Fields of a recipe about the kept experts."""
IN_LAYER: Final = ("o", "down", "attention_norm", "ffn_norm")


def versions_of(*libraries: str) -> dict[str, str]:
    """Return the versions of zerolm and of libraries that a child was made with."""
    return {"zerolm": zerolm.__version__} | {name: version(name) for name in libraries}


@dataclass(frozen=True, eq=False)
class Recipe:
    """A child's recipe that was read.

    ``calibration`` is None without tokens; ``ridges`` are by (layer, role); ``sha256`` is that of the written
    weight files; ``versions`` are those of the software that wrote them. ``width`` is that of a narrower
    stream, and ``basis`` names how its directions were chosen. ``types`` are those of the weights by layer
    and role, None for stored types. ``document`` is the whole content of the file.
    """

    cut: Cut
    method: CarvingMethod
    calibration: Mapping[str, Any] | None
    ridges: dict[Place, Ridges]
    sha256: dict[str, str]
    versions: dict[str, str]
    width: Width | None = None
    basis: str | None = None
    types: dict[tuple[int | None, str], str] | None = None
    document: Mapping[str, Any] = field(default_factory=dict)

    @property
    def kept(self) -> Ints | None:
        """Return the kept tokens of the parent, ascending; None for all."""
        return _kept(self.document, MAX_VOCAB)

    @property
    def is_healed(self) -> bool:
        """Return whether the child was trained too."""
        return bool(self.document.get("healing"))

    @property
    def experts(self) -> dict[int, Ints] | None:
        """Return the kept experts by layer, ascending; None where all are kept."""
        return None if self.document.get("experts") is None else _experts(self.document)

    @property
    def criterion_of_experts(self) -> str:
        """Return the criterion of the choice of experts; empty where all are kept."""
        return str(self.document.get("criterion_of_experts", ""))

    @property
    def repair_of_experts(self) -> str:
        """Return the repair of the kept experts."""
        return str(self.document.get("repair_of_experts", "none"))

    @property
    def takes_experts_alone(self) -> bool:
        """Return whether experts are removed, and nothing else but tokens."""
        is_whole = self.cut.is_whole and self.width is None and self.types is None
        return self.experts is not None and is_whole

    def neurons(self, whole: int) -> dict[int, Ints]:
        """Return the kept neurons (e, n) of experts of ``whole`` ones, by layer; empty where all are kept."""
        return _neurons(self.document, whole)

    def methods(self, text: str | None) -> Methods:
        """Return the methods to rebuild the child; ``ValueError`` where they need the original text."""
        method, tokens = self.method, self.calibration
        needed = method.repair != "none" or self.basis == "loss" or self.types is not None
        needed = needed or self.repair_of_experts != "none"
        if not needed or tokens is None:
            return Methods(criterion=method.criterion, plan=method.plan)
        without = GENERATED if "generated" in tokens else RANDOM
        if tokens["text"] is not None and text in NO_FILES:
            raise ValueError(
                f"the recipe was made with a text of SHA-256 {tokens['text']}: give it by --text FILE"
            )
        return Methods(
            criterion=method.criterion,
            plan=method.plan,
            text=without if tokens["text"] is None else text,
            sequences=tokens["sequences"],
            length=tokens["length"],
            repair=method.repair,
            seed=tokens["seed"] or 0,
        )

    def check_text(self, sha256: str | None) -> None:
        """Raise ``ValueError`` for a text other than the recipe's."""
        wanted = self.calibration["text"] if self.calibration else None
        if wanted is not None and sha256 != wanted:
            raise ValueError(f"the text has SHA-256 {sha256}, but the recipe was made with {wanted}")

    def other_tokens(self, digest: str) -> str:
        """Return a note if the parent generates other tokens here; empty if they are the same."""
        wanted = (self.calibration or {}).get("generated", digest)
        return "" if digest == wanted else "the parent generates another text here than for the recipe"

    def difference(self, sha256: Mapping[str, str], versions: Mapping[str, str]) -> str:
        """Return a note on the files that differ from those of the recipe; empty if none does."""
        differing = sorted(
            name for name in {*self.sha256, *sha256} if self.sha256.get(name) != sha256.get(name)
        )
        if self.is_healed:
            return "the recipe is of a healed child: this is the child before zerolm heal trained it"
        if not differing:
            return ""
        then, now = (", ".join(map(" ".join, named.items())) for named in (self.versions, versions))
        return f"{differing[0]!r} differs from the child that the recipe describes (then {then}; now {now})"


def to_layers(cut: Cut) -> list[dict[str, Any]]:
    """Return a cut as plain JSON: the kept units of each kept layer."""
    return [
        {"layer": cut.layer, **{kind: units.tolist() for kind, units in cut.kept.items()}}
        for cut in cut.layers
    ]


def from_layers(parent: Dimensions, layers: Any) -> Cut:
    """Return the cut of a recipe's layers; ``ValueError`` where it does not fit the parent."""
    if not isinstance(layers, list) or not layers:
        raise ValueError("a recipe lists the kept layers")
    cuts: list[LayerCut] = []
    for entry in layers:
        if not isinstance(entry, dict) or set(entry) != {"layer", *NAMES}:
            raise ValueError(f"each layer of a recipe has layer, {' and '.join(NAMES)}")
        layer = entry["layer"]
        if type(layer) is not int or not 0 <= layer < parent.depth or (cuts and layer <= cuts[-1].layer):
            raise ValueError(
                f"layer {layer!r} of the recipe is out of order, or beyond {parent.depth} layers"
            )
        kept = {}
        for kind, whole in zip(NAMES, parent.units, strict=True):
            units = entry[kind]
            sound = isinstance(units, list) and units and all(type(unit) is int for unit in units)
            if not sound or units != sorted(set(units)) or units[0] < 0 or units[-1] >= whole:
                raise ValueError(f"{kind} of layer {layer} must ascend within 0 to {whole - 1}")
            kept[kind] = np.array(units, np.int64)
        cuts.append(LayerCut(layer, kept))
    return Cut(parent, tuple(cuts))


def document(
    carved: Carved,
    parent: Origin,
    weights: str,
    calibration: Mapping[str, Any] | None,
    ridges: Mapping[Place, Ridges],
    versions: Mapping[str, str],
) -> dict[str, Any]:
    """Return the recipe of a child as plain JSON, without the files that are written with it.

    ``weights`` is the SHA-256 of its parent's; ``calibration`` describes the tokens, ``ridges`` are by
    (layer, role), ``versions`` those of the software, with the device and the dtype of products.
    """
    method = asdict(carved.method)
    written_as, space = method.pop("format"), method.pop("space")
    return {
        "format": RECIPE_FORMAT,
        "version": RECIPE_VERSION,
        "parent": parent.name,
        "revision": parent.revision,
        **parent.licence,
        "parent_weights": weights,
        "family": carved.family,
        **method,
        "written_as": written_as,
        "space": space,
        "costs": carved.costs,
        "weight_bits": carved.weight_bits,
        "losses": carved.losses,
        "calibration": calibration,
        "ridges": {f"{role} {layer}": list(pair) for (layer, role), pair in ridges.items()},
        "versions": dict(versions),
        "stream": carved.stream,
        **({"types": carved.types} if carved.types else {}),
        "layers": to_layers(carved.cut),
    }


def read_recipe(file: Path, checkpoint: Checkpoint, weights: str) -> Recipe:
    """Read a recipe for a parent with these ``weights``; ``ValueError`` for another file or parent."""
    try:
        return _recipe(parse_json(read_text(file, MAX_RECIPE_BYTES)), checkpoint, weights)
    except (OSError, ValueError, RecursionError) as error:
        raise ValueError(f"recipe {str(file)!r} cannot be used: {error}") from None


def _recipe(document: Any, checkpoint: Checkpoint, weights: str) -> Recipe:
    if not isinstance(document, dict) or document.get("format") != RECIPE_FORMAT:
        raise ValueError("it is no recipe of a carved child")
    if document.get("version") != RECIPE_VERSION:
        version = str(document.get("version"))[:MAX_NAME]
        raise ValueError(f"its version is {version}; {RECIPE_VERSION} can be read")
    if document.get("parent_weights") != weights:
        parent = str(document.get("parent"))[:MAX_NAME]
        raise ValueError(f"it was made for a parent with other weights: {parent!r}")
    names = ("criterion", "repair", "plan", "shape", "written_as")
    criterion, repair, plan, shape, written_as = (_text(name, document.get(name)) for name in names)
    REPAIRS.entry(repair)
    if document.get("experts") is not None:
        EXPERT_CRITERIA.entry(_text("criterion_of_experts", document.get("criterion_of_experts")))
        REPAIRS.entry(_text("repair_of_experts", document.get("repair_of_experts")))
    if document.get("experts") is None or criterion not in EXPERT_CRITERIA:
        CRITERIA.entry(criterion)
    if document.get("family") != checkpoint.family.name:
        family = str(document.get("family"))[:40]
        raise ValueError(f"it was made for a {family}, not a {checkpoint.family.name}")
    space = document.get("space")
    if space is not None:
        SIZE_SPACES[_text("space", space)].choices(checkpoint)
    _check_healing(document.get("healing", []))
    _check_experts(document.get("experts", []), checkpoint.layout.sizes.get("experts", 0))
    neurons = _neurons(document, checkpoint.layout.sizes.get(NEURONS, 0))
    _kept(document, checkpoint.layout.vocab)  # rejects tokens that the parent lacks
    whole = dimensions(checkpoint)
    if neurons:  # layers are those of the parent with its kept experts
        whole = dimensions(FewerExperts(checkpoint, _experts(document), neurons=neurons).shaped())
    return Recipe(
        from_layers(whole, document.get("layers")),
        CarvingMethod(criterion, repair, plan, shape, written_as, space),
        _calibration(document.get("calibration")),
        _ridges(document.get("ridges"), whole.depth),
        _texts("sha256", document.get("sha256")),
        _texts("versions", document.get("versions")),
        *_stream(document.get("stream"), whole, checkpoint),
        _types(document.get("types"), whole.depth),
        document,
    )


def with_experts(
    recipe: Mapping[str, Any],
    experts: Mapping[int, Ints],
    by: Mapping[str, str],
    gaps: Mapping[int, float] | None = None,
    neurons: Mapping[int, list[str]] | None = None,
) -> dict[str, Any]:
    """Return a recipe with these kept experts of each layer, and the ``gaps`` of their choice.

    ``by`` has the criterion and the repair. ``neurons`` has, by layer, the kept neurons of each expert in the
    form of ``to_hex``; None where all are kept.
    """
    rows = [
        {
            "layer": layer,
            "kept": kept.tolist(),
            **({"neurons": neurons[layer]} if neurons else {}),
            **({"gap": gaps[layer]} if gaps and layer in gaps else {}),
        }
        for layer, kept in experts.items()
    ]
    return {**recipe, **by, "experts": rows}


def experts_in(recipe: Mapping[str, Any], count: int) -> dict[int, Ints]:
    """Return the experts of a recipe by layer; ``ValueError`` for numbers that a layer of ``count`` lacks."""
    _check_experts(recipe.get("experts"), count)
    return _experts(recipe)


def _experts(recipe: Mapping[str, Any]) -> dict[int, Ints]:
    return {row["layer"]: np.array(row["kept"], np.int64) for row in recipe["experts"]}


def _neurons(recipe: Mapping[str, Any], whole: int) -> dict[int, Ints]:
    rows = recipe["experts"] if recipe.get("experts") else []
    if not any("neurons" in row for row in rows):
        return {}
    return {row["layer"]: layer_from_hex(row, whole) for row in rows}


def _check_experts(rows: Any, count: int) -> None:
    """Raise ``ValueError`` for experts that a layer of the parent, with ``count`` of them, does not have."""
    for row in rows if isinstance(rows, list) else [None]:
        entry: dict[str, Any] = row if isinstance(row, dict) else {}
        layer, kept = entry.get("layer", -1), entry.get("kept", [])
        sound = type(layer) is int and isinstance(kept, list) and kept and all(type(x) is int for x in kept)
        if not sound or kept != sorted(set(kept)) or not 0 <= kept[0] <= kept[-1] < count:
            raise ValueError(f"its experts are {str(row)[:60]!r}, not ascending within 0 to {count - 1}")


def with_kept(recipe: Mapping[str, Any], kept: Ints) -> dict[str, Any]:
    """Return a recipe with these kept tokens of the parent, ascending, as ranges: ``0-256 300``."""
    breaks = np.flatnonzero(np.diff(kept) != 1) + 1
    runs = ((int(run[0]), int(run[-1])) for run in np.split(kept, breaks))
    text = " ".join(str(first) if first == last else f"{first}-{last}" for first, last in runs)
    return {**recipe, "tokens": text}


def _kept(document: Mapping[str, Any], rows: int) -> Ints | None:
    """Return the kept tokens of a recipe, None for all; ``ValueError`` where they do not fit the parent."""
    text = document.get("tokens")
    if text is None:
        return None
    last, runs = -1, list[Ints]()
    for part in text.split() if isinstance(text, str) else [""]:
        first, _, end = part.partition("-")
        sound = len(part) < 24 and first.isdecimal() and (end or first).isdecimal()
        if not sound or not last < int(first) <= int(end or first) < rows:
            raise ValueError(f"its tokens must ascend within 0 to {rows - 1}, unlike {part[:40]!r}")
        last = int(end or first)
        runs.append(np.arange(int(first), last + 1))
    return np.concatenate(runs) if runs else np.zeros(0, np.int64)


def _types(rows: Any, depth: int) -> dict[tuple[int | None, str], str] | None:
    """Return the quantisation types by layer and role; ``ValueError`` for an unknown type."""
    if rows is None:
        return None
    if not isinstance(rows, list):
        raise ValueError("its types are no list")
    types: dict[tuple[int | None, str], str] = {}
    for row in rows:
        sound = isinstance(row, dict) and set(row) == {"layer", "role", "type"}
        layer = row["layer"] if sound else None
        if not sound or not (layer is None or (type(layer) is int and 0 <= layer < depth)):
            raise ValueError(f"a row of its types is {str(row)[:60]!r}, not layer, role and type")
        role, kind = _text("role", row["role"]), _text("type", row["type"])
        if kind not in BY_NAME:
            raise ValueError(f"its type {kind!r} is not known{nearest(kind, BY_NAME)}")
        types[layer, role] = kind
    return types


def _check_healing(stages: Any) -> None:
    """Raise ``ValueError`` for a description of healing that a card cannot show."""
    of_text = {"source": str, "trained_on": int, "sha256": str}
    measures = ("before", "after", "parent")
    if not isinstance(stages, list) or len(stages) > MAX_STAGES:
        raise ValueError(f"its healing is {str(stages)[:40]!r}, not a list of at most {MAX_STAGES} stages")
    for stage in stages:
        losses: Any = stage.get("losses_on_held_out") if isinstance(stage, dict) else None
        sound = (
            _has(stage, STAGE)
            and isinstance(stage.get("lora"), int | None)
            and all(isinstance(name, str) for name in stage["losses"])
            and all(_has(text, of_text) for text in stage["texts"])
            and _has(losses, dict.fromkeys(measures, dict))
            and all(_has(losses[name], dict.fromkeys(losses["before"], (int, float))) for name in measures)
        )
        if not sound:
            raise ValueError(f"a stage of its healing is {str(stage)[:40]!r}, not what zerolm heal writes")


def _has(value: Any, fields: Mapping[str, Any]) -> bool:
    """Return whether JSON is an object with these fields of these types."""
    return isinstance(value, dict) and all(isinstance(value.get(name), kind) for name, kind in fields.items())


def _stream(stream: Any, parent: Dimensions, checkpoint: Checkpoint) -> tuple[Width | None, str | None]:
    """Return the width of a recipe's stream and its basis; ``ValueError`` where it does not fit."""
    if stream is None:
        return None, None
    fields = {"hidden": int, "tied": bool, "basis": str, "kept_energy": float}
    sound = isinstance(stream, dict) and set(stream) == set(fields)
    if not sound or not all(type(stream[name]) is kind for name, kind in fields.items()):
        raise ValueError(f"its stream must hold {', '.join(fields)}")
    if not checkpoint.family.cut.hidden or not 1 <= stream["hidden"] <= parent.hidden:
        raise ValueError(f"its stream is {stream['hidden']} wide, that of the parent {parent.hidden}")
    if stream["basis"] not in BASES or (stream["tied"] and not checkpoint.layout.tied):
        raise ValueError(f"its stream has the basis {stream['basis'][:40]!r} and tied {stream['tied']}")
    return Width(stream["hidden"], stream["tied"]), stream["basis"]


def _text(name: str, text: Any) -> str:
    if not isinstance(text, str) or len(text) > MAX_NAME:
        raise ValueError(f"its {name} is {str(text)[:40]!r}")
    return text


def _texts(name: str, texts: Any) -> dict[str, str]:
    if not isinstance(texts, dict):
        raise ValueError(f"its {name} is {str(texts)[:40]!r}, not an object of texts")
    return {key: _text(name, text) for key, text in texts.items()}


def _calibration(calibration: Any) -> Mapping[str, Any] | None:
    if calibration is None:
        return None
    fields = {"text": (str, type(None)), "seed": (int, type(None)), "sequences": (int,), "length": (int,)}
    sound = isinstance(calibration, dict) and set(calibration) - {"generated"} == set(fields)
    if not sound or not all(isinstance(calibration[name], kinds) for name, kinds in fields.items()):
        raise ValueError(f"its calibration must hold {', '.join(fields)}")
    _text("calibration", calibration.get("generated", ""))
    sequences, length = calibration["sequences"], calibration["length"]
    if not (sequences >= 1 and length >= 2 and sequences * length <= MAX_TOKENS):
        raise ValueError(f"its calibration has {sequences} sequences of {length} tokens")
    return dict(calibration)


def _is_ridge(share: Any) -> bool:
    return isinstance(share, float | int) and not isinstance(share, bool) and 0 < share < 1e6


def _ridges(shares: Any, depth: int) -> dict[Place, Ridges]:
    ridges: dict[Place, Ridges] = {}
    if not isinstance(shares, dict):
        raise ValueError("it lists no ridges")
    for place, ridge in shares.items():
        role, _, layer = place.partition(" ")
        is_place = layer.isdecimal() and (
            (role in IN_LAYER and int(layer) < depth) or (role == "final_norm" and int(layer) == depth)
        )
        is_pair = isinstance(ridge, list) and len(ridge) == 2
        if not is_place or not is_pair or not all(_is_ridge(share) for share in ridge):
            raise ValueError(f"its ridges of {place[:40]!r} are {str(ridge)[:40]}, not two shares")
        ridges[int(layer), role] = Ridges(*map(float, ridge))
    return ridges
