"""Costs know the windows of layers, and say where they do not count them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from carvings import BY_WEIGHTS
from tiny import saved


def test_windows_bound_the_cache_of_keys_and_values(zerolm: Callable[..., Any], tmp_path: Path) -> None:
    """Each of 3 layers of a mistral attends to 8 tokens; of a gemma2 some attend to all."""
    parent = str(saved(tmp_path / "mistral", "mistral"))
    flags = ("--keep-ffn", "0.5", *BY_WEIGHTS, "--context", "32", "--json")
    result = json.loads(zerolm("carve", parent, *flags).out)
    assert (
        result["costs"]["parent"]["kv_bytes"] == 3 * 8 * 2 * 2 * 8 * 2
    )  # tokens, k and v, heads, size, bytes
    assert "windows" not in result["note"]
    parent = str(saved(tmp_path / "gemma2", "gemma2"))
    file = tmp_path / "gemma2" / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"sliding_window": 8}))
    ran = zerolm("carve", parent, *flags)
    assert "counted without the windows (8 tokens) of some layers" in ran.err
    assert json.loads(ran.out)["costs"]["parent"]["kv_bytes"] == 3 * 32 * 2 * 2 * 16 * 2
    short = ("--keep-ffn", "0.5", *BY_WEIGHTS, "--context", "8", "--json")
    assert "windows" not in json.loads(zerolm("carve", parent, *short).out)["note"]
