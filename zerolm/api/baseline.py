"""The model that a search is to better: what names it, its shape, and what the search takes over from it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from zerolm.api.score import read_document
from zerolm.architecture import Architecture
from zerolm.costs import CostModel
from zerolm.families.config import CHOICES, from_config, sizes_of
from zerolm.families.known import families, family_of
from zerolm.scores import Score
from zerolm.settings import nearest, shown
from zerolm.solvers.result import Choice, Reference
from zerolm.spaces import SPACES, SearchSpace, make_space
from zerolm.spaces.decoders import SPACE_OF, decoders
from zerolm.spaces.document import from_document
from zerolm.spaces.membership import around, exclusions
from zerolm.spaces.uniform import UniformSpace

TAKEN: Final = ("vocab", "tied", "positions", "qkv_bias")
"""Settings of a space that a baseline decides."""
OWN_BUDGETS: Final = ("params", "kv_bytes")
"""Costs of the baseline that the search may not exceed, where it is not told otherwise."""
ON_HUB: Final = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")
FILES: Final = ("config.json", "architecture.json")
"""Names of files that are called by their folder."""
EXPERTS: Final = ("num_local_experts", "num_experts", "n_routed_experts", "moe_num_experts")
SIZES: Final = (
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

    def space_with(self, given: Mapping[str, Any], within: float | None, model: CostModel) -> UniformSpace:
        """Return its space with settings of the user; ``ValueError`` where these contradict it."""
        space = self._made({**self.settings, **given})
        if model.of(space.read(self.choices)) != self.costs:
            own = next(name for name, value in self.settings.items() if space.settings[name] != value)
            raise ValueError(
                f"{own} {given[own]} is not that of the baseline {self.name}, {self.settings[own]}; "
                f"leave {own} or the baseline out"
            )
        if within is None:
            return space
        return self._made(around(space, self.choices, within, given.keys()))

    def budgets(self, given: Mapping[str, int]) -> dict[str, int]:
        """Return the budgets with its own costs; ``ValueError`` where it breaks one that is given itself."""
        for budget, limit in given.items():
            side, cost = budget[:3], budget[4:]
            need = self.costs[cost]
            if need > limit if side == "max" else need < limit:
                most, least = ("more", "at least") if side == "max" else ("less", "at most")
                raise ValueError(
                    f"the baseline {self.name} needs {need} {cost}, {most} than {budget} {limit}; "
                    f"leave {budget} out, or give {least} {need}"
                )
        own = {f"max_{cost}": self.costs[cost] for cost in OWN_BUDGETS}
        return {**own, **given}

    def reference(self, space: SearchSpace, score: Score) -> Reference:
        """Return it as a result tells it, scored, with what of its space leaves it out."""
        assert isinstance(space, UniformSpace)
        architecture = space.read(self.choices)
        choice = Choice(architecture, score.of(architecture), dict(self.costs))
        return Reference(self.name, choice, exclusions(space, self.choices))

    def _made(self, settings: Mapping[str, Any]) -> UniformSpace:
        space = make_space(self.space, **settings)
        assert isinstance(space, UniformSpace)
        return space


def baseline_of(given: str, space: str | None, model: CostModel) -> BaselineModel:
    """Return the model that a path, a known decoder's name or a name on the hub stands for.

    ``space`` is that which the user names, if any. ``ValueError`` in one line where there is no such model,
    no space has its layers, or it is of another space.
    """
    name, document = _document(given)
    try:
        baseline = _of_document(name, document, model)
    except ValueError as error:
        raise ValueError(f"the baseline {name!r} cannot be read: {error}") from None
    if space not in (None, baseline.space):
        raise ValueError(
            f"the baseline {name} is an architecture of {baseline.space}, not of {space}; search that"
        )
    return baseline


def _document(given: str) -> tuple[str, Any]:
    """Return the name and the document of a file or folder, a known decoder, or a model of the hub."""
    path, known = Path(given), decoders()
    if path.exists():
        place = path.absolute()
        return (place.parent if place.name in FILES else place).name or given, read_document(path)
    called = given.casefold()
    decoder = next((d for d in known.values() if called in (d.name.casefold(), d.hub.casefold())), None)
    if decoder is not None:
        if decoder.family not in SPACE_OF:
            raise ValueError(f"no space has layers as {decoder.name} has ({decoder.family}); {_possible()}")
        return decoder.name, decoder.document
    if not ON_HUB.fullmatch(given):
        raise ValueError(f"no file, folder or known decoder is called {shown(given)}{nearest(given, known)}")
    from zerolm.checkpoints.folder import fetched_config

    return given, fetched_config(given)


def _of_document(called: str, document: Any, model: CostModel) -> BaselineModel:
    configured = isinstance(document, Mapping) and ("space" not in document or "model_type" in document)
    space, settings, choices, architecture = (_of_config if configured else _of_architecture)(document)
    made = make_space(space, **settings)
    costs = model.of(made.read(choices))
    other = model.of(architecture)
    differing = next((cost for cost in costs if costs[cost] != other[cost]), None)
    if differing is not None:
        raise ValueError(
            f"{space} has no such layers: {costs[differing]} {differing} in place of {other[differing]} "
            "(biases, windows or a head of its own)"
        )
    taken: dict[str, Any] = {name: made.settings[name] for name in TAKEN if name in made.settings}
    return BaselineModel(called, space, taken, choices, costs)


Read = tuple[str, dict[str, Any], dict[str, Any], Architecture]
"""A space, settings of it, choices, and the architecture that the document itself tells."""


def _of_architecture(document: Any) -> Read:
    """Return what an architecture file of a uniform space holds."""
    architecture = from_document(document)
    space = SPACES[architecture.space]
    if space.name not in {name for name, _ in SPACE_OF.values()}:
        raise ValueError(f"it is an architecture of {space.name}; {_possible()}")
    settings = document.get("settings") or {}
    taken = {name: settings[name] for name in TAKEN if name in settings}
    return space.name, taken, architecture.choices, architecture


def _of_config(config: Mapping[str, Any]) -> Read:
    """Return what a Hugging Face configuration says."""
    experts = next((name for name in EXPERTS if isinstance(config.get(name), int) and config[name] > 1), None)
    if experts is not None:
        raise ValueError(f"it is a mixture of experts ({experts} {config[experts]}); {_possible()}")
    if config.get("model_type") not in families():
        missing = [field for field in SIZES if config.get(field) is None]
        sizes = (
            f"of a decoder's sizes it lacks {', '.join(missing)}" if missing else "its sizes are all there"
        )
        raise ValueError(f"{_unknown(config)}, {sizes}; {_possible()}")
    family = family_of(config)
    if family.name not in SPACE_OF:
        raise ValueError(f"no space has layers of {family.name}; {_possible()}")
    space, fixed = SPACE_OF[family.name]
    read = sizes_of(family, config)
    taken = {"vocab": read.vocab, "tied": read.tied, "positions": read.sizes["positions"], **fixed}
    declared = {setting.name for setting in SPACES[space].declared}
    settings = {name: value for name, value in taken.items() if name in declared}
    return space, settings, {name: getattr(read, name) for name in CHOICES}, from_config(config)


def _unknown(config: Mapping[str, Any]) -> str:
    kind = config.get("model_type")
    return f"model_type {shown(kind)} is not known" if kind else "the configuration has no model_type"


def _possible() -> str:
    return f"baselines are dense models of {', '.join(sorted(SPACE_OF))}"
