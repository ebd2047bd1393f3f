"""The recipe of a child: plain JSON that lists the kept parts of the parent, and rebuilds the same bytes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

import zerolm
from zerolm.architecture import Ints
from zerolm.carving.experts.expert_scores import EXPERT_CRITERIA
from zerolm.carving.experts.fewer_experts import FewerExperts
from zerolm.carving.recipe_fields import MAX_NAME, ExpertsAndNeurons, RecipeFields, ascending, from_hex
from zerolm.carving.request import Methods
from zerolm.carving.result import Carved, ChildExperts
from zerolm.checkpoints import Checkpoint
from zerolm.checkpoints.origin import Origin
from zerolm.io.files import parse_json, read_text
from zerolm.io.plain import as_plain, checked
from zerolm.planning.size_spaces import SIZE_SPACES
from zerolm.text.defaults import GENERATED, NO_FILES, RANDOM
from zerolm.units.importance.criteria import CRITERIA
from zerolm.units.kept_units import Cut, Dimensions, LayerCut, dimensions
from zerolm.units.ridges import Place, Ridges
from zerolm.units.stream.narrowing import Width
from zerolm.units.within_layers import NAMES

RECIPE_FORMAT: Final = "zerolm-recipe"
RECIPE_VERSION: Final = 1
MAX_RECIPE_BYTES: Final = 64 << 20
OF_EXPERTS: Final = ("experts", "criterion_of_experts", "repair_of_experts")
"""Fields of a recipe about the kept experts."""
WEIGHTS, HEADER = "parent_weights", "parent_header"
"""Fields for the SHA-256 of a parent: of its weights, or of the header of a file whose blocks are copied."""
OTHERS: Final = {WEIGHTS: "a parent with other weights", HEADER: "another file"}


def versions_of(*libraries: str) -> dict[str, str]:
    """Return the versions of zerolm and of libraries that a child was made with."""
    return {"zerolm": zerolm.__version__} | {name: version(name) for name in libraries}


@dataclass(frozen=True, eq=False)
class RecipeOfExperts:
    """A recipe that was read: its ``fields``, the whole ``document``, and ``experts``, None for all."""

    fields: RecipeFields
    document: Mapping[str, Any]
    experts: ExpertsAndNeurons | None

    def difference(self, sha256: Mapping[str, str], versions: Mapping[str, str]) -> str:
        """Return a note on the files that differ from those of the recipe; empty if none does."""
        before = self.fields.sha256
        differing = sorted(name for name in {*before, *sha256} if before.get(name) != sha256.get(name))
        if self.fields.healing:
            return "the recipe is of a healed child: this is the child before zerolm heal trained it"
        if not differing:
            return ""
        then, now = (", ".join(map(" ".join, named.items())) for named in (self.fields.versions, versions))
        return f"{differing[0]!r} differs from the child that the recipe describes (then {then}, now {now})"


@dataclass(frozen=True, eq=False)
class Recipe(RecipeOfExperts):
    """The recipe of any child of a checkpoint.

    ``ridges`` are by (layer, role). ``width`` is that of a narrower stream. ``types`` are those of weights by
    layer and role, None for stored types. ``kept`` are the tokens, ascending; None where all are kept.
    """

    cut: Cut
    ridges: dict[Place, Ridges]
    width: Width | None
    types: dict[tuple[int | None, str], str] | None
    kept: Ints | None

    @property
    def takes_experts_alone(self) -> bool:
        """Return whether experts are removed, and nothing else but tokens."""
        is_whole = self.cut.is_whole and self.width is None and self.types is None
        return self.experts is not None and is_whole

    def methods(self, text: str | None) -> Methods:
        """Return the methods to rebuild the child; ``ValueError`` where they need the original text."""
        fields, tokens = self.fields, self.fields.calibration
        plain = Methods(fields.criterion, fields.plan, experts=fields.criterion_of_experts or "")
        by_loss = fields.stream is not None and fields.stream.basis == "loss"
        repairs = {fields.repair, fields.repair_of_experts or "none"} != {"none"}
        if tokens is None or not (repairs or by_loss or self.types is not None):
            return plain
        without = RANDOM if tokens.generated is None else GENERATED
        if tokens.text is not None and text in NO_FILES:
            raise ValueError(
                f"the recipe was made with a text of SHA-256 {tokens.text}: give it by --text FILE"
            )
        return replace(
            plain,
            text=without if tokens.text is None else text,
            sequences=tokens.sequences,
            length=tokens.length,
            repair=fields.repair,
            seed=tokens.seed or 0,
        )

    def check_text(self, sha256: str | None) -> None:
        """Raise ``ValueError`` for a text other than the recipe's."""
        wanted = self.fields.calibration.text if self.fields.calibration else None
        if wanted is not None and sha256 != wanted:
            raise ValueError(
                f"the recipe was made with another text: its SHA-256 is {wanted}, that of --text {sha256}"
            )

    def other_tokens(self, digest: str) -> str:
        """Return a note if the parent generates other tokens here; empty if they are the same."""
        wanted = self.fields.calibration.generated if self.fields.calibration else None
        is_same = wanted in (None, digest)
        return "" if is_same else "the parent generates another text here than for the recipe"


def to_layers(cut: Cut) -> list[dict[str, Any]]:
    """Return a cut as plain JSON: the kept units of each kept layer."""
    return [
        {"layer": cut.layer, **{kind: units.tolist() for kind, units in cut.kept.items()}}
        for cut in cut.layers
    ]


def from_layers(parent: Dimensions, layers: Any) -> Cut:
    """Return the cut of a recipe's layers; ``ValueError`` where it does not fit the parent."""
    rows = checked(list[dict[str, int | list[int]]], layers, "layers")
    if not rows:
        raise ValueError("a recipe lists the kept layers")
    wholes, cuts = parent.wholes, list[LayerCut]()
    for row in rows:
        layer = row.pop("layer", None)
        if not isinstance(layer, int) or set(row) != set(NAMES):
            raise ValueError(f"each layer of a recipe has layer, {' and '.join(NAMES)}")
        if not (cuts[-1].layer if cuts else -1) < layer < parent.depth:
            raise ValueError(f"layer {layer} of the recipe is out of order, or beyond {parent.depth} layers")
        kept = {
            kind: ascending(row[kind], whole, f"{kind} of layer {layer}") for kind, whole in wholes.items()
        }
        cuts.append(LayerCut(layer, kept))
    return Cut(parent, tuple(cuts))


def document(
    carved: Carved,
    parent: Origin,
    digest: Mapping[str, str],
    calibration: Mapping[str, Any] | None,
    ridges: Mapping[Place, Ridges],
    versions: Mapping[str, str],
    repair_of_experts: str = "none",
    tokens: str | None = None,
) -> dict[str, Any]:
    """Return the recipe of a child as plain JSON, without the files that are written with it.

    ``digest`` is the SHA-256 of its parent by the name of its field, one of ``OTHERS``. ``calibration``
    describes the tokens, ``ridges`` are by (layer, role), ``versions`` those of the software, with the device
    and the dtype of products. ``tokens`` are those of its vocabulary (``to_hex``), None for all.
    """
    return {
        "format": RECIPE_FORMAT,
        "version": RECIPE_VERSION,
        "parent": parent.name,
        "revision": parent.revision,
        **parent.licence,
        **digest,
        "family": carved.family,
        **{name: getattr(carved, name) for name in ("criterion", "repair", "plan", "shape")},
        "written_as": carved.format,
        "space": carved.space,
        "costs": carved.costs,
        "weight_bits": carved.weight_bits,
        "losses": carved.losses,
        "calibration": calibration,
        "ridges": {f"{role} {layer}": list(pair) for (layer, role), pair in ridges.items()},
        "versions": dict(versions),
        "stream": as_plain(carved.stream),
        **({"types": as_plain(carved.types)} if carved.types else {}),
        "layers": to_layers(carved.kept) if carved.kept else [],
        **(_experts(carved.experts, repair_of_experts) if carved.experts else {}),
        **({} if tokens is None else {"tokens": tokens}),
    }


def _experts(experts: ChildExperts, repair: str) -> dict[str, Any]:
    """Return the fields of ``OF_EXPERTS``: kept experts and neurons, and the gaps of choices by domains."""
    rows = [
        {
            "layer": row.layer,
            "kept": row.kept,
            **({} if row.neurons is None else {"neurons": row.neurons.kept}),
            **({} if row.gap is None else {"gap": row.gap}),
        }
        for row in experts.layers
    ]
    return {"criterion_of_experts": experts.criterion, "repair_of_experts": repair, "experts": rows}


@contextmanager
def reading(file: Path) -> Iterator[None]:
    """Name the recipe in the error where it cannot be used."""
    try:
        yield
    except (OSError, ValueError, RecursionError) as error:
        raise ValueError(f"recipe {str(file)!r} cannot be used: {error}") from None


def recipe_document(file: Path) -> Any:
    """Return the JSON of a recipe, or of that in the folder of a child, unchecked."""
    with reading(file):
        return parse_json(read_text(file / "recipe.json" if file.is_dir() else file, MAX_RECIPE_BYTES))


def read_recipe(file: Path, checkpoint: Checkpoint, weights: str) -> Recipe:
    """Read a recipe for a parent with these ``weights``; ``ValueError`` for another file or parent."""
    document = recipe_document(file)
    with reading(file):
        return _recipe(document, checkpoint, weights)


def fields_of(document: Any, parent: str, digest: str) -> RecipeFields:
    """Return the fields of a recipe for the parent of a ``digest``, whose field is ``parent``."""
    if not isinstance(document, dict) or document.get("format") != RECIPE_FORMAT:
        raise ValueError("it is no recipe of a carved child")
    if document.get("version") != RECIPE_VERSION:
        version = str(document.get("version"))[:MAX_NAME]
        raise ValueError(f"its version is {version}; {RECIPE_VERSION} can be read")
    if document.get(parent) != digest:
        raise ValueError(f"it was made for {OTHERS[parent]}: {str(document.get('parent'))[:MAX_NAME]!r}")
    rows = checked(RecipeFields, document)
    rows.check()
    if rows.experts is not None:
        EXPERT_CRITERIA.entry(rows.criterion_of_experts or "")
    if rows.experts is None or rows.criterion not in EXPERT_CRITERIA:
        CRITERIA.entry(rows.criterion)
    return rows


def _recipe(document: Any, checkpoint: Checkpoint, weights: str) -> Recipe:
    rows = fields_of(document, WEIGHTS, weights)
    if rows.family != checkpoint.family.name:
        raise ValueError(f"it was made for a {rows.family}, not a {checkpoint.family.name}")
    if rows.space is not None:
        SIZE_SPACES[rows.space].choices(checkpoint)
    experts = rows.kept_experts(checkpoint.layout.sizes)
    whole = dimensions(checkpoint)
    if experts and experts[1]:  # layers are those of the parent with its kept neurons of experts
        whole = dimensions(FewerExperts(checkpoint, experts[0], neurons=experts[1]).shaped())
    cut = from_layers(whole, rows.layers)
    return Recipe(
        rows,
        document,
        experts,
        cut,
        rows.by_place(whole.depth),
        rows.width(whole, checkpoint),
        rows.type_by_place(whole.depth),
        None if rows.tokens is None else from_hex(rows.tokens, checkpoint.layout.vocab, "its tokens"),
    )
