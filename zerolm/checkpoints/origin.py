"""Where a checkpoint comes from: its name and revision on the hub, and its licence."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import yaml

from zerolm.checkpoints.folder import inside
from zerolm.io.files import read_text

MAX_CARD: Final = 1 << 20
MAX_LICENCE: Final = 300
LICENCES: Final = ("license", "license_name", "license_link")


@dataclass(frozen=True)
class Origin:
    """``name`` is that of the hub, else of the folder; ``revision`` (a commit) is None but on the hub.

    ``licence`` has ``license``, and ``license_name`` and ``license_link`` where it is ``other``, as the
    parent's card gives them.
    """

    name: str
    revision: str | None = None
    licence: dict[str, str] = field(default_factory=dict)


def origin_of(folder: Path) -> Origin:
    """Return the origin of a folder; a path in the hub's cache contains its name and revision."""
    place, licence = folder.absolute(), _licence(folder)
    repository = place.parent.parent.name
    if place.parent.name == "snapshots" and repository.startswith("models--"):
        return Origin(repository.removeprefix("models--").replace("--", "/"), place.name, licence)
    return Origin(place.name, None, licence)


def _licence(folder: Path) -> dict[str, str]:
    """Return the licence that a model card names in its front matter; nothing where it cannot be read."""
    try:
        if not inside(folder, "README.md"):
            return {}
        front = re.match(r"\s*---\r?\n(.*?)^---\s*$", read_text(folder / "README.md", MAX_CARD), re.S | re.M)
        fields = top_level(front[1]) if front else {}
    except (OSError, ValueError, yaml.YAMLError, RecursionError):
        return {}
    return {name: fields[name] for name in LICENCES if name in fields}


def top_level(text: str) -> dict[str, str]:
    """Return the short texts of a YAML mapping by name; nothing is built, so aliases cannot multiply."""
    node = yaml.compose(text, yaml.SafeLoader)
    pairs = node.value if isinstance(node, yaml.MappingNode) else []
    return {
        str(key.value): value.value
        for key, value in pairs
        if isinstance(value, yaml.ScalarNode) and 0 < len(value.value) <= MAX_LICENCE
    }
