"""Initial weights, residual branches and rates by width and depth, so that one rate suits all shapes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

import torch
from torch import Tensor, nn

from zerolm.architecture import Architecture
from zerolm.networks.build import network_function
from zerolm.networks.modules.embeddings import LinearHead
from zerolm.networks.modules.layer import PreNorm, Stack
from zerolm.networks.network import Network
from zerolm.training.request import DEPTH_RULES

BASE: Final = 256
"""The width at which initial weights and learning rates are those without scaling."""
BASE_DEPTH: Final = 4
"""The depth at which residual branches, and their rates, are what they are without a rule of depth."""
Groups = list[dict[str, Any]]


class ScaledLogits(nn.Module):
    """A network whose logits are multiplied by a number: ``module(inputs, classes)`` as before."""

    def __init__(self, module: nn.Module, factor: float) -> None:
        super().__init__()
        self.module, self.factor = module, factor

    def forward(self, inputs: Tensor, classes: int | None = None) -> Tensor:
        logits: Tensor = self.module(inputs, classes) * self.factor
        return logits


def scaled(
    network: Network, width: int, rate: float, depth_rule: str = "none"
) -> tuple[ScaledLogits, Groups]:
    """Return a network of a ``width`` in muP for AdamW, and groups of its parameters with their rates.

    A hidden matrix of n inputs, as it is drawn, is multiplied by sqrt(256 / n) and learns at
    rate x 256 / n; embeddings, heads, biases and gains learn at the rate itself, and the logits are
    multiplied by 256 / width (Yang et al., Tensor Programs V, arXiv 2203.03466, table 8). The scores of
    attention stay as they are, for the size of a head is no width.

    With a rule of depth, of exponent a, each residual branch is multiplied by (L / 4)^-a, in place, and what
    is learned in the layers learns at (L / 4)^(a - 1) of its rate: a = 1/2 is Depth-muP (arXiv 2310.02244),
    a = 1 CompleteP (arXiv 2505.01618, whose epsilon of Adam by width and depth is left out).
    """
    layers = _depth_scaled(network, depth_rule)
    by_inputs: dict[int, list[nn.Parameter]] = {}
    for weight in _hidden(network):
        by_inputs.setdefault(weight.shape[1], []).append(weight)
    with torch.no_grad():
        for inputs, weights in by_inputs.items():
            for weight in weights:
                weight.mul_((BASE / inputs) ** 0.5)
    hidden = {id(weight) for weights in by_inputs.values() for weight in weights}
    slowed = network.layers if layers != 1.0 else ()
    inside = {id(parameter) for layer in slowed for parameter in layer.parameters()}
    groups: Groups = []
    for within, factor in ((False, 1.0), (True, layers)):
        others = [
            p for p in network.module.parameters() if (id(p) in inside) == within and id(p) not in hidden
        ]
        groups += [{"params": others, "lr": rate * factor}] if others else []
        for n, weights in sorted(by_inputs.items()):
            chosen = [weight for weight in weights if (id(weight) in inside) == within]
            groups += [{"params": chosen, "lr": rate * BASE / n * factor}] if chosen else []
    return ScaledLogits(network.module, BASE / width), groups


def check_depth_rule(architectures: Sequence[Architecture], depth_rule: str) -> None:
    """Raise ``ValueError`` where a rule of depth does not hold for an architecture's layers."""
    if DEPTH_RULES[depth_rule] is None:
        return
    for architecture in architectures:
        with torch.device("meta"):
            module = network_function(architecture.space)(architecture)
        if _branches(module) is None:
            raise ValueError(
                f"--depth-rule {depth_rule} needs layers that add branches of normalised inputs, as llama's "
                f"and gpt2's do; those of {architecture.space!r} do not: give --depth-rule none"
            )


def _depth_scaled(network: Network, depth_rule: str) -> float:
    """Multiply the residual branches of a network; return the factor of the rates within its layers."""
    exponent = DEPTH_RULES[depth_rule]
    if exponent is None:
        return 1.0
    branches, depth = _branches(network.module), len(network.layers) / BASE_DEPTH
    assert branches is not None  # ``check_depth_rule``
    for branch in branches:
        branch.factor = float(depth**-exponent)
    return float(depth ** (exponent - 1))


def _branches(module: nn.Module) -> list[PreNorm] | None:
    """Return the residual branches of a stack; None where a layer is more than such branches."""
    assert isinstance(module, Stack)
    steps = [step for layer in module.layers for step in _steps(layer)]
    branches = [step for step in steps if isinstance(step, PreNorm)]
    return branches if len(branches) == len(steps) and not len(module.before) else None


def _steps(layer: nn.Module) -> Iterator[nn.Module]:
    for step in (layer.get_submodule("attention"), layer.get_submodule("ffn")):
        yield from step if isinstance(step, nn.Sequential) else (step,)


def _hidden(network: Network) -> list[nn.Parameter]:
    """Return the matrices between vectors whose sizes are widths, each once, in order."""
    head = network.module.get_submodule("head")
    last = head.linear if isinstance(head, LinearHead) else None
    linears = [part for part in network.module.modules() if isinstance(part, nn.Linear) and part is not last]
    weights = [linear.get_parameter("weight") for linear in linears]
    return list({id(weight): weight for weight in weights}.values())
