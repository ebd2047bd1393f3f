"""Where benchmark files are: the user's cache, and the package."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from zerolm.io import files

SHIPPED: Final = Path(__file__).parent / "shipped"
"""The folder of the benchmarks that come with the package."""
PACKED: Final = ".json.gz"
"""The form of those that others published, and that were converted."""


def cache_folder() -> Path:
    """Return the folder of benchmarks that the user put there."""
    return files.cache_folder("benchmarks")


def shipped_names() -> list[str]:
    """Return the names of the benchmarks that come with the package."""
    return sorted(file.name.removesuffix(PACKED).removesuffix(".json") for file in SHIPPED.glob("*.json*"))
