"""The families that are known: those here, of a folder of the user's, and of installed packages."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any, Final, NoReturn

from zerolm.families.document import read_family
from zerolm.families.family import Family
from zerolm.families.like import LIKE, whole
from zerolm.families.reading import alike, current
from zerolm.io.files import parse_json, read_text
from zerolm.registry import Entry, PluginWarning, Registry
from zerolm.settings import check_known, shown

FOLDER: Final = "ZEROLM_FAMILIES"
"""The environment variable that names a folder with the user's own families, one JSON file each."""
GROUP: Final = "zerolm.families"
"""The group of entry points whose values are a document, or the path of a JSON file with one."""
REFUSED: Final = "refused.json"
"""The file with the reasons why other types are refused."""
MAX_FAMILY_BYTES: Final = 1 << 20
Document = Mapping[str, Any]


def families() -> Mapping[str, Family]:
    """Return all families by name, in order of name.

    ``ValueError`` names a file in the user's folder that is no family; a plug-in that is none costs a
    ``PluginWarning`` and is left out.
    """
    return _families(os.environ.get(FOLDER, ""))


def family_named(kind: object) -> Family:
    """Return the family of a ``model_type``, whatever is known of it; ``ValueError`` says which there are."""
    by_name = families()
    if isinstance(kind, str) and kind in by_name:
        return by_name[kind]
    return _like_another(kind, {}) or _refuse(kind, list(by_name))


def family_of(config: Mapping[str, Any]) -> Family:
    """Return the family of a configuration, with its tensors; ``ValueError`` says which there are.

    Within ``others_like`` one that is not known is read like that family.
    """
    kind, by_name = config.get("model_type"), described()
    if not isinstance(kind, str) or kind not in by_name:
        return _like_another(kind, config) or _refuse(kind, list(by_name))
    if current() is not None:
        raise ValueError(f"model_type {kind!r} is known: it is not read like {current()}")
    return by_name[kind]


@cache
def refused() -> dict[str, str]:
    """Return the types that are refused by name, each with the reason, in order of name."""
    return dict(parse_json(files("zerolm.families").joinpath(REFUSED).read_text("utf-8")))


def problem_of(kind: object) -> str:
    """Return the problem with a ``model_type`` that no family has."""
    if isinstance(kind, str) and kind in refused():
        return f"model_type {kind!r} is refused: {refused()[kind]}"
    return f"model_type {shown(kind)} is not known" if kind else "the configuration has no model_type"


def described() -> dict[str, Family]:
    """Return the families whose tensors are described, by name."""
    return {name: family for name, family in families().items() if family.tensors.body}


def described_family(name: str) -> Family:
    """Return a described family by its name; ``ValueError`` says which is near, and which there are."""
    by_name = described()
    check_known("family", name, by_name)
    return by_name[name]


def _like_another(kind: object, config: Mapping[str, Any]) -> Family | None:
    """Return a type that is not known, as it is read at present; None where it is refused."""
    other = current()
    if other is None or not isinstance(kind, str) or kind in families() or kind in refused():
        return None
    return alike(described_family(other), kind, config)


def _refuse(kind: object, names: list[str]) -> NoReturn:
    possible = "" if kind in list(refused()) else f"; there are {', '.join(names)}"
    raise ValueError(f"{problem_of(kind)}{possible}")


@cache
def _families(folder: str) -> dict[str, Family]:
    """Return the families by name: all documents first, so that one may be like any other."""
    registry: Registry[Document] = Registry("family", GROUP, _receive)
    for file in files("zerolm.families").iterdir():
        if file.name.endswith(".json") and file.name != REFUSED:
            _add(registry, parse_json(file.read_text("utf-8")), "zerolm")
    for path in _files(folder):
        with _named(path):
            _add(registry, parse_json(read_text(path, MAX_FAMILY_BYTES)), str(path))
    entries = sorted(registry.entries(), key=lambda entry: entry.name)
    documents = {entry.name: entry.value for entry in entries}
    result = {}
    for entry in entries:
        name = entry.source.removeprefix(f"{GROUP}: ")
        with _named(name) if name == entry.source else _warned(name):
            result[entry.name] = read_family(whole(entry.name, documents))
    return result


def _receive(registry: Registry[Document], name: str, value: Any) -> None:
    _add(registry, _document(value), f"{GROUP}: {name}")


def _add(registry: Registry[Document], document: Any, source: str) -> None:
    """Register a document under its name; one that is like no other is read, so that it is a family."""
    name = document.get("model_type") if isinstance(document, Mapping) else None
    if not isinstance(name, str) or LIKE not in document:
        name = read_family(document).name
    registry.add(Entry(name, document, source))


def _files(folder: str) -> list[Path]:
    if folder and not Path(folder).is_dir():
        raise ValueError(f"{FOLDER} names {folder!r}, which is no folder")
    return sorted(Path(folder).glob("*.json")) if folder else []


@contextmanager
def _named(source: str | Path) -> Iterator[None]:
    """Within, what is wrong with a document becomes a ``ValueError`` in one line that names its file."""
    try:
        yield
    except (OSError, ValueError, RecursionError) as error:
        reason = " ".join(str(error).split()) or type(error).__name__
        raise ValueError(f"family {str(source)!r} cannot be read: {reason}") from None


@contextmanager
def _warned(name: str) -> Iterator[None]:
    """Within, what is wrong with the document of a plug-in costs a warning."""
    try:
        yield
    except (ValueError, RecursionError) as error:
        reason = " ".join(str(error).split()) or type(error).__name__
        text = f"plug-in {name!r} of {GROUP} is left out: {reason}"
        warnings.warn(text, PluginWarning, stacklevel=2)


def _document(value: Any) -> Any:
    """Return the document of an entry point: the value itself, or the JSON in the file that it names."""
    if isinstance(value, Mapping):
        return value
    path = Path(value) if isinstance(value, str | os.PathLike) else value
    if isinstance(path, Path):
        return parse_json(read_text(path, MAX_FAMILY_BYTES))
    return parse_json(path.read_text("utf-8"))
