"""What third parties add through entry points."""

from __future__ import annotations

from importlib.metadata import entry_points


def load_group(group: str) -> None:
    """Import every plug-in of a group of entry points; ``ValueError`` names one that cannot be loaded."""
    for point in entry_points(group=group):
        try:
            point.load()
        except Exception as error:
            raise ValueError(f"plug-in {point.name!r} of {group} cannot be loaded: {error}") from None
