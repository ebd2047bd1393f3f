"""Rules that every model family must satisfy, for authors of plug-ins: ``check_family`` (torch)."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from typing import Any

import torch
import transformers
from torch import nn

from zerolm.checkpoints import Checkpoint
from zerolm.costs import CostModel
from zerolm.families.config import from_config, size_of
from zerolm.families.known import family_named


def check_family(name: str, config: Mapping[str, Any]) -> None:
    """Check a known family on a small configuration; ``AssertionError`` says which rule it breaks.

    The sizes that it reads, where a field is left out too, and the parameters that it counts are those of
    the stock class; and every tensor of a checkpoint that the stock class writes has its place.
    ``model_type`` need not stand in ``config``; the network is really built, so sizes should be tiny.
    """
    family = family_named(name)
    stock = transformers.AutoConfig.for_model(name, **config)
    stock.allow_global_per_layer_attribute_access = True  # where layers have several sizes
    for label, field in family.config.sizes.items():
        is_as_said = field.field and field.rounded is None  # the parameters tell of the others
        if is_as_said and isinstance(value := getattr(stock, str(field.field), None), int):
            read = size_of(family, dict(config), label)
            _demand(name, read == value, f"{field.field} is {value} in the stock class, and read as {read}")
    torch.manual_seed(0)
    model = getattr(transformers, family.head_classes[0])(stock)
    built = stored_numbers(model)
    counted = CostModel().of(from_config({**config, "model_type": name}))["params"]
    _demand(
        name,
        built == counted,
        f"the stock class has {built} parameters and stored buffers, {counted} are counted",
    )
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        layout = Checkpoint.open(folder).layout
    _demand(name, layout.depth == from_config({**config, "model_type": name}).depth, "layers are lost")


def stored_numbers(model: nn.Module) -> int:
    """Return the number of stored values of a model: its parameters, and buffers such as routers' biases."""
    parameters: int = sum(parameter.numel() for parameter in model.parameters())
    named = {name for name, _ in model.named_parameters(remove_duplicate=False)}
    buffers: int = sum(x.numel() for name, x in model.state_dict().items() if name not in named)
    return parameters + buffers


def _demand(name: str, is_so: bool, rule: str) -> None:
    if not is_so:
        raise AssertionError(f"family {name!r}: {rule}")
