"""Results as the verbs return them: they show, save and load themselves."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from html import escape
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final, Self, TypeVar

from pydantic import TypeAdapter, ValidationError

from zerolm.api.configuration import plain, read_yaml, write_configuration
from zerolm.groundtruth.truth import first_problem
from zerolm.io.files import parse_json, read_text
from zerolm.io.folders import new_folder
from zerolm.report.rows import short

if TYPE_CHECKING:
    import pandas

Kind = TypeVar("Kind")
MAX_RESULT_BYTES: Final = 64 << 20
MOST_LINES: Final = 15
MOST_CHARACTERS: Final = 1500
MOST_LINE: Final = 300
"""Of what ``repr`` shows, and of each line."""
MOST_ROWS: Final = 20
MOST_COLUMNS: Final = 16
MOST_CELL: Final = 50
"""Of a table in a notebook."""


class Shown(ABC):
    """A result of a verb: it shows itself in a few lines, as a table, and as JSON."""

    @abstractmethod
    def to_json(self) -> Any:
        """Return plain JSON, as ``--json`` of the command prints it."""

    @abstractmethod
    def lines(self) -> list[str]:
        """Return what ``repr`` shows: a few short lines."""

    @abstractmethod
    def rows(self) -> list[dict[str, Any]]:
        """Return the rows of ``to_pandas``."""

    @property
    def remarks(self) -> list[str]:
        """Return what the command says on stderr beside the result: warnings, and what is left out."""
        return []

    def fragment(self) -> str:
        """Return a table and, where there is one, a chart for a notebook, as HTML."""
        return table_of(self.rows())

    def to_pandas(self) -> pandas.DataFrame:
        """Return the rows as a table of pandas, which has to be installed."""
        try:
            import pandas
        except ModuleNotFoundError:
            raise ModuleNotFoundError("tables need pandas: pip install pandas") from None
        return pandas.DataFrame(self.rows())

    def __repr__(self) -> str:
        return clipped(self.lines())

    def _repr_html_(self) -> str:
        return self.fragment()


class Report(Shown):
    """A result of the command ``command``, with the ``configuration`` that it was run with."""

    command: ClassVar[str]
    configuration: Mapping[str, Any]

    @abstractmethod
    def to_json(self) -> dict[str, Any]: ...

    @abstractmethod
    def page(self) -> str:
        """Return ``report.html``: one page that needs nothing else."""

    @classmethod
    @abstractmethod
    def from_folder(cls, folder: Path, document: dict[str, Any], configuration: dict[str, Any]) -> Self:
        """Return the result that ``save`` wrote, of its ``result.json`` and ``run.yaml``."""

    @property
    def run_yaml(self) -> dict[str, Any]:
        """Return the configuration as ``save`` writes it into ``run.yaml``."""
        return plain(self.command, self.configuration)

    @property
    def written(self) -> list[str]:
        """Return the names of the files that ``save`` writes."""
        return ["report.html", "result.json", "run.yaml"]

    def rows(self) -> list[dict[str, Any]]:
        """Return the rows of ``to_pandas``."""
        raise ValueError(f"a result of {self.command} has no rows; see to_json()")

    def write_more(self, folder: Path) -> None:
        """Write further files of the command into a new folder."""
        return

    def save(self, folder: str | PathLike[str], *, force: bool = False) -> None:
        """Write what ``--out`` of the command writes; ``force`` replaces an earlier result."""
        with new_folder(Path(folder), force) as place:
            self.write_into(place)

    def write_into(self, folder: Path) -> None:
        """Write ``result.json``, ``report.html``, ``run.yaml`` and further files into an empty folder."""
        document = json.dumps(self.to_json(), indent=2, ensure_ascii=False)
        (folder / "result.json").write_text(document + "\n", encoding="utf-8", errors="surrogatepass")
        # A text of a user may hold what no encoding has; it is then written by its number.
        (folder / "report.html").write_bytes(self.page().encode("utf-8", "xmlcharrefreplace"))
        write_configuration(folder / "run.yaml", self.command, self.configuration)
        self.write_more(folder)

    @classmethod
    def load(cls, folder: str | PathLike[str]) -> Self:
        """Return the result that ``save`` wrote into a folder; ``ValueError`` where it is another's."""
        place = Path(folder)
        configuration = read_yaml(place / "run.yaml")
        command = configuration.pop("command", None)
        if command != cls.command:
            raise ValueError(f"{str(place)!r} holds a result of {command}, not of {cls.command}")
        try:
            document = parse_json(read_text(place / "result.json", MAX_RESULT_BYTES))
        except (OSError, ValueError, RecursionError) as error:
            raise ValueError(f"the result in {str(place)!r} cannot be read: {error}") from None
        try:
            return cls.from_folder(place, document, configuration)
        except (ArithmeticError, AttributeError, LookupError, OSError, TypeError, ValueError) as error:
            reason = f"{type(error).__name__}: {error}" if isinstance(error, LookupError) else str(error)
            raise ValueError(f"the result in {str(place)!r} is not one of {command}: {reason}") from None


def checked(kind: type[Kind], document: Any) -> Kind:
    """Return plain JSON as a dataclass, every field of its type; ``ValueError`` says what is wrong."""
    try:
        return TypeAdapter(kind).validate_json(json.dumps(document), strict=True)
    except ValidationError as error:
        raise ValueError(first_problem(error, "it")) from None


def clipped(lines: Sequence[str]) -> str:
    """Return lines as one text of at most 15 lines and 1,500 characters that says what it leaves out."""
    shown: list[str] = []
    left = MOST_CHARACTERS - 40  # for the line that says so
    for line in lines[: MOST_LINES - (len(lines) > MOST_LINES)]:
        text = short(line, MOST_LINE)
        left -= len(text) + 1
        if left < 0:
            break
        shown.append(text)
    more = len(lines) - len(shown)
    return "\n".join([*shown, *([f"... and {more:,} more line{'s' * (more > 1)}"] if more else [])])


def table_of(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return rows as a small HTML table, the first of them where there are many."""
    heads = list(dict.fromkeys(name for row in rows for name in row))[:MOST_COLUMNS]
    shown = [[row.get(head) for head in heads] for row in rows[:MOST_ROWS]]
    lines = [_line("th", heads), *(_line("td", cells) for cells in shown)]
    more = f"<p>and {len(rows) - MOST_ROWS:,} more</p>" if len(rows) > MOST_ROWS else ""
    return f"<table>{''.join(lines)}</table>{more}"


def _line(tag: str, cells: Sequence[Any]) -> str:
    return f"<tr>{''.join(f'<{tag}>{escape(_text(cell))}</{tag}>' for cell in cells)}</tr>"


def _text(cell: Any) -> str:
    text = "" if cell is None else f"{cell:.6g}" if isinstance(cell, float) else str(cell)
    return short(text, MOST_CELL)
