"""Architectures as plain JSON documents, and their scores."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from zerolm.architecture import Architecture
from zerolm.costs import CostModel
from zerolm.families.config import from_config
from zerolm.families.family import Task
from zerolm.families.known import family_named
from zerolm.scores import all_variants, make_score, variants
from zerolm.spaces.base import SPACES, SearchSpace, make_space
from zerolm.spaces.choices import no_others


def to_document(space: SearchSpace, architecture: Architecture) -> dict[str, Any]:
    """Return a JSON document that ``from_document`` reads back: the space, its settings, the choices."""
    return {"space": space.name, "settings": space.settings, "architecture": architecture.choices}


def from_document(document: Any) -> Architecture:
    """Return the architecture of a document, or of a Hugging Face configuration; else ``ValueError``."""
    if not isinstance(document, Mapping):
        raise ValueError(f"an architecture must be a JSON object, not {type(document).__name__}")
    if "model_type" in document:
        return from_config(document)
    if "space" not in document or "architecture" not in document:
        raise ValueError(
            "an architecture needs 'space' and 'architecture', or 'model_type' for a Hugging Face "
            f"configuration; it has {', '.join(map(repr, document)) or 'no fields'}"
        )
    no_others(document, ("space", "settings", "architecture"))
    settings, choices = document.get("settings"), document["architecture"]
    settings = {} if settings is None else settings
    if not isinstance(settings, Mapping) or not isinstance(choices, Mapping):
        raise ValueError("'settings' and 'architecture' must be JSON objects")
    return make_space(str(document["space"]), **{str(key): settings[key] for key in settings}).read(choices)


def task_of(architecture: Architecture) -> Task:
    """Return the task of an architecture's network, which its space or its family determines."""
    name, _, family = architecture.space.partition(":")
    return family_named(family).task if family else SPACES[name].task


def scores_of(
    architecture: Architecture | Mapping[str, Any],
    names: Sequence[str] | None = None,
    *,
    options: Mapping[str, Sequence[Any]] | None = None,
    costs: CostModel | None = None,
) -> list[dict[str, Any]]:
    """Return scores of an architecture: rows with ``score``, ``alpha`` (None where there is none), ``value``.

    The scores that are named, or all but those that need an option which is not given. ``options`` lists
    the values of options by name, such as ``{"alpha": [0.5, 1.1]}``: one row for each combination of those
    that a score takes, its other options as ``options`` of the row.
    """
    if not isinstance(architecture, Architecture):
        architecture = from_document(architecture)
    values = options or {}
    chosen = {name: variants(name, values) for name in names} if names else all_variants(values)[0]
    rows = []
    for name, choices in chosen.items():
        for choice in choices:
            value = make_score(name, costs, **choice).of(architecture)
            others = {option: choice[option] for option in choice if option != "alpha"}
            row = {"score": name, "alpha": choice.get("alpha"), "value": value}
            rows.append({**row, "options": others} if others else row)
    return rows
