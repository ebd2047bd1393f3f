"""``zerolm --version``."""

from __future__ import annotations

import platform
import re
from importlib import metadata


def version_text() -> str:
    """Return the versions of zerolm and Python, and of what brings each extra; nothing is imported."""
    from zerolm import __version__

    lines = [f"zerolm {__version__}, Python {platform.python_version()}"]
    extras = _extras()
    width = max(map(len, extras), default=0)
    for extra, names in extras.items():
        versions = {name: _version(name) for name in names}
        missing = [name for name, version in versions.items() if version is None]
        text = ", ".join(f"{name} {version}" for name, version in versions.items() if version)
        if missing:
            text = f"not installed: pip install 'zerolm[{extra}]' (lacks {', '.join(missing)})"
        lines.append(f"  {extra:<{width}}  {text}")
    return "\n".join(lines)


def _extras() -> dict[str, list[str]]:
    """Return the packages of each extra, those of extras that it includes left out."""
    try:
        declared = metadata.metadata("zerolm")
        required = metadata.requires("zerolm") or []
    except metadata.PackageNotFoundError:  # run from its source
        return {}
    extras: dict[str, list[str]] = {name: [] for name in sorted(declared.get_all("Provides-Extra") or [])}
    for line in required:
        name = re.match(r"[\w.-]+", line)
        marker = re.search(r"""extra\s*==\s*["']([\w.-]+)["']""", line)
        if name and marker and name[0] != "zerolm":
            extras[marker[1]].append(name[0])
    return extras


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None
