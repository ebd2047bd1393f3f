"""A search space: its settings, its backbones, and the architectures that choices give."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final, Self

from zerolm.architecture import Architecture
from zerolm.families.family import Task
from zerolm.io.brief import brief
from zerolm.registry import Entry, Registry
from zerolm.settings import Setting, check_settings
from zerolm.spaces.candidates import Backbone


@dataclass(frozen=True)
class Bound:
    """A limit of a space, and the space with that limit wider: by 10 %, or a range opened whole."""

    name: str
    at: float | str
    wider_to: float | str
    wider: SearchSpace


class SearchSpace(ABC):
    """A set of architectures.

    A subclass declares its ``settings`` as ``declared``; they are keyword arguments, and attributes of the
    same names hold their values, ranges as sorted tuples. ``network`` names the function that builds a
    network of an architecture, as ``module:function``, and ``task`` what that network predicts; a space
    whose networks cannot be built has neither.
    """

    name: ClassVar[str]
    summary: ClassVar[str]
    declared: ClassVar[tuple[Setting, ...]] = ()
    task: ClassVar[Task] = "next"
    network: ClassVar[str] = ""
    is_of_one_parent: ClassVar[bool] = False
    """Whether its settings say which network it is cut out of: labels of another mean nothing here."""
    settings: dict[str, Any]
    """The ranges and settings in force, plain JSON; ``type(self)(**settings)`` rebuilds the space."""

    def __init__(self, /, **settings: Any) -> None:
        """Take settings in place of the declared defaults; ``ValueError`` names what is not possible."""
        values = self.completed(check_settings(f"space {self.name!r}", self.declared, settings))
        self.settings = {name: list(v) if isinstance(v, tuple) else v for name, v in values.items()}
        methods = {name for name in values if callable(getattr(type(self), name, None))}  # autoformer's size
        vars(self).update({name: values[name] for name in values.keys() - methods})
        self.check()

    def __repr__(self) -> str:
        return brief(self, ", ".join(f"{name}={value!r}" for name, value in self.settings.items()))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, type(self)) and type(self) is type(other) and self.settings == other.settings

    def __hash__(self) -> int:
        return hash((type(self), *self.settings))

    @property
    def plain(self) -> dict[str, Any]:
        """Return its name and settings, as JSON has them."""
        return {"name": self.name, "settings": self.settings}

    def completed(self, values: dict[str, Any]) -> dict[str, Any]:
        """Return the settings, those that are None by default filled in."""
        return values

    def check(self) -> None:
        """Raise ``ValueError`` where the settings do not fit each other."""
        return

    def with_settings(self, **settings: Any) -> Self:
        return type(self)(**{**self.settings, **settings})

    @abstractmethod
    def backbones(self) -> Iterator[Backbone]:
        """Yield every backbone; those that share layer candidates share the ``Candidates`` object."""

    @abstractmethod
    def read(self, choices: Mapping[str, Any]) -> Architecture:
        """Return the architecture with these choices (plain JSON); ``ValueError`` if they make no sense."""

    def join(self, backbone: Backbone, layers: Sequence[dict[str, Any]]) -> dict[str, Any]:
        """Return the choices of an architecture from those of its backbone and, in lists, of each layer."""
        return backbone.choices | {name: [layer[name] for layer in layers] for name in layers[0]}

    @classmethod
    def words(cls, choices: Mapping[str, Any]) -> str:
        """Return the choices in one short line, as lists and reports show an architecture."""
        return ", ".join(f"{name} {value}" for name, value in choices.items())

    def size(self) -> int:
        return sum(backbone.size for backbone in self.backbones())

    def bounds(self, architecture: Architecture) -> Iterator[Bound]:
        """Yield the limits of the ranges that ``architecture`` touches, or every range, opened."""
        yield from ()

    def unused(self) -> dict[str, list[Any]]:
        """Return the values of ranges that no architecture of the space has, by the ranges' names."""
        return {}

    def blind_spots(self) -> str:
        """Return the choices that no score of shapes can judge, in words."""
        return ""

    def config(self, architecture: Architecture) -> dict[str, Any] | None:
        """Return a Hugging Face configuration of the architecture, None where no stock class builds it."""
        return None

    def unstocked(self) -> str:
        """Return why an architecture has no configuration, and what there is in its place."""
        return "no stock class builds it"

    def assemble(self, backbone: Backbone, picks: Sequence[Sequence[int]]) -> Architecture:
        """Return the architecture that picks candidate ``picks[b][i]`` in the i-th layer of block b.

        A tied block takes one pick.
        """
        layers: list[dict[str, Any]] = []
        for block, chosen in zip(backbone.blocks, picks, strict=True):
            repeat = block.count if block.tied else 1
            layers += [block.candidates.choices[i] for i in chosen for _ in range(repeat)]
        return self.read(self.join(backbone, layers))

    def widened(self, name: str, side: int) -> tuple[SearchSpace, float]:
        """Return the space with a range 10 % (at least one step) wider at one side (-1, 1), and its end."""
        values = self.settings[name]
        interval = any(s.kind == "interval" for s in self.declared if s.name == name)
        wider = widen_interval(values, side) if interval else widen(values, side)
        return self.with_settings(**{name: wider}), wider[0 if side < 0 else -1]

    def touched(self, name: str, value: float, attainable: Sequence[float]) -> Iterator[Bound]:
        """Yield the bound of range ``name`` if ``value`` lies at an end of what is ``attainable``."""
        for side, end in ((-1, min(attainable)), (1, max(attainable))):
            if value != end:
                continue
            try:
                wider, to = self.widened(name, side)
            except ValueError:
                continue
            yield Bound(f"{name} {'>=' if side < 0 else '<='} {end:g}", end, to, wider)


def widen(values: Sequence[float], side: int) -> list[float]:
    """Return sorted numbers, continued by at least one step and by 10 % of the end value."""
    values = sorted(values, reverse=side < 0)
    end = values[-1]
    step = abs(end - values[-2]) if len(values) > 1 else max(1, end // 10)
    extra = [end + side * step * i for i in range(1, max(1, int(end // (10 * step))) + 1)]
    positive = [value for value in extra if value > 0]
    if not positive:
        raise ValueError(f"nothing below {end}")
    return sorted([*values, *positive])


def widen_interval(values: Sequence[float], side: int) -> list[float]:
    """Return the two ends of an interval, one of them 10 % further out."""
    low, high = values
    return [low * 0.9, high] if side < 0 else [low, high * 1.1]


SPACES: Final = Registry[type[SearchSpace]]("space", "zerolm.spaces")


def space(cls: type[SearchSpace]) -> type[SearchSpace]:
    """Register a search space under its name."""
    SPACES.add(Entry(cls.name, cls, cls.summary, options=cls.declared))
    return cls


def space_names() -> list[str]:
    """Return the names of all search spaces."""
    return SPACES.names()


def space_settings(name: str) -> list[str]:
    """Return the names of the settings that a space takes."""
    return [setting.name for setting in SPACES[name].declared]


def make_space(name: str, /, **settings: Any) -> SearchSpace:
    """Return the space ``name`` with these ranges and settings in place of its defaults."""
    return SPACES[name](**settings)
