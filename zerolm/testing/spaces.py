"""Rules that every search space must satisfy, for authors of plug-ins: ``check_space``."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from itertools import islice
from typing import Any, Final

from zerolm.architecture import Architecture
from zerolm.costs import CostModel
from zerolm.spaces import SPACES, Backbone, SearchSpace, make_space

BACKBONES: Final = 2000
"""Backbones that are looked at: enough for any space whose backbones can be listed at all."""
LARGEST: Final = 5_000_000
"""Parameters of a network that is built."""


def check_space(name: str, **settings: Any) -> None:
    """Check a registered space, with these settings; ``AssertionError`` says which rule it breaks.

    Its settings rebuild it; its size is that of its backbones; what is assembled of its candidates is read
    again from plain JSON, layer by layer and in its ends; what it does not know is refused; and its network,
    where it names one and torch is there, has the parameters that its shapes count.
    """
    space = make_space(name, **settings)
    _demand(space, type(space)(**space.settings).settings == space.settings, "its settings must rebuild it")
    _demand(
        space, json.loads(json.dumps(space.settings)) == space.settings, "its settings must be plain JSON"
    )
    backbones = list(islice(space.backbones(), BACKBONES))
    _demand(space, bool(backbones), "it must have backbones")
    if len(backbones) < BACKBONES:
        counted = sum(backbone.size for backbone in backbones)
        _demand(space, space.size() == counted, f"its size must be {counted}, not {space.size()}")
    drawn = list(architectures(space, backbones))
    for architecture in drawn:
        _check_architecture(space, architecture)
    smallest = min(drawn, key=_params)
    if SPACES[name].network and _params(smallest) <= LARGEST:
        _check_network(space, smallest)


def architectures(space: SearchSpace, backbones: list[Backbone], count: int = 20) -> Iterator[Architecture]:
    """Yield architectures of backbones and candidates sampled at random, the first and last backbone
    first."""
    draw = random.Random(0)
    for backbone in [backbones[0], backbones[-1], *(draw.choice(backbones) for _ in range(count - 2))]:
        picks = [
            [draw.randrange(len(block.candidates)) for _ in range(1 if block.tied else block.count)]
            for block in backbone.blocks
        ]
        architecture = space.assemble(backbone, picks)
        layers = [
            block.candidates.layers[pick]
            for block, chosen in zip(backbone.blocks, picks, strict=True)
            for pick in chosen
            for _ in range(block.count if block.tied else 1)
        ]
        alike = list(architecture.layers) == layers and architecture.ends == backbone.ends
        _demand(space, alike, f"{architecture.choices} must have the layers and ends of its candidates")
        mean = abs(architecture.mean_width - backbone.width) <= 1e-9 * backbone.width
        _demand(space, mean, f"the width of {backbone.choices} must be the mean of its layers")
        yield architecture


def _check_architecture(space: SearchSpace, architecture: Architecture) -> None:
    choices = architecture.choices
    again = space.read(json.loads(json.dumps(choices)))
    alike = again.layers == architecture.layers and again.ends == architecture.ends
    _demand(space, alike, f"{choices} must be read as what it was made of")
    words = space.words(choices)
    _demand(space, bool(words.strip()) and "\n" not in words, f"{choices} must be written in one line")
    try:
        space.read({**choices, "no such choice": 1})
    except ValueError:
        return
    raise AssertionError(f"space {space.name!r}: a choice that it does not know must be refused")


def _check_network(space: SearchSpace, architecture: Architecture) -> None:
    try:
        from zerolm.networks.build import build
    except ModuleNotFoundError:  # the extra torch is not installed
        return
    built = sum(parameter.numel() for parameter in build(architecture).module.parameters())
    promised = _params(architecture)
    _demand(space, built == promised, f"its network has {built} parameters, its shapes count {promised}")


def _params(architecture: Architecture) -> int:
    return CostModel().of(architecture)["params"]


def _demand(space: SearchSpace, is_so: bool, rule: str) -> None:
    if not is_so:
        raise AssertionError(f"space {space.name!r}: {rule}")
