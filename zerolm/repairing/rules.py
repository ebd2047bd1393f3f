"""The repairs by name: each solves the output matrices of a layer through its walk."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol

from zerolm.registry import Entry, Registry


class Solving(Protocol):
    """Solves the output matrices of a layer (``walk.Walk``)."""

    def add_means(self, layer: int) -> None: ...

    def in_order(self, layer: int) -> None: ...


Rule = Callable[[Solving, int], None]
"""A function of the walk and a layer that solves the layer's matrices in place."""
REPAIRS: Final[Registry[Rule]] = Registry("repair")


def none(walk: Solving, layer: int) -> None:
    """Keep the parent's columns."""


def bias(walk: Solving, layer: int) -> None:
    """Add the mean output of the removed inputs in the parent to the bias, where there is one."""
    walk.add_means(layer)


def least_squares(walk: Solving, layer: int) -> None:
    """Refit the columns on the inputs from the carved layers before."""
    walk.in_order(layer)


REPAIRS.add(Entry("none", none, "nothing is changed"))
REPAIRS.add(Entry("bias", bias, "means of what is dropped", ("tokens", "torch")))
REPAIRS.add(Entry("least-squares", least_squares, "ridge regression on tokens", ("tokens", "torch")))
