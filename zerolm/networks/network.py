"""A network as proxies see it: its weight matrices by what they do, and the places where one looks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn
from transformers.pytorch_utils import Conv1D

from zerolm.families.family import Task as Task

LinearRole = Literal["attention", "ffn"]


@dataclass(frozen=True, eq=False)
class Linear:
    """A module that multiplies by one weight matrix of a layer.

    It turns (b, t, inputs) into (b, t, outputs) and has a parameter ``weight``. ``name`` says what it is
    within its layer as ``Matrix.name`` does: q, k, v, qkv, o, gate, up, middle, down, mix, ...
    ``activated`` where the FFN's nonlinearity acts on what comes out (of a gated FFN: the gate). ``parts``
    are the names and numbers of outputs of what is fused in it, in their order; none where nothing is.
    """

    module: nn.Module
    layer: int
    role: LinearRole
    name: str
    activated: bool = False
    parts: tuple[tuple[str, int], ...] = ()

    @property
    def parameter(self) -> nn.Parameter:
        return self.module.get_parameter("weight")

    def matrix(self, values: Tensor) -> Tensor:
        """Return what lies as the parameter does as (outputs, inputs): GPT-2's Conv1D is transposed."""
        return values.T if isinstance(self.module, Conv1D) else values


@dataclass(frozen=True, eq=False)
class Tap:
    """A tensor on its way: the first input or the first output of a module."""

    module: nn.Module
    side: Literal["input", "output"] = "output"


@dataclass(frozen=True, eq=False)
class Network:
    """A network that runs.

    ``module(inputs, classes=None)`` gives logits (b, t, v) of token ids (b, t) (``next``, ``masked``),
    (b, v) of images (b, 3, h, w) (``image``), for the first ``classes`` of all v where that is not None.
    ``layers`` are called in order with hidden states (b, t, d) as their first positional argument;
    ``linears`` are the matrices in the layers, layer after layer, within a layer in the order of use.
    ``attentions`` are where attention probabilities (b, heads, t, t) appear; ``stream`` are the hidden
    states after each sub-block, in order (in a layer: after attention or whatever stands in its place,
    then after the FFN), each a function of the one before; ``final`` is what the head reads, (b, t, d).
    ``norms`` are the modules that normalise. ``classes`` is v.
    """

    module: nn.Module
    task: Task
    layers: tuple[nn.Module, ...]
    linears: tuple[Linear, ...]
    attentions: tuple[Tap, ...]
    stream: tuple[Tap, ...]
    final: Tap
    norms: tuple[nn.Module, ...]
    classes: int

    @property
    def device(self) -> torch.device:
        return next(self.module.parameters()).device

    @property
    def params(self) -> int:
        """All parameters, tied ones once."""
        return sum(parameter.numel() for parameter in self.module.parameters())
