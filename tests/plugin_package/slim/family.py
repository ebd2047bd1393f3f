"""A family whose configuration has names of its own."""

from __future__ import annotations

import json
from importlib.resources import files
from typing import Any

DOCUMENT: dict[str, Any] = json.loads((files("slim") / "slimlm.json").read_text("utf-8"))
