"""A kind of units within a layer: its matrices, its axes, and its number in a network."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import ClassVar

from zerolm.families.config import CoreSizes


class LayerUnit(ABC):
    """A kind of units that layers may keep fewer of, such as KV groups or FFN neurons.

    ``name`` is its key in cuts and recipes. ``share`` is its name in ``--keep-...`` and in what a family
    allows to cut. ``shown`` names it in messages, ``axis`` a row of its writer. ``matrices`` are the roles of
    its matrices; the last one, the ``writer``, adds its output to the residual stream.
    """

    name: ClassVar[str]
    share: ClassVar[str]
    shown: ClassVar[str]
    axis: ClassVar[str]
    matrices: ClassVar[tuple[str, ...]]

    @property
    def writer(self) -> str:
        """The role of the matrix that reads the outputs of the units and writes to the stream."""
        return self.matrices[-1]

    @abstractmethod
    def count(self, sizes: CoreSizes) -> int:
        """Return the number of units in a layer of a network of these sizes."""

    @abstractmethod
    def counted(self, sizes: CoreSizes) -> Mapping[str, int]:
        """Return the sizes of a configuration that the units make up, with what one unit adds to each."""

    @abstractmethod
    def axes(self, sizes: CoreSizes) -> Mapping[str, tuple[str, int]]:
        """Return by the label of an axis the size along it, and the number of its elements for each."""

    def row(self, sizes: CoreSizes, role: str) -> int:
        """Return the number of elements that one unit has along its axis of the matrix with a role."""
        return 1
