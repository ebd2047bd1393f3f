"""The user's cache of benchmark files."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from pathlib import Path


def cache_folder() -> Path:
    """Where downloaded benchmarks are: below ``ZEROLM_CACHE``, else ``XDG_CACHE_HOME``, else ``~/.cache``."""
    own = os.environ.get("ZEROLM_CACHE")
    if own:
        return Path(own).absolute() / "benchmarks"
    caches = os.environ.get("XDG_CACHE_HOME", "")
    if os.path.isabs(caches):  # its specification has relative ones ignored
        return Path(caches) / "zerolm" / "benchmarks"
    try:
        return Path.home() / ".cache" / "zerolm" / "benchmarks"
    except RuntimeError:
        raise ValueError("there is no home folder for the cache: set ZEROLM_CACHE") from None


def store(texts: Mapping[Path, str]) -> None:
    """Write files, each appearing complete and none before all are written."""
    written: dict[Path, Path] = {}
    try:
        for path, text in texts.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            handle, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
            written[path] = Path(name)
            with os.fdopen(handle, "w", encoding="utf-8") as file:
                file.write(text)
            os.chmod(name, 0o644)
        for path, complete in written.items():
            os.replace(complete, path)
    finally:
        for left in written.values():
            left.unlink(missing_ok=True)
