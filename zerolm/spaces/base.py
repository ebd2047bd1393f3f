"""What a search space is: backbones (global choices) whose layers choose among candidates."""

from __future__ import annotations

import inspect
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Self, TypeVar

import numpy as np

from zerolm.architecture import MAX_DEPTH as MAX_DEPTH
from zerolm.architecture import MAX_VOCAB as MAX_VOCAB
from zerolm.architecture import MAX_WIDTH as MAX_WIDTH
from zerolm.architecture import Architecture, Ends, Floats, Ints, Layer, Shapes

Number = TypeVar("Number", int, float)


@dataclass(frozen=True, eq=False)
class Candidates:
    """What one layer may be, grouped by shape.

    ``alternatives[i]`` are all ways to choose ``layers[i]``, the preferred one first.
    """

    alternatives: tuple[tuple[dict[str, Any], ...], ...]
    layers: tuple[Layer, ...]

    @classmethod
    def of(cls, options: Sequence[tuple[dict[str, Any], Layer]]) -> Self:
        """Group (choice, layer) pairs by layer; the first choice of a shape is preferred."""
        ways: dict[Layer, list[dict[str, Any]]] = {}
        for choice, layer in options:
            ways.setdefault(layer, []).append(choice)
        return cls(tuple(map(tuple, ways.values())), tuple(ways))

    @cached_property
    def choices(self) -> tuple[dict[str, Any], ...]:
        """The preferred way to choose each layer."""
        return tuple(choices[0] for choices in self.alternatives)

    @cached_property
    def multiplicity(self) -> tuple[int, ...]:
        """How many ways there are to choose each layer."""
        return tuple(map(len, self.alternatives))

    @cached_property
    def shapes(self) -> Shapes:
        return Shapes.of(self.layers)

    @property
    def ways(self) -> int:
        return sum(self.multiplicity)


@dataclass(frozen=True, eq=False)
class ChoiceBlock:
    """``count`` layers that choose among the same candidates: each for itself, or all alike (``tied``)."""

    candidates: Candidates
    count: int
    tied: bool = False

    @property
    def size(self) -> int:
        return self.candidates.ways if self.tied else self.candidates.ways**self.count


@dataclass(frozen=True, eq=False)
class Backbone:
    """Global choices (plain JSON), the parts outside the layers, and the blocks of layers.

    ``width`` is the mean over the layers of the residual stream's size.
    """

    choices: dict[str, Any]
    width: float
    ends: Ends
    blocks: tuple[ChoiceBlock, ...]

    @property
    def depth(self) -> int:
        return sum(block.count for block in self.blocks)

    @property
    def size(self) -> int:
        return math.prod(block.size for block in self.blocks)


@dataclass(frozen=True, eq=False)
class CandidateTable:
    """The columns of a choice block that solvers see.

    ``score`` (c,) float64 and ``costs`` (c, k) int64 are what one chosen candidate adds;
    ``multiplicity`` (c,) counts the ways to choose each.
    """

    score: Floats
    costs: Ints
    multiplicity: tuple[int, ...]

    def __len__(self) -> int:
        return len(self.score)


@dataclass(frozen=True)
class Bound:
    """A limit of a space that an architecture touches, and the space with that limit 10 % wider."""

    name: str
    at: float
    wider_to: float
    wider: SearchSpace


class SearchSpace(ABC):
    """A set of architectures. Subclasses take their ranges and settings as keyword arguments."""

    name: ClassVar[str]
    summary: ClassVar[str]
    listed: ClassVar[tuple[str, ...]] = ()
    """Settings that list real numbers; two real numbers in another are the ends of an interval."""
    settings: dict[str, Any]
    """The ranges and settings in force, plain JSON; ``type(self)(**settings)`` rebuilds the space."""

    @abstractmethod
    def backbones(self) -> Iterator[Backbone]:
        """Every backbone; those that share layer candidates share the ``Candidates`` object."""

    @abstractmethod
    def read(self, choices: Mapping[str, Any]) -> Architecture:
        """The architecture with these choices (plain JSON); ``ValueError`` if they make no sense."""

    @abstractmethod
    def join(self, backbone: Backbone, layers: Sequence[dict[str, Any]]) -> dict[str, Any]:
        """The choices of an architecture from those of its backbone and of each layer."""

    def size(self) -> int:
        """The number of architectures, exactly."""
        return sum(backbone.size for backbone in self.backbones())

    def bounds(self, architecture: Architecture) -> Iterator[Bound]:
        """The limits of the ranges that ``architecture`` touches."""
        yield from ()

    def blind_spots(self) -> str:
        """What the choices contain that no score of shapes can judge."""
        return ""

    def config(self, architecture: Architecture) -> dict[str, Any] | None:
        """A Hugging Face configuration that builds the architecture, or None where no stock class can."""
        return None

    def assemble(self, backbone: Backbone, picks: Sequence[Sequence[int]]) -> Architecture:
        """The architecture that picks candidate ``picks[b][i]`` in the i-th layer of block b.

        A tied block takes one pick.
        """
        layers: list[dict[str, Any]] = []
        for block, chosen in zip(backbone.blocks, picks, strict=True):
            repeat = block.count if block.tied else 1
            layers += [block.candidates.choices[i] for i in chosen for _ in range(repeat)]
        return self.read(self.join(backbone, layers))

    def widened(self, name: str, side: int) -> tuple[SearchSpace, float]:
        """The space with the range ``name`` 10 % (at least one step) wider at one side (-1 or 1)."""
        values = self.settings[name]
        interval = len(values) == 2 and _is_real(values) and name not in self.listed
        wider = widen_interval(values, side) if interval else widen(values, side)
        return type(self)(**{**self.settings, name: wider}), wider[0 if side < 0 else -1]

    def touched(self, name: str, value: float, attainable: Sequence[float]) -> Iterator[Bound]:
        """The bound of range ``name`` if ``value`` lies at an end of what is ``attainable``."""
        for side, end in ((-1, min(attainable)), (1, max(attainable))):
            if value != end:
                continue
            try:
                wider, to = self.widened(name, side)
            except ValueError:
                continue
            yield Bound(f"{name} {'>=' if side < 0 else '<='} {end:g}", end, to, wider)


def _is_real(values: Sequence[float]) -> bool:
    return any(isinstance(value, float) for value in values)


def widen(values: Sequence[float], side: int) -> list[float]:
    """Sorted numbers, continued by at least one step and by 10 % of the end value."""
    values = sorted(values, reverse=side < 0)
    end = values[-1]
    step = abs(end - values[-2]) if len(values) > 1 else max(1, end // 10)
    extra = [end + side * step * i for i in range(1, max(1, int(end // (10 * step))) + 1)]
    positive = [value for value in extra if value > 0]
    if not positive:
        raise ValueError(f"nothing below {end}")
    return sorted([*values, *positive])


def widen_interval(values: Sequence[float], side: int) -> list[float]:
    low, high = values
    return [low * 0.9, high] if side < 0 else [low, high * 1.1]


_REGISTRY: dict[str, type[SearchSpace]] = {}


def space(cls: type[SearchSpace]) -> type[SearchSpace]:
    """Register a search space under its name."""
    if cls.name in _REGISTRY:
        raise ValueError(f"a space named {cls.name!r} is registered already")
    _REGISTRY[cls.name] = cls
    return cls


def space_names() -> list[str]:
    return list(_REGISTRY)


def space_class(name: str) -> type[SearchSpace]:
    if name not in _REGISTRY:
        raise ValueError(f"space {name!r} is not known; there are {', '.join(_REGISTRY)}")
    return _REGISTRY[name]


def space_settings(name: str) -> list[str]:
    """The settings that a space takes."""
    return [p for p in inspect.signature(space_class(name).__init__).parameters if p != "self"]


def make_space(name: str, **settings: Any) -> SearchSpace:
    """The space ``name`` with these ranges and settings in place of its defaults."""
    known = space_settings(name)
    for setting in settings:
        if setting not in known:
            raise ValueError(f"space {name!r} has no setting {setting!r}; it has {', '.join(known)}")
    return space_class(name)(**settings)


def integers(name: str, values: Sequence[int], low: int = 1, high: int = MAX_WIDTH) -> tuple[int, ...]:
    """Sorted distinct integers within [low, high]; ``ValueError`` for none or others."""
    if isinstance(values, str) or not isinstance(values, Sequence):
        raise ValueError(f"the range of {name} must be a list of integers, not {_short(values)}")
    if not values:
        raise ValueError(f"the range of {name} is empty; give at least one integer from {low} to {high}")
    for value in values:
        integer(name, value, low, high)
    return tuple(sorted(set(values)))


def integer(name: str, value: Any, low: int = 1, high: int = MAX_WIDTH) -> int:
    if isinstance(value, bool) or not isinstance(value, int | np.integer):
        raise ValueError(f"{name} must be an integer, not {_short(value)}")
    if not low <= value <= high:
        raise ValueError(f"{name} must be an integer from {low} to {high}, not {_short(int(value))}")
    return int(value)


def _short(value: Any) -> str:
    """A value as a message shows it, whatever its size."""
    if isinstance(value, int) and abs(value) >= 10**40:
        return "one of more than 40 digits"
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."


def numbers(name: str, values: Sequence[float]) -> tuple[float, ...]:
    """Sorted distinct positive numbers; ``ValueError`` for none or others."""
    if isinstance(values, str) or not isinstance(values, Sequence):
        raise ValueError(f"the range of {name} must be a list of positive numbers, not {_short(values)}")
    if not values:
        raise ValueError(f"the range of {name} is empty; give at least one positive number")
    return tuple(sorted({number(name, value) for value in values}))


def number(name: str, value: Any) -> float:
    """A positive number, as it is: an integer stays one."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= MAX_WIDTH:
        raise ValueError(f"{name} must be a positive number up to {MAX_WIDTH}, not {_short(value)}")
    return value


def truth(name: str, value: Any) -> bool:
    if not isinstance(value, bool):
        raise ValueError(f"{name} must be true or false, not {value!r}")
    return value


def interval(name: str, values: Sequence[float]) -> tuple[float, float]:
    """A pair low <= high of positive finite numbers."""
    try:
        low, high = (float(value) for value in values)
    except (OverflowError, TypeError, ValueError):
        low, high = 0.0, 0.0
    if not 0 < low <= high < math.inf:
        raise ValueError(f"{name} must be two positive numbers LOW:HIGH, not {str(values)[:80]}")
    return low, high


def field(choices: Mapping[str, Any], name: str) -> Any:
    if name not in choices:
        raise ValueError(
            f"the architecture lacks {name!r}; it has {', '.join(map(repr, choices)) or 'no fields'}"
        )
    return choices[name]


def no_others(choices: Mapping[str, Any], known: Sequence[str]) -> None:
    unknown = [str(name) for name in choices if name not in known]
    if unknown:
        raise ValueError(
            f"the architecture has an unknown field {unknown[0]!r}; known are {', '.join(known)}"
        )


def each_layer(name: str, value: Any, depth: int, check: Callable[[str, Any], Number]) -> tuple[Number, ...]:
    """One number for all ``depth`` layers, or a list of one a layer, as a tuple."""
    values = value if isinstance(value, list | tuple) else [value] * depth
    if len(values) != depth:
        raise ValueError(f"{name} lists {len(values)} layers, but the depth is {depth}")
    return tuple(check(name, item) for item in values)


def alike(values: Sequence[int]) -> int | list[int]:
    """One number where all layers agree, else the list."""
    return values[0] if len(set(values)) == 1 else list(values)
