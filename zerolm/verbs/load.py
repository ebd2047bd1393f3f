"""``zerolm.load``: a result from the folder that it was written into."""

from __future__ import annotations

from os import PathLike
from pathlib import Path
from typing import Any, Final

from zerolm.settings import REQUIRED, Setting, shown
from zerolm.verbs import commands
from zerolm.verbs.report import Report
from zerolm.verbs.run_file import read_yaml

FOLDER: Final = Setting("folder", "path", REQUIRED, "what save, or --out of a command, wrote", metavar="DIR")


def load(folder: str | PathLike[str]) -> Any:
    """Return the result that ``save``, or ``--out`` of a command, wrote into a folder.

    It is of the class of its command, so type checkers take it for anything; ``SearchReport.load(folder)``
    and the like are typed. It gives the same JSON, table and page as before. Raises ``ValueError`` for a
    folder that holds no result.
    """
    place = Path(FOLDER.parse(folder))
    if not (place / "run.yaml").is_file():
        raise ValueError(f"{str(place)!r} holds no result: it has no run.yaml")
    name = read_yaml(place / "run.yaml").get("command")
    verbs = commands(name.split(" ")[0]) if isinstance(name, str) else {}
    if not isinstance(name, str) or name not in verbs:
        raise ValueError(f"{str(place)!r} holds no result of a command, but of {shown(name)}")
    kind = verbs[name].report
    if not issubclass(kind, Report):
        raise ValueError(f"{str(place)!r} holds no result: {name} writes none")
    return kind.load(place)
