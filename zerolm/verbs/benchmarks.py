"""The benchmarks that ``bench run`` and ``lab ablate`` are of."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from zerolm.settings.kinds import absolute
from zerolm.settings.request import argument, setting
from zerolm.verbs.shared import data, metric


@dataclass(frozen=True)
class Benchmarks:
    """Benchmarks by name or file, or all at hand, and the result that counts."""

    names: tuple[str, ...] | None = argument("names", None, "benchmarks, by name or file", metavar="NAME")
    all: bool = setting(
        "flag",
        False,
        "use every benchmark of the data folders; unreadable ones are skipped",
        group="Benchmarks",
    )
    data: str | None = data()
    metric: str | None = metric()

    def chosen(self) -> tuple[list[str], dict[str, Any]]:
        """Return the benchmarks that are meant, and the settings that repeat the run anywhere."""
        from zerolm.groundtruth.reader import chosen, is_file_name, same_folders

        names = chosen(self.names or (), self.data, every=self.all)
        is_looked_up = any(not is_file_name(name) for name in names)
        folders = same_folders(self.data) if is_looked_up or self.data else None
        files = [absolute(name) if is_file_name(name) else name for name in self.names or ()]
        return names, {"names": files or None, "data": folders}

    def noting(self, problems: list[str]) -> Callable[[ValueError], None] | None:
        """Return a function that notes why a benchmark is left out; None where none may be."""
        return (lambda error: problems.append(f"left out: {error}")) if self.all else None
