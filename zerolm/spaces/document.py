"""Architectures as plain JSON documents, and their scores."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from zerolm.architecture import Architecture
from zerolm.costs import CostModel
from zerolm.families.config import from_config
from zerolm.scores import make_score, score_names, score_options
from zerolm.spaces.base import SearchSpace, make_space, no_others

ALPHAS: Final = (0.5, 1.0, 1.1)
"""Where ``zerolm`` is shown when nobody names an alpha; none of them suits every space."""


def to_document(space: SearchSpace, architecture: Architecture) -> dict[str, Any]:
    """A JSON document that ``from_document`` reads back: the space, its settings, the choices."""
    return {"space": space.name, "settings": space.settings, "architecture": architecture.choices}


def from_document(document: Any) -> Architecture:
    """The architecture of a document, or of a Hugging Face configuration. ``ValueError`` if neither."""
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
    try:
        space = make_space(str(document["space"]), **{str(key): settings[key] for key in settings})
    except TypeError as error:
        raise ValueError(f"the settings do not fit space {document['space']!r}: {error}") from None
    return space.read(choices)


def score(
    architecture: Architecture | Mapping[str, Any],
    names: Sequence[str] | None = None,
    *,
    alphas: Sequence[float] = ALPHAS,
    costs: CostModel | None = None,
) -> list[dict[str, Any]]:
    """Scores of an architecture: rows with ``score``, ``alpha`` (None where there is none), ``value``.

    All registered scores unless ``names`` says which; ``zerolm`` once for each of ``alphas``.
    """
    if not isinstance(architecture, Architecture):
        architecture = from_document(architecture)
    rows = []
    for name in names or score_names():
        takes_alpha = name in score_names() and "alpha" in score_options(name)
        for alpha in alphas if takes_alpha else (None,):
            made = make_score(name, costs, **({} if alpha is None else {"alpha": alpha}))
            rows.append({"score": name, "alpha": alpha, "value": made.of(architecture)})
    return rows
