"""Results of a long run, kept one by one, so that a killed one goes on."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from zerolm.io.files import parse_json


class KeptRows:
    """Results by name, in a file with one line each; a line that is damaged, or incomplete, is ignored.

    Without a ``file`` they are kept in memory alone.
    """

    def __init__(self, file: Path | None) -> None:
        self.file, self.results = file, dict[str, Any]()
        if file is None or not file.is_file():
            return
        for line in file.read_text("utf-8", errors="replace").splitlines():
            with suppress(ValueError, KeyError, TypeError, RecursionError):
                row = parse_json(line)
                self.results[str(row["name"])] = row["result"]

    def add(self, results: Mapping[str, Any]) -> None:
        """Append results in one write, so that processes share a file; they are on disk on return."""
        self.results.update(results)
        if self.file is None:
            return
        lines = [json.dumps({"name": name, "result": result}) + "\n" for name, result in results.items()]
        with self.file.open("ab+", buffering=0) as file:
            if file.seek(0, os.SEEK_END):
                file.seek(-1, os.SEEK_END)
                if file.read(1) != b"\n":  # a kill cut the last line off
                    lines.insert(0, "\n")
            file.write("".join(lines).encode())
            os.fsync(file.fileno())
