"""Architectures by name: of a file or folder, of a known decoder, or of a model of the hub."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from zerolm.checkpoints.folder import HUB_ID, fetched_config
from zerolm.io.files import parse_json, read_text
from zerolm.settings import nearest, shown
from zerolm.spaces.decoders import decoders

DOCUMENT_BYTES: Final = 16 << 20
"""The most that is read of a file of an architecture."""
DOCUMENTS: Final = ("architecture.json", "config.json")
"""Names of files that are called by their folder, in the order in which a folder is looked through."""
PICK: Final = "pick"
"""The folder of the pick in that of a search."""
NO_MODELS: Final = (".json", ".csv")
"""Ends of names that are of files, never of a model of the hub."""


def named_model(name: str) -> tuple[str, Any]:
    """Return the name of a model, and its document, or the ``Decoder`` where it is a known one.

    The name is that of a file or folder, of a known decoder, or owner/name of the hub. ``ValueError`` where
    it is none of them.
    """
    path, known_decoders = Path(name), decoders()
    if path.exists():
        place = path.absolute()
        return (place.parent if place.name in DOCUMENTS else place).name or name, read_document(path)
    folded = name.casefold()
    for decoder in known_decoders.values():
        if folded in (decoder.name.casefold(), decoder.hub.casefold()):
            return decoder.name, decoder
    if path.suffix in NO_MODELS:
        raise ValueError(f"{name!r} does not exist; give an architecture file, a folder, or a known decoder")
    if not HUB_ID.fullmatch(name):
        message = f"no file, folder or known decoder is called {shown(name)}{nearest(name, known_decoders)}"
        raise ValueError(message)
    return name, fetched_config(name)


def read_document(path: Path) -> Any:
    """Return the JSON of an architecture: of a file, or of that in a folder, or of the pick of a search.

    ``ValueError`` where none is.
    """
    if not path.is_dir():
        return _json(path)
    for folder in (path, path / PICK):
        for name in DOCUMENTS:
            if (folder / name).is_file():
                return _json(folder / name)
    raise ValueError(f"folder {str(path)!r} has neither config.json nor architecture.json")


def _json(path: Path) -> Any:
    try:
        return parse_json(read_text(path, DOCUMENT_BYTES))
    except (OSError, ValueError, RecursionError) as error:
        raise ValueError(f"{str(path)!r} cannot be read: {error}") from None
