"""The folder of a checkpoint: local or fetched from the hub, and the files in it that are no weights."""

from __future__ import annotations

import re
from collections.abc import Collection
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Final

from zerolm.io.files import parse_json, read_text
from zerolm.io.hub import PATIENCE, hub_problem

MAX_JSON: Final = 64 << 20
MAX_OTHER: Final = 512 << 20
HUB_ID: Final = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")
WANTED: Final = (
    *("tokenizer*", "special_tokens_map.json", "added_tokens.json", "vocab.json", "vocab.txt", "merges.txt"),
    *("spiece.model", "sentencepiece*.model", "chat_template.*", "additional_chat_templates/*.jinja"),
    *("generation_config.json", "modules.json", "config_sentence_transformers.json"),
    *("sentence_*_config.json", "README*", "LICENSE*", "LICENCE*", "COPYING*", "NOTICE*", "USE_POLICY*"),
)
"""Files that a child takes over, by name: nothing that holds code or a pickle."""
SUFFIXES: Final = ("", ".json", ".txt", ".model", ".jinja", ".md", ".rst", ".safetensors")


def check_named(*names: str | Path) -> None:
    """Raise ``ValueError`` for a name that is neither of a file or folder nor like one of the hub."""
    for name in names:
        of_hub = isinstance(name, str) and HUB_ID.fullmatch(name)
        if not of_hub and not Path(name).exists():
            raise ValueError(f"there is no folder {str(name)!r}; a model of the hub is called owner/name")


def fetched(name: str | Path) -> Path:
    """The folder with this name, else the hub's model of this name, downloaded; ``ValueError`` if neither."""
    folder = Path(name)
    if folder.is_dir():
        return folder.absolute()
    if folder.exists():
        raise ValueError(f"{str(name)!r} is a file; name the folder that holds the checkpoint")
    check_named(name)
    return _downloaded(
        str(name), ["*.safetensors", "*.json", *WANTED, *(f"[0-9]_*/{name}" for name in WANTED)]
    )


def fetched_config(name: str) -> dict[str, Any]:
    """Return the ``config.json`` of a model of the hub, ``owner/name``; ``ValueError`` without one."""
    return read_object(_downloaded(name, ["config.json"]), "config.json")


def _downloaded(name: str, patterns: list[str]) -> Path:
    """Return the folder of a model of the hub, from its cache where the hub does not answer."""
    from huggingface_hub import snapshot_download

    problem = hub_problem(lambda api: api.model_info(name, timeout=PATIENCE))
    try:
        place = snapshot_download(
            name,
            allow_patterns=patterns,
            ignore_patterns=["original/*", "onnx/*"],
            local_files_only=bool(problem),
        )
        return Path(place)
    except Exception as error:  # the client raises those of the HTTP library beneath it, too
        reason = problem or " ".join(str(error).split())[:300] or type(error).__name__
        raise ValueError(f"there is no folder {name!r}, and no model of the hub: {reason}") from None


def is_plain(name: str) -> bool:
    """Whether this is the name of a file, not a path."""
    return name not in ("", ".", "..") and not re.search(r"[/\\\0]", name)


def inside(folder: Path, name: str | Path) -> bool:
    """Whether the folder has this regular file; ``ValueError`` for a link that leads out of the folder.

    The hub's cache keeps the content of its snapshots in ``blobs``, next to them, and links to it.
    """
    path = folder / name
    if not path.is_file():
        return False
    home = folder.resolve()
    snapshots = (place.parent for place in (home, home.parent) if place.parent.name == "snapshots")
    homes = [home, *(place.parent / "blobs" for place in snapshots)]
    if not any(path.resolve().is_relative_to(home) for home in homes):
        raise ValueError(f"{str(path)!r} is a link that leads out of its folder")
    return True


def read_object(folder: Path, name: str) -> dict[str, Any]:
    """A JSON object in a file of the folder; ``ValueError`` names the file and what is wrong with it."""
    path = folder / name
    try:
        inside(folder, name)
        document = parse_json(read_text(path, MAX_JSON))
        if not isinstance(document, dict):
            raise ValueError("it is not a JSON object")
    except (OSError, ValueError, RecursionError) as error:
        reason = "there is no such file" if not path.exists() else error
        raise ValueError(f"{str(path)!r} cannot be read: {reason}") from None
    return document


def other_files(folder: Path, transformer: str = "", modules: Collection[str] = ()) -> list[Path]:
    """Files of the checkpoint other than its weights and ``config.json``, relative to the folder.

    Of sentence-transformers the ``transformer`` may lie in a folder of its own; ``modules`` are the names of
    the files of its modules. Links that lead out of the folder are left out; ``ValueError`` for a file that
    is absurdly large.
    """
    names = []
    for path in sorted({*folder.glob("*"), *folder.glob("*/*"), *(folder / transformer).glob("*/*")}):
        name = path.relative_to(folder)
        within = name.relative_to(transformer) if name.is_relative_to(transformer) else name
        wanted = any(fnmatchcase(str(one), pattern) for one in (name, within) for pattern in WANTED)
        if not (wanted or name.as_posix() in modules) or name.suffix not in SUFFIXES:
            continue
        try:
            if not inside(folder, name):
                continue
        except ValueError:
            continue
        if path.stat().st_size > MAX_OTHER:
            raise ValueError(f"{str(path)!r} has more than {MAX_OTHER} bytes")
        names.append(name)
    return names
