"""``zerolm.load``."""

from __future__ import annotations

from importlib import import_module
from os import PathLike
from pathlib import Path
from typing import get_type_hints

from zerolm.api.configuration import read_yaml
from zerolm.api.report import Report
from zerolm.commands import COMMANDS
from zerolm.settings import Setting, shown

FOLDER = Setting("folder", "path", None, "what save, or --out of a command, wrote", metavar="DIR")


def load(folder: str | PathLike[str]) -> Report:
    """Return the result that ``save``, or ``--out`` of a command, wrote into a folder.

    It is of the same class, and gives the same JSON, table and page. Raises ``ValueError`` for a folder that
    holds no result.
    """
    place = Path(FOLDER.parse(folder) or "")
    if not (place / "run.yaml").is_file():
        raise ValueError(f"{str(place)!r} holds no result: it has no run.yaml")
    name = read_yaml(place / "run.yaml").get("command")
    if not isinstance(name, str) or name not in COMMANDS:
        raise ValueError(f"{str(place)!r} holds no result of a command, but of {shown(name)}")
    module, verb = COMMANDS[name].verb.split(":")
    kind = get_type_hints(getattr(import_module(module), verb))["return"]
    if not (isinstance(kind, type) and issubclass(kind, Report)):
        raise ValueError(f"{str(place)!r} holds no result: {name} writes none")
    return kind.load(place)
