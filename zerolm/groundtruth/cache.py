"""The user's cache of benchmark files."""

from __future__ import annotations

from pathlib import Path

from zerolm.io import files


def cache_folder() -> Path:
    """Where downloaded benchmarks are."""
    return files.cache_folder("benchmarks")
