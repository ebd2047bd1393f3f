"""``zerolm spaces``."""

from __future__ import annotations

import json
from typing import Annotated, Any

import typer

from zerolm.settings import REQUIRED, Setting
from zerolm.spaces import SPACES, make_space


def spaces(
    name: Annotated[str | None, typer.Argument(help="One of them: its settings are listed.")] = None,
    json_output: Annotated[bool, typer.Option("--json", help="JSON: an array, or an object.")] = False,
) -> None:
    """List the search spaces with their exact size, or the settings of one."""
    if name is not None:
        show_settings(name, json_output)
        return
    known = [make_space(name) for name in SPACES]
    if json_output:
        print(json.dumps([_row(space.name) | {"settings": space.settings} for space in known]))
        return
    width = max(len(f"{space.size():,}") for space in known)
    for space in known:
        print(f"{space.name:<15} {space.size():>{width},}  {space.summary}")


def show_settings(name: str, json_output: bool) -> None:
    """Print the settings of one space: its flags, what they take, their defaults, what they are."""
    declared = SPACES[name].declared
    if json_output:
        print(json.dumps(_row(name) | {"settings": [_document(setting) for setting in declared]}))
        return
    print(f"{name}: {SPACES[name].summary}")
    cells = [("--" + s.name.replace("_", "-"), s.placeholder, s.default_text) for s in declared]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    for setting, row in zip(declared, cells, strict=True):
        print("  " + "  ".join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True)), end="  ")
        print(setting.help)


def _row(name: str) -> dict[str, Any]:
    return {"name": name, "size": make_space(name).size(), "summary": SPACES[name].summary}


def _document(setting: Setting) -> dict[str, Any]:
    default = None if setting.default is REQUIRED else setting.default
    return {
        "name": setting.name,
        "kind": setting.kind,
        "default": list(default) if isinstance(default, range | tuple) else default,
        "help": setting.help,
        "choices": list(setting.choices),
    }
