"""Results of verbs: typed, read back as they were written, and shown by sheets and charts."""

from __future__ import annotations

import json
import os
import platform
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from datetime import UTC, datetime
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final, Self

from zerolm import __version__
from zerolm.io.plain import as_plain
from zerolm.settings import REQUIRED, Setting, shown
from zerolm.settings.request import Request
from zerolm.show.sheet import Heading, Sheet
from zerolm.show.text import clipped, sentence
from zerolm.verbs import commands

if TYPE_CHECKING:
    import pandas

FOLDER: Final = Setting("folder", "path", REQUIRED, "what save, or --out of a command, wrote", metavar="DIR")
RESULT_BYTES: Final = 64 << 20
"""The most that is read of a file of a result."""


class Shown(ABC):
    """A result that shows itself in a few lines, as sheets, as a table, and as JSON."""

    @abstractmethod
    def to_json(self) -> Any:
        """Return plain JSON, as ``--json`` of the command prints it."""

    @abstractmethod
    def lines(self) -> list[str]:
        """Return the lines of ``repr`` and of the terminal before the sheets: a few short ones."""

    def sheets(self) -> Sequence[Sheet]:
        """Return the tables and charts, in the order of the page."""
        return ()

    @abstractmethod
    def rows(self) -> list[dict[str, Any]]:
        """Return the rows of ``to_pandas``."""

    @property
    def remarks(self) -> list[str]:
        """Return the messages for stderr: warnings, and parts that were omitted."""
        return []

    def to_pandas(self) -> pandas.DataFrame:
        """Return the rows as a table of pandas, which has to be installed."""
        try:
            import pandas
        except ModuleNotFoundError:
            raise ModuleNotFoundError("tables need pandas: pip install pandas") from None
        return pandas.DataFrame(self.rows())

    def __repr__(self) -> str:
        return clipped(self.lines())

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and self.to_json() == other.to_json()

    __hash__ = None  # type: ignore[assignment]

    def _repr_html_(self) -> str:
        from zerolm.show.page import table_of

        return table_of(self.rows())


@dataclass(frozen=True, repr=False, eq=False)
class Listing(Shown):
    """Things at hand: an entry each, with its ``name``; JSON is the list of them."""

    things: ClassVar[str]
    entries: list[dict[str, Any]]

    def to_json(self) -> list[dict[str, Any]]:
        return self.entries

    def lines(self) -> list[str]:
        names = ", ".join(entry["name"] for entry in self.entries) or "none"
        return [f"{len(self.entries)} {self.things}: {names}"]

    def rows(self) -> list[dict[str, Any]]:
        """Return the entries, lists as texts, without what has fields of its own."""
        return [
            {
                name: ", ".join(map(str, value)) if isinstance(value, list | tuple) else value
                for name, value in entry.items()
                if not isinstance(value, dict)
            }
            for entry in self.entries
        ]


@dataclass(frozen=True)
class Run:
    """How a result came about: the settings of its command, the version, the machine, and the date."""

    configuration: Mapping[str, Any] = field(default_factory=dict)
    zerolm: str = __version__
    machine: str = field(default_factory=lambda: machine())
    date: str = field(default_factory=lambda: datetime.now(UTC).strftime("%Y-%m-%d"))

    @property
    def origin(self) -> str:
        """Return the origin of the result, as a sentence."""
        where = f" on {self.machine}" if self.machine else ""
        return f"Written by zerolm {self.zerolm}{where}{f', {self.date}' if self.date else ''}."


def machine() -> str:
    """Return the machine in words: its system, its processor, its cores, and the version of Python."""
    cores, python = os.cpu_count() or 1, platform.python_version()
    return f"{platform.system()} {platform.machine()}, {cores} cores, Python {python}"


def run_of(request: Request, **changes: Any) -> Run:
    """Return how a result came about by a request; ``changes`` take the place of its settings."""
    settings = request.configuration() | changes
    return Run({name: value for name, value in settings.items() if value is not None})


@dataclass(frozen=True, repr=False, eq=False)
class Report(Shown):
    """A result of the command ``command``, and the ``run`` that gave it.

    Its fields, but ``run``, are its JSON, where that of the name ``rows_field`` is called ``rows``. It is
    written as ``result.json``, ``report.html`` and ``run.yaml``.
    """

    command: ClassVar[str]
    rows_field: ClassVar[str] = "rows"
    run: Run = field(default_factory=Run, kw_only=True)

    @abstractmethod
    def heading(self) -> Heading:
        """Return the first lines of the page."""

    def finding(self) -> str:
        """Return the lines as sentences, for the heading."""
        return " ".join(map(sentence, self.lines()))

    def to_json(self) -> dict[str, Any]:
        names = [item.name for item in fields(self) if item.name != "run"]
        return {"rows" if name == self.rows_field else name: as_plain(getattr(self, name)) for name in names}

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> Self:
        """Return the result that ``to_json`` wrote; ``ValueError`` names the field that is wrong."""
        from zerolm.io.plain import checked

        renamed = {cls.rows_field if name == "rows" else name: value for name, value in document.items()}
        return checked(cls, renamed)

    @property
    def configuration(self) -> Mapping[str, Any]:
        return self.run.configuration

    @property
    def run_yaml(self) -> dict[str, Any]:
        """Return the configuration as ``save`` writes it into ``run.yaml``, without what made it."""
        from zerolm.verbs.run_file import plain

        return plain(self.command, self.run.configuration)

    @property
    def written(self) -> list[str]:
        """Return the names of the files that ``save`` writes."""
        return ["report.html", "result.json", "run.yaml"]

    def rows(self) -> list[dict[str, Any]]:
        raise ValueError(f"a result of {self.command} has no rows; see to_json()")

    def page(self) -> str:
        """Return ``report.html``: one page that needs nothing else."""
        from zerolm.show.page import page

        return page(self.command, self.heading(), self.sheets(), self.run_yaml, self.run.origin)

    def _repr_html_(self) -> str:
        from zerolm.show.page import fragment

        return fragment(self.heading().finding, self.sheets())

    def write_more(self, folder: Path) -> None:
        """Write further files of the command into a new folder."""
        return

    def save(self, folder: str | PathLike[str], *, force: bool = False) -> None:
        """Write what ``--out`` of the command writes; ``force`` replaces an earlier result."""
        from zerolm.io.folders import new_folder

        with new_folder(Path(folder), force) as place:
            self.write_into(place)

    def write_into(self, folder: Path) -> None:
        """Write ``result.json``, ``report.html``, ``run.yaml`` and further files into an empty folder."""
        from zerolm.verbs.run_file import ORIGIN, write_run

        document = json.dumps(self.to_json(), indent=2, ensure_ascii=False)
        (folder / "result.json").write_text(document + "\n", encoding="utf-8", errors="surrogatepass")
        # A text of a user may hold what no encoding has; it is then written by its number.
        (folder / "report.html").write_bytes(self.page().encode("utf-8", "xmlcharrefreplace"))
        origin = {name: getattr(self.run, name) for name in ORIGIN}
        write_run(folder / "run.yaml", self.run_yaml | origin, self.run.configuration)
        self.write_more(folder)

    @classmethod
    def load(cls, folder: str | PathLike[str]) -> Self:
        """Return the result that ``save`` wrote into a folder; ``ValueError`` where it is another's."""
        from zerolm.io.files import parse_json, read_text
        from zerolm.verbs.run_file import ORIGIN, read_yaml

        place = Path(folder)
        configuration = read_yaml(place / "run.yaml")
        command = configuration.pop("command", None)
        if command != cls.command:
            raise ValueError(f"{str(place)!r} holds a result of {command}, not of {cls.command}")
        origin = {name: str(configuration.pop(name, "")) for name in ORIGIN}
        try:
            document = parse_json(read_text(place / "result.json", RESULT_BYTES))
        except (OSError, ValueError, RecursionError) as error:
            raise ValueError(f"the result in {str(place)!r} cannot be read: {error}") from None
        try:
            report = cls.from_json(document)
            report.lines()[0], report.sheets()
        except Exception as error:  # what cannot be shown, for whatever reason, is no result
            reason = f"{type(error).__name__}: {error}" if isinstance(error, LookupError) else str(error)
            raise ValueError(f"the result in {str(place)!r} is not one of {command}: {reason}") from None
        return replace(report, run=Run(configuration, **origin))


def load(folder: str | PathLike[str]) -> Any:
    """Return the result that ``save``, or ``--out`` of a command, wrote into a folder.

    It is of the class of its command, so type checkers take it for anything; ``SearchReport.load(folder)``
    and the like are typed. It gives the same JSON, table and page as before. Raises ``ValueError`` for a
    folder that holds no result.
    """
    from zerolm.verbs.run_file import read_yaml

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
