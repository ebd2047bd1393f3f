"""Results as the verbs return them: they show, save and load themselves."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Mapping
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self

from zerolm.api.configuration import read_yaml, write_configuration
from zerolm.io.files import parse_json, read_text
from zerolm.io.folders import new_folder

if TYPE_CHECKING:
    import pandas

MAX_RESULT_BYTES = 64 << 20


class Report(ABC):
    """A result of the command ``command``, with the ``configuration`` that it was run with."""

    command: ClassVar[str]
    configuration: Mapping[str, Any]

    @abstractmethod
    def to_json(self) -> dict[str, Any]:
        """Return plain JSON, as ``--json`` of the command prints it."""

    @abstractmethod
    def lines(self) -> list[str]:
        """Return what ``repr`` shows: a few short lines."""

    @abstractmethod
    def page(self) -> str:
        """Return ``report.html``: one page that needs nothing else."""

    @abstractmethod
    def fragment(self) -> str:
        """Return a table and a chart for a notebook, as HTML."""

    @classmethod
    @abstractmethod
    def from_folder(cls, folder: Path, document: dict[str, Any], configuration: dict[str, Any]) -> Self:
        """Return the result that ``save`` wrote, of its ``result.json`` and ``run.yaml``."""

    @property
    def written(self) -> list[str]:
        """Return the names of the files that ``save`` writes."""
        return ["report.html", "result.json", "run.yaml"]

    @property
    def remarks(self) -> list[str]:
        """Return what the command line says beside the result, on stderr."""
        return []

    def rows(self) -> list[dict[str, Any]]:
        """Return the rows of ``to_pandas``."""
        raise ValueError(f"a result of {self.command} has no rows; see to_json()")

    def write_more(self, folder: Path) -> None:
        """Write further files of the command into a new folder."""
        return

    def to_pandas(self) -> pandas.DataFrame:
        """Return the rows as a table of pandas, which has to be installed."""
        try:
            import pandas
        except ModuleNotFoundError:
            raise ModuleNotFoundError("tables need pandas: pip install pandas") from None
        return pandas.DataFrame(self.rows())

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
        except (LookupError, TypeError, AttributeError) as error:
            raise ValueError(f"the result in {str(place)!r} is not one of {command}: {error!r}") from None

    def __repr__(self) -> str:
        return "\n".join(self.lines())

    def _repr_html_(self) -> str:
        return self.fragment()
