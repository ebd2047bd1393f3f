"""Parts of a benchmark: what was measured is a line of a file, and is not measured again."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from timing import note


@dataclass(frozen=True)
class Parts:
    """Results by the names of their parts, in JSON Lines; several processes may add to one file."""

    file: Path

    def every(self) -> dict[str, Any]:
        """Return all results so far; a line that a kill cut off is none."""
        results = {}
        for line in self._text.splitlines():
            with suppress(json.JSONDecodeError):
                part = json.loads(line)
                results.pop(part["part"], None)  # the last to be measured comes last
                results[part["part"]] = part["result"]
        return results

    def stored(self, name: str) -> Any:
        """Return what a part measured earlier; None where it was not measured."""
        return self.every().get(name)

    def measured(self, name: str, measure: Callable[[], Any]) -> Any:
        """Return what a part measured, now or earlier."""
        every = self.every()
        if name in every:
            return every[name]
        note(f"{self.file.stem}: {name}")
        return self.add(name, measure())

    def add(self, name: str, result: Any) -> Any:
        """Store what a part measured, in place of what it measured earlier."""
        line = json.dumps({"part": name, "result": result})
        self.file.parent.mkdir(parents=True, exist_ok=True)
        cut = "\n" if self._text[-1:] not in ("", "\n") else ""
        with self.file.open("a", encoding="utf-8") as file:
            file.write(f"{cut}{line}\n")
        return json.loads(line)["result"]

    @property
    def _text(self) -> str:
        return self.file.read_text(encoding="utf-8") if self.file.is_file() else ""
