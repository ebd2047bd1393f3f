"""Initial weights and learning rates by width, so that one rate suits all shapes of a space: muP."""

from __future__ import annotations

from typing import Any, Final

import torch
from torch import Tensor, nn

from zerolm.networks.modules.embeddings import LinearHead
from zerolm.networks.network import Network

BASE: Final = 256
"""The width at which weights are drawn, and learn, as they do without scaling."""
Groups = list[dict[str, Any]]


class ScaledLogits(nn.Module):
    """A network whose logits are multiplied by a number: ``module(inputs, classes)`` as before."""

    def __init__(self, module: nn.Module, factor: float) -> None:
        super().__init__()
        self.module, self.factor = module, factor

    def forward(self, inputs: Tensor, classes: int | None = None) -> Tensor:
        logits: Tensor = self.module(inputs, classes) * self.factor
        return logits


def scaled(network: Network, width: int, rate: float, base: int = BASE) -> tuple[ScaledLogits, Groups]:
    """Return a network of a ``width`` in muP for AdamW, and groups of its parameters with their rates.

    A hidden matrix of n inputs, as it is drawn, is multiplied by sqrt(base / n) and learns at
    rate x base / n; embeddings, heads, biases and gains learn at the rate itself, and the logits are
    multiplied by base / width (Yang et al., Tensor Programs V, arXiv 2203.03466, table 8). The scores of
    attention stay as they are, for the size of a head is no width.
    """
    by_inputs: dict[int, list[nn.Parameter]] = {}
    for weight in _hidden(network):
        by_inputs.setdefault(weight.shape[1], []).append(weight)
    with torch.no_grad():
        for inputs, weights in by_inputs.items():
            for weight in weights:
                weight.mul_((base / inputs) ** 0.5)
    hidden = {id(weight) for weights in by_inputs.values() for weight in weights}
    others = [parameter for parameter in network.module.parameters() if id(parameter) not in hidden]
    groups: Groups = [{"params": others, "lr": rate}]
    groups += [{"params": weights, "lr": rate * base / n} for n, weights in sorted(by_inputs.items())]
    return ScaledLogits(network.module, base / width), groups


def _hidden(network: Network) -> list[nn.Parameter]:
    """Return the matrices between vectors whose sizes are widths, each once, in order."""
    head = network.module.get_submodule("head")
    last = head.linear if isinstance(head, LinearHead) else None
    linears = [part for part in network.module.modules() if isinstance(part, nn.Linear) and part is not last]
    weights = [linear.get_parameter("weight") for linear in linears]
    return list({id(weight): weight for weight in weights}.values())
