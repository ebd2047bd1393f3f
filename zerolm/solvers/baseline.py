"""The model that a search is to improve on: its shape, its costs, and what they fix in the search."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any, Final

from zerolm.architecture import Architecture
from zerolm.costs import CostModel
from zerolm.families.config import CHOICES, from_config, sizes_of
from zerolm.families.known import families, family_of, problem_of, refused
from zerolm.scores import Score
from zerolm.settings.units import parse_share
from zerolm.solvers.result import Choice, Reference
from zerolm.spaces import SPACES, SearchSpace, make_space
from zerolm.spaces.decoders import SPACE_OF, Decoder
from zerolm.spaces.document import from_document
from zerolm.spaces.membership import around, exclusions
from zerolm.spaces.uniform import UniformSpace

FIXED_SETTINGS: Final = ("vocab", "tied", "positions", "qkv_bias")
"""Settings of a space that a baseline decides."""
BOUNDED_COSTS: Final = ("params", "macs", "kv_bytes")
"""Costs of the baseline that the search may not exceed, unless budgets of them are given.

On equal tokens training takes three times the MACs of a token at each of them, so that it is bounded, too.
"""
EXPERTS: Final = ("num_local_experts", "num_experts", "n_routed_experts", "moe_num_experts")
DECODER_FIELDS: Final = (
    *("num_hidden_layers", "hidden_size", "num_attention_heads", "num_key_value_heads"),
    *("intermediate_size", "vocab_size"),
)
"""Fields of a decoder's configuration that its shape follows from."""


@dataclass(frozen=True)
class BaselineModel:
    """A model of a uniform space: its ``name``, the space's name and settings, choices, and its costs."""

    name: str
    space: str
    settings: Mapping[str, Any]
    choices: Mapping[str, Any]
    costs: Mapping[str, int]

    def space_with(self, settings: Mapping[str, Any], within: float | None, model: CostModel) -> UniformSpace:
        """Return its space with settings of the user; ``ValueError`` where these contradict it."""
        space = self._space({**self.settings, **settings})
        if model.of_task(space.task).of(space.read(self.choices)) != self.costs:
            name = next(name for name, value in self.settings.items() if space.settings[name] != value)
            raise ValueError(
                f"{name} {settings[name]} is not that of the baseline {self.name}, {self.settings[name]}; "
                f"leave {name} or the baseline out"
            )
        if within is None:
            return space
        return self._space(around(space, self.choices, within, settings.keys()))

    def budgets(self, limits: Mapping[str, int], shares: Collection[str] = ()) -> dict[str, int]:
        """Return the budgets with those of its costs; ``ValueError`` where it breaks one itself.

        Those that were given as ``shares`` of its costs it may break.
        """
        for budget, limit in limits.items():
            if budget in shares:
                continue
            side, cost = budget[:3], budget[4:]
            need = self.costs[cost]
            if need > limit if side == "max" else need < limit:
                most, least = ("more", "at least") if side == "max" else ("less", "at most")
                raise ValueError(
                    f"the baseline {self.name} needs {need} {cost}, {most} than {budget} {limit}: "
                    f"drop {budget}, or give {least} {need}, or a share such as 0.8x"
                )
        return {f"max_{cost}": self.costs[cost] for cost in BOUNDED_COSTS if self.costs[cost]} | dict(limits)

    def with_costs(self, model: CostModel) -> BaselineModel:
        """Return it with its costs by another model of them."""
        space = self._space(self.settings)
        return replace(self, costs=model.of_task(space.task).of(space.read(self.choices)))

    def reference(self, space: SearchSpace, score: Score) -> Reference:
        """Return its scored choice for a result, with the bounds of its space that exclude it."""
        assert isinstance(space, UniformSpace)
        architecture = space.read(self.choices)
        choice = Choice(architecture, score.of(architecture), dict(self.costs))
        return Reference(self.name, choice, exclusions(space, self.choices))

    def _space(self, settings: Mapping[str, Any]) -> UniformSpace:
        space = make_space(self.space, **settings)
        assert isinstance(space, UniformSpace)
        return space


def amounts_of(budgets: Mapping[str, int | str], baseline: BaselineModel | None) -> dict[str, int]:
    """Return budgets as integers: ``0.8x`` is a share of the baseline's cost; ``ValueError`` without one."""
    amounts = {}
    for name, value in budgets.items():
        share = parse_share(value)
        if share is not None and baseline is None:
            raise ValueError(
                f"{name} {value} is a share of a baseline's: give --baseline MODEL too, or an amount"
            )
        of = baseline.costs[name[4:]] if share and baseline else 0
        amounts[name] = int(value) if share is None else int(Decimal(share[:-1]) * of)
    return amounts


def baseline_of(name: str, document: Any, space: str | None, model: CostModel) -> BaselineModel:
    """Return a model as a baseline, from its ``document`` or from a known ``Decoder``.

    ``space`` is the user's, if any. Raises ``ValueError``, in one line, where no space has its layers, or
    where it belongs to another space.
    """
    if isinstance(document, Decoder):
        if document.family not in SPACE_OF:
            raise ValueError(f"no space has layers as {name} has ({document.family}); {_possible()}")
        document = document.document
    try:
        baseline = _of_document(name, document, model)
    except ValueError as error:
        raise ValueError(f"the baseline {name!r} cannot be read: {error}") from None
    if space not in (None, baseline.space):
        raise ValueError(
            f"the baseline {name} is an architecture of {baseline.space}, not of {space}; search that"
        )
    return baseline


def _of_document(name: str, document: Any, model: CostModel) -> BaselineModel:
    is_config = isinstance(document, Mapping) and ("space" not in document or "model_type" in document)
    space_name, settings, choices, architecture = (_of_config if is_config else _of_architecture)(document)
    space = make_space(space_name, **settings)
    model = model.of_task(space.task)
    costs, real = model.of(space.read(choices)), model.of(architecture)
    differing = next((cost for cost in costs if costs[cost] != real[cost]), None)
    if differing is not None:
        raise ValueError(
            f"{space_name} has no such layers: {costs[differing]} {differing} in place of {real[differing]} "
            "(biases, windows or a head of its own)"
        )
    fixed: dict[str, Any] = {
        setting: space.settings[setting] for setting in FIXED_SETTINGS if setting in space.settings
    }
    return BaselineModel(name, space_name, fixed, choices, costs)


Reading = tuple[str, dict[str, Any], dict[str, Any], Architecture]
"""A space, settings of it, choices, and the architecture of the document itself."""


def _of_architecture(document: Any) -> Reading:
    architecture = from_document(document)
    space = SPACES[architecture.space]
    if space.name not in {name for name, _ in SPACE_OF.values()}:
        raise ValueError(f"it is an architecture of {space.name}; {_possible()}")
    settings = document.get("settings") or {}
    fixed = {name: settings[name] for name in FIXED_SETTINGS if name in settings}
    return space.name, fixed, architecture.choices, architecture


def _of_config(config: Mapping[str, Any]) -> Reading:
    experts = next((name for name in EXPERTS if isinstance(config.get(name), int) and config[name] > 1), None)
    if experts is not None:
        raise ValueError(f"it is a mixture of experts ({experts} {config[experts]}); {_possible()}")
    kind = config.get("model_type")
    if not isinstance(kind, str) or kind not in [*families(), *refused()]:
        missing = [field for field in DECODER_FIELDS if config.get(field) is None]
        sizes = (
            f"of a decoder's sizes it lacks {', '.join(missing)}" if missing else "its sizes are all there"
        )
        raise ValueError(f"{problem_of(config.get('model_type'))}, {sizes}; {_possible()}")
    family = family_of(config)
    if family.name not in SPACE_OF:
        raise ValueError(f"no space has layers of {family.name}; {_possible()}")
    space, fixed = SPACE_OF[family.name]
    sizes_read = sizes_of(family, config)
    every = {"vocab": sizes_read.vocab, "tied": sizes_read.tied, "positions": sizes_read.sizes["positions"]}
    declared = {setting.name for setting in SPACES[space].declared}
    settings = {name: value for name, value in {**every, **fixed}.items() if name in declared}
    return space, settings, {name: getattr(sizes_read, name) for name in CHOICES}, from_config(config)


def _possible() -> str:
    return f"baselines are dense models of {', '.join(sorted(SPACE_OF))}"
