"""The benchmarks that ``bench`` and ``ablate`` are given, as their run can be repeated."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from zerolm.api.configuration import absolute
from zerolm.groundtruth.reader import chosen, is_file_name, same_folders


def benchmarks(own: Mapping[str, Any]) -> tuple[list[str], dict[str, Any]]:
    """Return the benchmarks that are meant, and the settings that mean the same wherever they are read."""
    names = chosen(own["names"] or (), own["data"], every=own["all"])
    by_name = [name for name in names if not is_file_name(name)]
    data = same_folders(own["data"]) if by_name or own["data"] else None
    listed = [absolute(name) if is_file_name(name) else name for name in own["names"] or ()]
    return names, {"names": listed or None, "data": data}


def left_out(problems: list[str], every: bool) -> Any:
    """Return what notes why a benchmark of the folder is passed over; None where none may be."""
    return (lambda error: problems.append(f"left out: {error}")) if every else None
