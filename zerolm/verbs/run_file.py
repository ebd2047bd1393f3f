"""The configuration of a run as a YAML file: plain values and flat lists, nothing that unfolds."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from os import PathLike, fspath
from pathlib import Path
from typing import Any, Final

import yaml

from zerolm.io.files import read_text, write_json
from zerolm.settings import shown

MAX_CONFIG_BYTES: Final = 1 << 20
HERE: Final = "{here}/"
"""In the place of the folder that a configuration lies in."""
ORIGIN: Final = ("zerolm", "machine", "date")
"""Fields of a configuration with its origin and date; a run does not use them."""


@dataclass(frozen=True)
class Attached:
    """An object that a run was given, as plain JSON for a file next to its configuration."""

    name: str
    document: Any


class PlainLoader(yaml.SafeLoader):
    """YAML without its numbers of base 60 (``4:32`` is a range, not 272), repeated keys, or nested lists."""

    def get_single_node(self) -> yaml.Node | None:
        node: yaml.Node | None = super().get_single_node()
        if isinstance(node, yaml.MappingNode):
            flat = set[int]()
            for key, value in node.value:
                if isinstance(value, yaml.CollectionNode) and id(value) not in flat:
                    flat.add(id(value))  # an alias may name it again
                    if any(not isinstance(item, yaml.ScalarNode) for item in value.value):
                        raise yaml.YAMLError(f"{shown(key.value)} is more than a list of plain values")
        return node

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen = set[str]()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode):
                if key.value in seen:
                    raise yaml.YAMLError(f"{shown(key.value)} is given twice")
                seen.add(key.value)
        return super().construct_mapping(node, deep)


PlainLoader.yaml_implicit_resolvers = {
    first: [
        (tag, pattern) for tag, pattern in resolvers if not tag.endswith((":int", ":float", ":timestamp"))
    ]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
PlainLoader.add_implicit_resolver(
    "tag:yaml.org,2002:int", re.compile(r"[-+]?(?:0|[1-9][0-9]{0,40})$"), list("-+0123456789")
)
PlainLoader.add_implicit_resolver(
    "tag:yaml.org,2002:float",
    re.compile(r"(?:[-+]?[0-9]*\.[0-9]+(?:[eE][-+]?[0-9]+)?|[-+]?\.(?:inf|nan))$"),
    list("-+.0123456789"),
)


def read_yaml(path: Path) -> dict[str, Any]:
    """Return a YAML mapping, the dashes in its names as underscores; ``ValueError`` where it is none.

    Of a folder it is that of its ``run.yaml``.
    """
    path = path / "run.yaml" if path.is_dir() else path
    try:
        document = yaml.load(read_text(path, MAX_CONFIG_BYTES), PlainLoader)
    except (OSError, ValueError, RecursionError, yaml.YAMLError) as error:
        reason = " ".join(str(error)[:500].split())
        raise ValueError(f"configuration {str(path)!r} cannot be read: {reason}") from None
    if not isinstance(document, dict):
        raise ValueError(f"configuration {str(path)!r} must be a mapping of settings to values")
    values: dict[str, Any] = {}
    for key, value in document.items():
        name = str(key).replace("-", "_")
        if name in values:
            raise ValueError(f"configuration {str(path)!r} gives {shown(name)} twice")
        lies_beside = isinstance(value, str) and value.startswith(HERE)
        values[name] = str(path.absolute().parent / value.removeprefix(HERE)) if lies_beside else value
    return values


def configured(name: str, file: str | None, typed: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of a file for the command ``name``, those ``typed`` (None: not) in their place."""
    settings = read_yaml(Path(file)) if file else {}
    command = settings.pop("command", name)
    if command != name:
        raise ValueError(f"configuration {file!r} is of {shown(command)}, not of {name!r}")
    for field in ORIGIN:
        settings.pop(field, None)
    return {**settings, **{setting: value for setting, value in typed.items() if value is not None}}


def plain(command: str, configuration: Mapping[str, Any]) -> dict[str, Any]:
    """Return the configuration of a run as its file holds it."""
    values = {name: _plain(value) for name, value in configuration.items() if value is not None}
    return {"command": command, **values}


def write_run(file: Path, document: Mapping[str, Any], configuration: Mapping[str, Any]) -> None:
    """Write the ``document`` of a run, from which it can be repeated, and the attached files next to it."""
    lines = []
    for name, value in document.items():  # a line each: lists in brackets, long texts not folded
        look: dict[str, Any] = {"default_flow_style": None if isinstance(value, list) else False}
        lines.append(yaml.safe_dump({name: value}, allow_unicode=True, width=MAX_CONFIG_BYTES, **look))
    file.write_text("".join(lines), encoding="utf-8")
    for value in configuration.values():
        if isinstance(value, Attached):
            write_json(file.parent / value.name, value.document)


def _plain(value: Any) -> Any:
    if isinstance(value, Attached):
        return HERE + value.name
    if isinstance(value, PathLike):
        return fspath(value)
    if isinstance(value, range | tuple | list):
        return _progression(value) or [_plain(item) for item in value]
    return value


def _progression(values: Sequence[Any]) -> str | None:
    """Return evenly spaced integers as they are typed, LOW:HIGH:STEP; None for other values."""
    if len(values) < 3 or any(type(value) is not int for value in values):
        return None
    steps = {after - before for before, after in pairwise(values)}
    return f"{values[0]}:{values[-1]}:{steps.pop()}" if len(steps) == 1 and max(steps) > 0 else None
