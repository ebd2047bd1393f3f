"""What a score is: a sum over layers, weighed by depth and width, or a function of the whole network."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar

import numpy as np

from zerolm.architecture import Architecture, Ends, Floats, Ints, Shapes
from zerolm.costs import CostModel

Factor = Callable[[Ints, Floats], Floats]


@dataclass(frozen=True, eq=False)
class Batch:
    """Architectures ready to be scored: the shapes of all their layers in one table."""

    architectures: Sequence[Architecture]
    shapes: Shapes
    depths: Ints
    widths: Floats

    @classmethod
    def of(cls, architectures: Sequence[Architecture]) -> Batch:
        return cls(
            architectures,
            Shapes.of([layer for a in architectures for layer in a.layers]),
            np.array([a.depth for a in architectures], np.int64),
            np.array([a.mean_width for a in architectures], np.float64),
        )


LayerFunction = TypeVar("LayerFunction", bound=Callable[..., Floats | Ints])
"""``f(shapes, depth, *, options)``, giving (n,) for n layers."""


def unit_factor(depth: Ints, mean_width: Floats) -> Floats:
    return np.ones(np.broadcast(depth, mean_width).shape)


@dataclass(frozen=True)
class ClosedForm:
    """A score that is a factor of (depth, mean width) times a sum over layers, plus a constant.

    ``layer(shapes, depth)`` gives what each of n layers adds, (n,), in a network of ``depth`` layers;
    ``factor(depth, mean_width)`` is positive; ``ends`` gives what the parts outside the layers add
    (only scores that count parameters or operations have it). Higher is better.
    """

    name: str
    layer: Callable[[Shapes, Ints], Floats | Ints]
    source: str
    factor: Factor = unit_factor
    ends: Callable[[Ends], int] | None = None
    sees_depth: bool = False
    baseline: bool = False
    options: dict[str, Any] = field(default_factory=dict)

    def of_many(self, architectures: Sequence[Architecture] | Batch) -> Floats:
        """Scores (n,) of architectures, all layers in one vectorised call.

        Layer terms are added exactly (Shewchuk), so that no order of layers changes a score.
        """
        batch = architectures if isinstance(architectures, Batch) else Batch.of(architectures)
        terms = self.layer(batch.shapes, np.repeat(batch.depths, batch.depths))
        sums = [math.fsum(part) for part in np.split(terms, np.cumsum(batch.depths)[:-1])]
        constant = [self.ends(a.ends) if self.ends else 0 for a in batch.architectures]
        return np.asarray(self.factor(batch.depths, batch.widths) * np.array(sums) + np.array(constant))

    def of(self, architecture: Architecture) -> float:
        return float(self.of_many([architecture])[0])


@dataclass(frozen=True)
class WholeScore:
    """A score of a whole network that need not be a sum over layers. Higher is better.

    ``many`` scores several at once where that is faster. ``guides`` are closed forms whose best
    architectures are worth scoring: a search may re-rank those.
    """

    name: str
    whole: Callable[[Architecture], float]
    source: str
    baseline: bool = False
    options: dict[str, Any] = field(default_factory=dict)
    many: Callable[[Sequence[Architecture]], Floats] | None = None
    guides: tuple[ClosedForm, ...] = ()

    def of_many(self, architectures: Sequence[Architecture] | Batch) -> Floats:
        batch = architectures.architectures if isinstance(architectures, Batch) else architectures
        if self.many:
            return self.many(batch)
        return np.array([self.whole(a) for a in batch], np.float64)

    def of(self, architecture: Architecture) -> float:
        return float(self.whole(architecture))


Score = ClosedForm | WholeScore
ScoreKind = Literal["closed_form", "whole", "cost"]


@dataclass(frozen=True)
class _Entry:
    kind: ScoreKind
    function: Callable[..., Any]
    source: str
    factor: Factor
    sees_depth: bool
    baseline: bool


_REGISTRY: dict[str, _Entry] = {}


def closed_form(
    name: str,
    *,
    source: str,
    factor: Factor = unit_factor,
    sees_depth: bool = False,
    baseline: bool = False,
) -> Callable[[LayerFunction], LayerFunction]:
    """Register a closed-form score from its layer function ``f(shapes, depth, **options)``.

    Set ``sees_depth`` where the terms of a layer depend on the depth of its network.
    """

    def register(function: LayerFunction) -> LayerFunction:
        _add(name, _Entry("closed_form", function, source, factor, sees_depth, baseline))
        return function

    return register


def whole_score(
    name: str, *, source: str
) -> Callable[[Callable[[Architecture], float]], Callable[[Architecture], float]]:
    """Register a score of a whole architecture, ``f(architecture) -> float``, not additive over layers."""

    def register(function: Callable[[Architecture], float]) -> Callable[[Architecture], float]:
        _add(name, _Entry("whole", function, source, unit_factor, False, False))
        return function

    return register


def cost_score(name: str, index: int) -> None:
    """Register the cost in column ``index`` of the cost model as a baseline score."""
    _add(name, _Entry("cost", lambda: index, "a count, no theory", unit_factor, False, True))


def _add(name: str, entry: _Entry) -> None:
    if name in _REGISTRY:
        raise ValueError(f"a score named {name!r} is registered already")
    _REGISTRY[name] = entry


def score_names() -> list[str]:
    """Every registered score, baselines last."""
    return sorted(_REGISTRY, key=lambda name: _REGISTRY[name].baseline)


def score_options(name: str) -> list[str]:
    """The options that a score takes, such as ``alpha``."""
    entry = _REGISTRY[name]
    if entry.kind != "closed_form":
        return []
    return [p.name for p in inspect.signature(entry.function).parameters.values() if p.kind is p.KEYWORD_ONLY]


def make_score(name: str, costs: CostModel | None = None, **options: Any) -> Score:
    """The score ``name`` with its options bound; cost baselines are counted by ``costs``.

    Raises ``ValueError`` for an unknown name or an option that the score does not take or needs.
    """
    if name not in _REGISTRY:
        raise ValueError(f"score {name!r} is not known; there are {_list(score_names())}")
    entry = _REGISTRY[name]
    known = score_options(name)
    for option in options:
        if option not in known:
            raise ValueError(f"score {name!r} takes no {option}; it takes {_list(known) or 'no options'}")
    if entry.kind == "whole":
        return WholeScore(name, entry.function, entry.source)
    if entry.kind == "cost":
        return _cost_form(name, entry, costs or CostModel())
    for parameter in inspect.signature(entry.function).parameters.values():
        needed = parameter.kind is parameter.KEYWORD_ONLY and parameter.default is parameter.empty
        if needed and parameter.name not in options:
            raise ValueError(
                f"score {name!r} needs {parameter.name}: no one value suits every space; geo needs none"
            )

    def layer(shapes: Shapes, depth: Ints) -> Floats | Ints:
        return entry.function(shapes, depth, **options)  # type: ignore[no-any-return]

    return ClosedForm(
        name, layer, entry.source, entry.factor, None, entry.sees_depth, entry.baseline, options
    )


def _cost_form(name: str, entry: _Entry, costs: CostModel) -> ClosedForm:
    index: int = entry.function()
    return ClosedForm(
        name,
        layer=lambda shapes, depth: costs.layers(shapes)[:, index],
        source=entry.source,
        ends=lambda ends: int(costs.ends(ends)[index]),
        baseline=True,
    )


def _list(names: Iterable[str]) -> str:
    return ", ".join(names)
