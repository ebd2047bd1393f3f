"""The repairs by name: each solves the output matrices of a layer, whose walk it is given."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol

from zerolm.registry import Entry, Registry


class Solving(Protocol):
    """Solves the output matrices of a layer (``walk.Walk``)."""

    def on_parent(self, layer: int, *, bias_only: bool) -> None: ...

    def in_order(self, layer: int) -> None: ...


Rule = Callable[[Solving, int, bool], None]
"""From the walk, a layer, and whether tokens are few, to what is solved in place."""
REPAIRS: Final[Registry[Rule]] = Registry("repair")


def none(walk: Solving, layer: int, few: bool) -> None:
    """Leave the parent's columns."""


def bias(walk: Solving, layer: int, few: bool) -> None:
    """Add the mean of what the dropped inputs sent in the parent to the bias, where there is one."""
    walk.on_parent(layer, bias_only=True)


def least_squares(walk: Solving, layer: int, few: bool) -> None:
    """Solve the columns again, on what the carved layers before send, or on few tokens the parent's."""
    if few:
        walk.on_parent(layer, bias_only=False)
    else:
        walk.in_order(layer)


REPAIRS.add(Entry("none", none, "nothing is changed"))
REPAIRS.add(Entry("bias", bias, "means of what is dropped", ("tokens", "torch")))
REPAIRS.add(Entry("least-squares", least_squares, "ridge regression on tokens", ("tokens", "torch")))
