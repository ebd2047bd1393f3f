"""The kinds of units within layers, in the order in which the sizes of a layer are listed."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Final

from zerolm.families.core_sizes import CoreSizes
from zerolm.settings.request import setting

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


class Groups(LayerUnit):
    """One key/value head with its ``heads // kv_heads`` query heads; without grouped queries one head."""

    name = "groups"
    share = "heads"
    shown = "KV groups"
    matrices = ("q", "k", "v", "o")
    is_fine = False
    setting = setting(
        "number", None, "share of KV groups (a KV head with its query heads) to keep",
        name="keep_heads", low=0, high=1,
    )  # fmt: skip

    def count(self, sizes: CoreSizes) -> int:
        return sizes.kv_heads

    def counted(self, sizes: CoreSizes) -> Mapping[str, int]:
        return {"heads": sizes.heads // sizes.kv_heads, "kv_heads": 1}

    def axes(self, sizes: CoreSizes) -> Mapping[str, tuple[str, int]]:
        return {"q": ("heads", sizes.head_size), "kv": ("kv_heads", sizes.head_size)}

    def row(self, sizes: CoreSizes, role: str) -> int:
        return sizes.head_size * (sizes.heads // sizes.kv_heads if role in ("q", "o") else 1)


class Neurons(LayerUnit):
    """One neuron of an FFN, or of the shared expert that a family counts as its FFN."""

    name = "ffn"
    share = "ffn"
    shown = "FFN neurons"
    matrices = ("gate", "up", "down")
    is_fine = True
    setting = setting("number", None, "share of FFN neurons to keep", name="keep_ffn", low=0, high=1)

    def count(self, sizes: CoreSizes) -> int:
        return sizes.ffn

    def counted(self, sizes: CoreSizes) -> Mapping[str, int]:
        return {"ffn": 1}

    def axes(self, sizes: CoreSizes) -> Mapping[str, tuple[str, int]]:
        return {"ffn": ("ffn", 1)}


UNITS: Final[tuple[LayerUnit, ...]] = (Groups(), Neurons())
NAMES: Final = tuple(unit.name for unit in UNITS)
LayerSizes = tuple[int, ...]
"""The number of units that a layer keeps of each of ``UNITS``."""


def unit_of_role(role: str) -> LayerUnit:
    """Return the units of a layer's matrix with this role, such as ``gate`` or ``q+k+v``."""
    first = role.partition("+")[0]
    return next(unit for unit in UNITS if first in unit.matrices)
