"""Conformance suites for authors of plug-ins: rules that every score, space and model family must satisfy."""

from __future__ import annotations

import json
import random
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from zerolm.architecture import Architecture
from zerolm.costs import CostModel
from zerolm.families.config import from_config, size_of
from zerolm.families.known import family_named
from zerolm.scores import ClosedForm, make_score
from zerolm.spaces import SPACES, Backbone, SearchSpace, make_space, space_names

if TYPE_CHECKING:
    from torch import nn

BACKBONES: Final = 2000
"""Backbones that are looked at: enough for any space whose backbones can be listed at all."""
LARGEST: Final = 5_000_000
"""Parameters of a network that is built."""
SCORES_TOLERANCE: Final = 1e-9
"""Relative difference within which scores are equal."""
FEW: Final = 5


def check_score(name: str, **options: Any) -> None:
    """Check a registered score, with these options; ``AssertionError`` says which rule it breaks.

    Scores are finite, the same at every call, and independent of the other architectures in a call; of a
    closed form they do not depend on the order of layers. It is tried on every space.
    """
    title, score = f"score {name!r}", make_score(name, **options)
    for space_name in space_names():
        space = make_space(space_name)
        drawn = list(architectures(space, list(islice(space.backbones(), 50)), FEW))
        scores = np.asarray(score.of_many(drawn))
        where = f"on {space_name}"
        _demand(
            title, scores.shape == (len(drawn),), f"one score an architecture {where}, not {scores.shape}"
        )
        _demand(title, bool(np.isfinite(scores).all()), f"finite scores {where}, not {scores.tolist()}")
        again = score.of_many(drawn)
        _demand(title, np.array_equal(scores, again), f"the same scores at every call {where}")
        alone = [score.of(architecture) for architecture in drawn]
        _demand(title, _close(scores, alone), f"the same scores alone as among others {where}")
        if isinstance(score, ClosedForm):
            turned = score.of_many([replace(one, layers=one.layers[::-1]) for one in drawn])
            _demand(title, _close(scores, turned), f"the same scores whatever the order of layers {where}")


def _close(one: Any, other: Any) -> bool:
    return bool(np.allclose(one, other, rtol=SCORES_TOLERANCE, atol=0.0))


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


def check_family(name: str, config: Mapping[str, Any]) -> None:
    """Check a known family on a small configuration; ``AssertionError`` says which rule it breaks.

    The sizes that it reads, where a field is left out too, and the parameters that it counts are those of
    the stock class; and every tensor of a checkpoint that the stock class writes has its place.
    ``model_type`` need not stand in ``config``; the network is really built, so sizes should be tiny.
    """
    import torch
    import transformers

    from zerolm.checkpoints import Checkpoint

    title, family = f"family {name!r}", family_named(name)
    stock = transformers.AutoConfig.for_model(name, **config)
    stock.allow_global_per_layer_attribute_access = True  # where layers have several sizes
    for label, field in family.config.sizes.items():
        is_as_said = field.field and field.rounded is None  # the parameters tell of the others
        if is_as_said and isinstance(value := getattr(stock, str(field.field), None), int):
            read = size_of(family, dict(config), label)
            _demand(title, read == value, f"{field.field} is {value} in the stock class, and read as {read}")
    torch.manual_seed(0)
    model = getattr(transformers, family.head_classes[0])(stock)
    built = stored_numbers(model)
    counted = CostModel().of(from_config({**config, "model_type": name}))["params"]
    _demand(
        title,
        built == counted,
        f"the stock class has {built} parameters and stored buffers, {counted} are counted",
    )
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        layout = Checkpoint.open(folder).layout
    _demand(title, layout.depth == from_config({**config, "model_type": name}).depth, "layers are lost")


def stored_numbers(model: nn.Module) -> int:
    """Return the number of stored values of a model: its parameters, and buffers such as routers' biases."""
    parameters: int = sum(parameter.numel() for parameter in model.parameters())
    named = {name for name, _ in model.named_parameters(remove_duplicate=False)}
    buffers: int = sum(x.numel() for name, x in model.state_dict().items() if name not in named)
    return parameters + buffers


def _demand(subject: str | SearchSpace, is_so: bool, rule: str) -> None:
    if not is_so:
        title = subject if isinstance(subject, str) else f"space {subject.name!r}"
        raise AssertionError(f"{title}: {rule}")
