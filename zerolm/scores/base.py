"""Scores by name: sums over layers, weighted by depth and width, or functions of the whole network."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import product
from typing import Any, ClassVar, Final, TypeVar

import numpy as np

from zerolm.architecture import Architecture, Ends, Floats, Ints, Shapes
from zerolm.costs import CostModel
from zerolm.io.brief import brief
from zerolm.registry import Entry, Registry
from zerolm.settings import REQUIRED, Setting, check_settings, nearest, shown
from zerolm.settings.units import parse_integers

Factor = Callable[[Ints, Floats], Floats]
BackboneFactor = Callable[..., Floats]
"""``f(depth, mean_width, outside, *, options)``, giving (n,) for n backbones with weights ``outside``."""
LayerFunction = TypeVar("LayerFunction", bound=Callable[..., Floats | Ints])
"""``f(shapes, depth, *, options)``, giving (n,) for n layers."""


@dataclass(frozen=True, eq=False)
class ScoreBatch:
    """Architectures ready to be scored: the shapes of all their layers in one table."""

    architectures: Sequence[Architecture]
    shapes: Shapes
    depths: Ints
    widths: Floats
    outside: Ints
    """The weights of embeddings and heads."""

    @classmethod
    def of(cls, architectures: Sequence[Architecture]) -> ScoreBatch:
        return cls(
            architectures,
            Shapes.of([layer for a in architectures for layer in a.layers]),
            np.array([a.depth for a in architectures], np.int64),
            np.array([a.mean_width for a in architectures], np.float64),
            np.array([a.ends.outside for a in architectures], np.int64),
        )


def unit_factor(depth: Ints, mean_width: Floats) -> Floats:
    return np.ones(np.broadcast(depth, mean_width).shape)


@dataclass(frozen=True, repr=False)
class ClosedForm:
    """A score that is a factor of (depth, mean width) times a sum over layers, plus a constant.

    ``layer(shapes, depth)`` gives what each of n layers adds, (n,), in a network of ``depth`` layers;
    ``factor(depth, mean_width)`` is positive, and so is ``backbone(depth, mean_width, outside)``, by which
    the sum is multiplied, too, where it is given; ``ends`` gives what the parts outside the layers add (only
    scores that count parameters or operations have it). Higher is better.
    """

    additive: ClassVar = True
    guides: ClassVar[tuple[ClosedForm, ...]] = ()
    sees_choices: ClassVar = False
    measured: ClassVar = False
    table: ClassVar[ChoiceTable | None] = None

    name: str
    layer: Callable[[Shapes, Ints], Floats | Ints]
    source: str
    factor: Factor = unit_factor
    ends: Callable[[Ends], int] | None = None
    sees_depth: bool = False
    baseline: bool = False
    options: dict[str, Any] = field(default_factory=dict)
    backbone: BackboneFactor | None = None

    def __repr__(self) -> str:
        return _brief(self)

    def factors(self, depths: Ints, widths: Floats, outside: Ints) -> Floats:
        """Return the factors of the sums of backbones, (n,)."""
        factors = self.factor(depths, widths)
        return factors if self.backbone is None else factors * self.backbone(depths, widths, outside)

    def of_many(self, architectures: Sequence[Architecture] | ScoreBatch) -> Floats:
        """Return scores (n,) of architectures, all layers in one vectorised call.

        Layer terms are added exactly (Shewchuk), so that no order of layers changes a score.
        """
        batch = architectures if isinstance(architectures, ScoreBatch) else ScoreBatch.of(architectures)
        terms = self.layer(batch.shapes, np.repeat(batch.depths, batch.depths))
        sums = [math.fsum(part) for part in np.split(terms, np.cumsum(batch.depths)[:-1])]
        constant = [self.ends(a.ends) if self.ends else 0 for a in batch.architectures]
        factors = self.factors(batch.depths, batch.widths, batch.outside)
        return np.asarray(factors * np.array(sums) + np.array(constant))

    def of(self, architecture: Architecture) -> float:
        return float(self.of_many([architecture])[0])

    @property
    def terms(self) -> ClosedForm:
        """Return the part that is a sum over layers: all of it."""
        return self


@dataclass(frozen=True)
class ChoiceTable:
    """A score of choices that is a function of a sum over layers.

    ``term(place, choice)`` is what a choice adds as the layer of this place, ``weigh`` gives scores (n,) of
    sums (n,) and costs (n, k), and rises with the sum where the costs are the same.
    """

    term: Callable[[int, Mapping[str, Any]], float]
    weigh: Callable[[Floats, Ints], Floats]


@dataclass(frozen=True, repr=False)
class WholeScore:
    """A score of a whole network that need not be a sum over layers. Higher is better.

    ``many`` scores several at once where that is faster. ``guides`` are closed forms whose best
    architectures are worth scoring: a search may re-rank those. ``sees_choices`` where architectures of
    the same shape, or of the same layers in another order, need not share their score; one with a
    ``table`` sees them, and its best is proven. A score is ``measured`` where it is itself a
    result, such as a loss: 1 % of it is much, so the best is picked, not the cheapest near it.
    """

    additive: ClassVar = False

    name: str
    whole: Callable[[Architecture], float]
    source: str
    baseline: bool = False
    options: dict[str, Any] = field(default_factory=dict)
    many: Callable[[Sequence[Architecture]], Floats] | None = None
    guides: tuple[ClosedForm, ...] = ()
    sees_choices: bool = False
    measured: bool = False
    table: ChoiceTable | None = None

    def __repr__(self) -> str:
        return _brief(self)

    def of_many(self, architectures: Sequence[Architecture] | ScoreBatch) -> Floats:
        batch = architectures.architectures if isinstance(architectures, ScoreBatch) else architectures
        if self.many:
            return self.many(batch)
        return np.array([self.whole(a) for a in batch], np.float64)

    def of(self, architecture: Architecture) -> float:
        return float(self.whole(architecture))

    @property
    def terms(self) -> ClosedForm:
        """Return the part that is a sum over layers: nothing, 0 for each."""
        return ClosedForm(self.name, lambda shapes, depth: np.zeros(len(shapes)), self.source)


Score = ClosedForm | WholeScore


def _brief(score: Score) -> str:
    options = (f", {name}={value}" for name, value in score.options.items())
    return brief(score, "".join([score.name, *options]))


@dataclass(frozen=True)
class ScoreDefinition:
    """A score before its options are bound; its constants are ``fitted_to`` benchmarks of these names.

    ``make(bound, named, costs)`` returns it with all options bound, of which some were ``named``.
    """

    make: Callable[[dict[str, Any], dict[str, Any], CostModel], Score]
    baseline: bool = False
    fitted_to: tuple[str, ...] = ()


SCORES: Final = Registry[ScoreDefinition]("score", "zerolm.scores")


def closed_form(
    name: str,
    *,
    source: str,
    factor: Factor = unit_factor,
    sees_depth: bool = False,
    baseline: bool = False,
    backbone: BackboneFactor | None = None,
    fitted_to: tuple[str, ...] = (),
    settings: Sequence[Setting] = (),
) -> Callable[[LayerFunction], LayerFunction]:
    """Register a closed-form score from its layer function ``f(shapes, depth, **options)``.

    Name the benchmarks that constants are ``fitted_to``: there the score has seen the labels. Set
    ``sees_depth`` where the terms of a layer depend on the depth of its network. ``settings`` declare the
    options, which are keyword-only parameters of the function, and of ``backbone`` where a score has one:
    flags and YAML keys come from them.
    """

    def register(function: LayerFunction) -> LayerFunction:
        for part in (function, *(() if backbone is None else (backbone,))):
            _declared(name, part, settings)

        def make(bound: dict[str, Any], named: dict[str, Any], _: CostModel) -> ClosedForm:
            return ClosedForm(
                name,
                lambda shapes, depth: function(shapes, depth, **bound),
                source,
                factor,
                sees_depth=sees_depth,
                baseline=baseline,
                options=named,
                backbone=None if backbone is None else partial(backbone, **bound),
            )

        SCORES.add(Entry(name, ScoreDefinition(make, baseline, fitted_to), source, options=tuple(settings)))
        return function

    return register


def whole_score(
    name: str, *, source: str, settings: Sequence[Setting] = ()
) -> Callable[[Callable[..., float]], Callable[..., float]]:
    """Register a score of a whole architecture, ``f(architecture, **options)``, not additive over layers."""

    def register(function: Callable[..., float]) -> Callable[..., float]:
        _declared(name, function, settings)

        def make(bound: dict[str, Any], named: dict[str, Any], _: CostModel) -> WholeScore:
            return WholeScore(name, lambda one: float(function(one, **bound)), source, options=named)

        SCORES.add(Entry(name, ScoreDefinition(make), source, options=tuple(settings)))
        return function

    return register


def cost_score(name: str, index: int) -> None:
    """Register the cost in column ``index`` of the cost model as a baseline score."""
    source = "a count, no theory"

    def make(_: dict[str, Any], __: dict[str, Any], costs: CostModel) -> ClosedForm:
        return ClosedForm(
            name,
            layer=lambda shapes, depth: costs.layers(shapes)[:, index],
            source=source,
            ends=lambda ends: int(costs.ends(ends)[index]),
            baseline=True,
        )

    SCORES.add(Entry(name, ScoreDefinition(make, baseline=True), source))


def _declared(name: str, function: Callable[..., Any], settings: Sequence[Setting]) -> None:
    """Refuse a score whose keyword-only parameters are not the settings that it declares."""
    parameters = inspect.signature(function).parameters.values()
    taken = sorted(parameter.name for parameter in parameters if parameter.kind is parameter.KEYWORD_ONLY)
    declared = sorted(setting.name for setting in settings)
    if taken != declared:
        raise ValueError(
            f"score {name!r} takes {', '.join(taken) or 'no options'}, but its settings declare "
            f"{', '.join(declared) or 'none'}"
        )


def score_names() -> list[str]:
    """Return the names of all scores, baselines last."""
    return sorted(SCORES, key=lambda name: SCORES[name].baseline)


def score_settings(name: str) -> tuple[Setting, ...]:
    """Return the options that a score declares, such as ``alpha``."""
    return SCORES.entry(name).options


def make_score(name: str, /, costs: CostModel | None = None, **options: Any) -> Score:
    """Return the score ``name`` with its options bound; cost baselines are counted by ``costs``.

    Raises ``ValueError`` for an unknown name, and for options that the score does not take, needs, or
    cannot have.
    """
    entry = SCORES.entry(name)
    bound = check_settings(f"score {name!r}", entry.options, options)
    return entry.value.make(bound, {option: bound[option] for option in options}, costs or CostModel())


def variants(name: str, options: Mapping[str, Sequence[Any]]) -> list[dict[str, Any]]:
    """Return the options to show a score with: every combination of what is given for those that it takes.

    An option that is needed but not given has the values that its setting shows as examples; ``ValueError``
    where there are none.
    """
    axes = []
    for setting in score_settings(name):
        values = options.get(setting.name) or (setting.examples if setting.default is REQUIRED else None)
        if values is None:
            continue
        if not values:
            raise ValueError(f"score {name!r} needs {setting.called}: {setting.help}")
        axes.append([(setting.name, value) for value in values])
    return [dict(pairs) for pairs in product(*axes)]


def all_variants(
    options: Mapping[str, Sequence[Any]],
) -> tuple[dict[str, list[dict[str, Any]]], dict[str, str]]:
    """Return the variants of every score, and why the others are left out: they need what is not given."""
    shown_with, left_out = dict[str, list[dict[str, Any]]](), dict[str, str]()
    for name in score_names():
        try:
            shown_with[name] = variants(name, options)
        except ValueError as error:
            left_out[name] = str(error)
    return shown_with, left_out


def score_options(further: Mapping[str, Any]) -> dict[str, list[Any]]:
    """Return the values of options of scores, by name; ``ValueError`` for an unknown or a wrong one."""
    declared = {setting.name: setting for entry in reversed(SCORES.entries()) for setting in entry.options}
    options = {}
    for name, values in further.items():
        if values is None or (isinstance(values, list | tuple) and not values):
            continue
        if name not in declared:
            raise ValueError(f"no score has an option {shown(name)}{nearest(name, declared)}")
        options[name] = [declared[name].parse(value) for value in _listed(declared[name], values)]
    return options


def _listed(setting: Setting, values: Any) -> list[Any]:
    """Return a list of values; integers may be written as a range."""
    if setting.kind == "integer":
        return parse_integers(setting.name, values)
    return list(values) if isinstance(values, list | tuple) else [values]
