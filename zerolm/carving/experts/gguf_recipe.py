"""The recipe of a GGUF child with fewer experts: written next to it, and read to build it again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from zerolm.architecture import Ints
from zerolm.carving.experts.expert_count import checked
from zerolm.carving.experts.expert_scores import EXPERT_CRITERIA
from zerolm.carving.experts.gguf_fewer import FewerGgufExperts
from zerolm.carving.experts.gguf_mixture import GgufMixture
from zerolm.carving.recipe import (
    MAX_RECIPE_BYTES,
    RECIPE_FORMAT,
    RECIPE_VERSION,
    versions_of,
    with_experts,
)
from zerolm.carving.recipe_fields import ExpertsRow, experts_of
from zerolm.carving.result import Carved
from zerolm.io import plain
from zerolm.io.files import parse_json, read_text, sha256_of

HEADER: Final = "parent_header"
"""The SHA-256 of the parent's file before its tensors."""


@dataclass(frozen=True, eq=False)
class GgufRecipe:
    """A recipe that was read: the criterion, the kept experts by layer, and the SHA-256 of the child."""

    criterion: str
    experts: Mapping[int, Ints]
    sha256: Mapping[str, Any]

    @classmethod
    def of(cls, document: Mapping[str, Any], mixture: GgufMixture) -> GgufRecipe:
        """Return a recipe for a file; ``ValueError`` where it was made for another."""
        if document[HEADER] != mixture.header.digest:
            raise ValueError(f"it was made for another file: {str(document.get('parent'))[:60]!r}")
        criterion, sha256 = document.get("criterion"), document.get("sha256")
        if document.get("version") != RECIPE_VERSION or not isinstance(sha256, dict):
            raise ValueError("it is no recipe of this version of zerolm")
        EXPERT_CRITERIA.entry(str(criterion))
        rows = plain.checked(list[ExpertsRow], document.get("experts"), "experts")
        experts = checked(experts_of(rows, mixture.routing.experts), mixture.layers, mixture.routing)
        return cls(str(criterion), experts, sha256)

    def difference(self, file: Path) -> str:
        """Return a message if a child differs from the one first written; empty if it does not."""
        same = self.sha256.get(file.name) == sha256_of(file)
        return "" if same else f"{file.name!r} differs from the child that the recipe describes"


def gguf_document(recipe: Path) -> dict[str, Any] | None:
    """Return a recipe of a GGUF child with fewer experts; None for any other file."""
    try:
        document = parse_json(read_text(recipe, MAX_RECIPE_BYTES))
    except (OSError, ValueError, RecursionError):
        return None  # read again, and rejected, as a recipe of another kind
    is_one = isinstance(document, dict) and document.get("format") == RECIPE_FORMAT and HEADER in document
    return document if is_one else None


def gguf_recipe(
    carved: Carved,
    fewer: FewerGgufExperts,
    calibration: Mapping[str, Any] | None,
    seed: int,
    file: Path,
    more: Sequence[str],
) -> dict[str, Any]:
    """Return the recipe of a written child as plain JSON; ``more`` are files that are still to be written."""
    mixture = fewer.parent
    recipe = {
        "format": RECIPE_FORMAT, "version": RECIPE_VERSION,
        "parent": mixture.file.name, "revision": None, HEADER: mixture.header.digest,
        "family": carved.family, "criterion": carved.criterion, "repair": carved.repair, "plan": carved.plan,
        "shape": carved.shape, "written_as": carved.format, "costs": carved.costs,
        "weight_bits": carved.weight_bits, "losses": {}, "calibration": calibration, "seed": seed,
        "versions": versions_of(), "stream": None, "sha256": {file.name: sha256_of(file)},
        "files": sorted([file.name, "README.md", "recipe.json", *more]),
    }  # fmt: skip
    rows = carved.experts.layers if carved.experts else []
    gaps = {row.layer: row.gap for row in rows if row.gap is not None}
    by = {"criterion_of_experts": carved.criterion, "repair_of_experts": carved.repair}
    return with_experts(recipe, fewer.by_layer, by, gaps)
