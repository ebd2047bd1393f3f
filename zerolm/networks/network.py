"""A network as proxies see it: its weight matrices by what they do, and the places where one looks."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Literal

import torch
from torch import Tensor, nn
from transformers.pytorch_utils import Conv1D

from zerolm.families.family import Task as Task

LinearRole = Literal["attention", "ffn"]


@dataclass(frozen=True, eq=False)
class Linear:
    """One weight matrix of a layer: a module that multiplies by it, or by several at once.

    The module turns (b, t, inputs) into (b, t, its outputs) and has a parameter ``weight``. ``name`` says
    what the matrix is within its layer as ``Matrix.name`` does: q, k, v, o, gate, up, middle, down, mix, ...
    ``activated`` where the FFN's nonlinearity acts on what comes out (of a gated FFN: the gate). ``rows`` are
    those of the module's outputs that are this matrix's (of a fused module), None for all.
    """

    module: nn.Module
    layer: int
    role: LinearRole
    name: str
    activated: bool = False
    rows: slice | None = None

    @property
    def parameter(self) -> nn.Parameter:
        """The parameter of the module, which matrices of a fused module share."""
        return self.module.get_parameter("weight")

    @property
    def bias(self) -> Tensor | None:
        """The bias (outputs,), None where the module has none."""
        bias = getattr(self.module, "bias", None)
        return self.outputs(bias.detach()) if isinstance(bias, Tensor) else None

    def matrix(self, values: Tensor) -> Tensor:
        """Return of what lies as the parameter does this matrix's part, (outputs, inputs).

        GPT-2's Conv1D is stored transposed.
        """
        whole = values.T if isinstance(self.module, Conv1D) else values
        return whole if self.rows is None else whole[self.rows]

    def outputs(self, values: Tensor) -> Tensor:
        """Return of the module's outputs (..., k) those of this matrix, (..., outputs)."""
        return values if self.rows is None else values[..., self.rows]


def matrices_of(
    module: nn.Module, layer: int, role: LinearRole, sizes: Mapping[str, int], activated: Collection[str] = ()
) -> Iterator[Linear]:
    """Yield the matrices of a module by their names and outputs, which lie one after the other in its own."""
    first = 0
    for name, size in sizes.items():
        rows = slice(first, first + size) if len(sizes) > 1 else None
        yield Linear(module, layer, role, name, name in activated, rows)
        first += size


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
    ``linears`` are the matrices in the layers, layer after layer, within a layer in the order of use; a fused
    module is several.
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
    def weights(self) -> list[nn.Parameter]:
        """The parameters that hold the matrices, each once."""
        return list({id(linear.parameter): linear.parameter for linear in self.linears}.values())

    @property
    def params(self) -> int:
        """All parameters, tied ones once."""
        return sum(parameter.numel() for parameter in self.module.parameters())

    def with_attention_fused(self) -> Network:
        """Return the network as code that goes by modules sees it: a fused attention module is one matrix."""
        linears: list[Linear] = []
        for _, group in groupby(self.linears, key=lambda linear: (linear.module, linear.role)):
            parts = list(group)
            if len(parts) > 1 and parts[0].role == "attention":
                parts = [replace(parts[0], name="".join(part.name for part in parts), rows=None)]
            linears += parts
        return replace(self, linears=tuple(linears))
