"""The families that are known: those here, of a folder of the user's, and of installed packages."""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any, Final

from zerolm.families.document import read_family
from zerolm.families.family import Family
from zerolm.io.files import parse_json, read_text
from zerolm.registry import Entry, Registry

FOLDER: Final = "ZEROLM_FAMILIES"
"""The environment variable that names a folder with the user's own families, one JSON file each."""
GROUP: Final = "zerolm.families"
"""The group of entry points whose values are a document, or the path of a JSON file with one."""
MAX_FAMILY_BYTES: Final = 1 << 20


def families() -> dict[str, Family]:
    """Return all families by name, in order of name.

    ``ValueError`` names a file in the user's folder that is no family; a plug-in that is none costs a
    ``PluginWarning`` and is left out.
    """
    registry = _registry(os.environ.get(FOLDER, ""))
    return {name: registry[name] for name in sorted(registry.names())}


def family_named(kind: object) -> Family:
    """Return the family of a ``model_type``, whatever is known of it; ``ValueError`` says which there are."""
    by_name = families()
    if not isinstance(kind, str) or kind not in by_name:
        problem = (
            f"model_type {str(kind)[:60]!r} is not known" if kind else "the configuration has no model_type"
        )
        raise ValueError(f"{problem}; there are {', '.join(by_name)}")
    return by_name[kind]


def family_of(config: Mapping[str, Any]) -> Family:
    """Return the family of a configuration, with its tensors; ``ValueError`` says which there are."""
    kind = config.get("model_type")
    by_name = families()
    if isinstance(kind, str) and kind in by_name and by_name[kind].tensors.body:
        return by_name[kind]
    described = ", ".join(name for name, family in by_name.items() if family.tensors.body)
    problem = f"model_type {str(kind)[:60]!r} is not known" if kind else "the configuration has no model_type"
    raise ValueError(f"{problem}; there are {described}")


@cache
def _registry(folder: str) -> Registry[Family]:
    registry: Registry[Family] = Registry("family", GROUP, _receive)
    for file in files("zerolm.families").iterdir():
        if file.name.endswith(".json"):
            _add(registry, parse_json(file.read_text("utf-8")), "zerolm")
    if folder:
        _add_folder(registry, Path(folder))
    return registry


def _receive(registry: Registry[Family], name: str, value: Any) -> None:
    _add(registry, _document(value), f"{GROUP}: {name}")


def _add(registry: Registry[Family], document: Any, source: str) -> None:
    family = read_family(document)
    registry.add(Entry(family.name, family, source))


def _add_folder(registry: Registry[Family], folder: Path) -> None:
    if not folder.is_dir():
        raise ValueError(f"{FOLDER} names {str(folder)!r}, which is no folder")
    for file in sorted(folder.glob("*.json")):
        try:
            _add(registry, parse_json(read_text(file, MAX_FAMILY_BYTES)), str(file))
        except (OSError, ValueError, RecursionError) as error:
            reason = " ".join(str(error).split()) or type(error).__name__
            raise ValueError(f"family {str(file)!r} cannot be read: {reason}") from None


def _document(value: Any) -> Any:
    """Return what an entry point gives: a document, or the JSON in the file that it names."""
    if isinstance(value, Mapping):
        return value
    path = Path(value) if isinstance(value, str | os.PathLike) else value
    if isinstance(path, Path):
        return parse_json(read_text(path, MAX_FAMILY_BYTES))
    return parse_json(path.read_text("utf-8"))
