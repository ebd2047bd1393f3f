"""A kind of units within a layer: its matrices, its axes, and its number in a network."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from zerolm.families.core_sizes import CoreSizes

if TYPE_CHECKING:  # requests are imported without numpy
    from zerolm.families.family import Family


class LayerUnit(ABC):
    """A kind of units that layers may keep fewer of, such as KV groups or FFN neurons.

    ``name`` is its key in cuts and recipes. ``share`` is its name in requests and in what a family allows to
    cut; ``setting`` declares the share to keep. ``shown`` names it in messages. ``matrices`` are the roles of
    its matrices; the last one, the ``writer``, adds its output to the residual stream. Plans try steps of
    units that are ``fine``, and all numbers of others.
    """

    name: ClassVar[str]
    share: ClassVar[str]
    shown: ClassVar[str]
    matrices: ClassVar[tuple[str, ...]]
    is_fine: ClassVar[bool]
    setting: ClassVar[Any]

    @property
    def writer(self) -> str:
        """The role of the matrix that reads the outputs of the units and writes to the stream."""
        return self.matrices[-1]

    def can_be_cut(self, family: Family) -> bool:
        """Return whether the stock class of a family has fewer of them, the same number in all layers."""
        return bool(getattr(family.cut, self.share))

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
