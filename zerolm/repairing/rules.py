"""The repairs of output matrices by name."""

from __future__ import annotations

from typing import Final

from zerolm.registry import Entry, Registry

REPAIRS: Final[Registry[None]] = Registry("repair")
REPAIRS.add(Entry("none", None, "nothing is changed"))
REPAIRS.add(Entry("least-squares", None, "ridge regression on tokens", ("tokens", "torch")))
