"""The names of the laboratory's own proxies, without importing torch: for the Tab key."""

from __future__ import annotations

import re
from pathlib import Path


def defined_names() -> list[str]:
    """Return the names that the modules of ``definitions`` register, read from their text."""
    files = sorted((Path(__file__).parent / "definitions").glob("*.py"))
    texts = (file.read_text(encoding="utf-8") for file in files)
    return [name for text in texts for name in re.findall(r'^@proxy\(\s*"([a-z0-9_]+)"', text, re.MULTILINE)]
