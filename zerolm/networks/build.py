"""Architectures as networks that run, with random weights."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final

import torch
from torch import nn

from zerolm.architecture import Architecture
from zerolm.networks.modules.attention import Probabilities
from zerolm.networks.modules.autoformer import autoformer
from zerolm.networks.modules.bert import bert
from zerolm.networks.modules.embeddings import AdaptiveTokens
from zerolm.networks.modules.flexibert import flexibert
from zerolm.networks.modules.gpt2 import gpt2, gpt2_uniform
from zerolm.networks.modules.layer import Stack
from zerolm.networks.modules.llama import llama
from zerolm.networks.modules.pit import pit
from zerolm.networks.modules.transformer_xl import transformer_xl
from zerolm.networks.network import Linear, LinearRole, Network, Tap, Task

FAMILIES: Final[dict[str, tuple[Task, Callable[[Architecture], Stack]]]] = {
    "flexibert": ("masked", flexibert),
    "gpt2": ("next", gpt2),
    "transformer_xl": ("next", transformer_xl),
    "llama": ("next", llama),
    "bert": ("masked", bert),
    "gpt2-uniform": ("next", gpt2_uniform),
    "autoformer": ("image", autoformer),
    "pit": ("image", pit),
}
DEVIATION: Final = 0.02


def build(architecture: Architecture, seed: int = 0) -> Network:
    """Return the network of an architecture, float32 on the CPU, in evaluation mode.

    Weights are normal with deviation 0.02 (matrices marked ``scaled``: over sqrt(2 L); the projections of
    adaptive embeddings: 0.01), biases 0 and gains 1. The same seed gives the same weights; torch's own random
    state is neither used nor changed. ``ValueError`` for a space whose networks cannot be built, or sizes
    that make no network.
    """
    if architecture.space not in FAMILIES:
        raise ValueError(f"no network is known for {architecture.space!r}; there are {', '.join(FAMILIES)}")
    task, family = FAMILIES[architecture.space]
    with torch.device("meta"):  # nothing is drawn twice
        module = family(architecture).train(False)
    module.to_empty(device="cpu")
    linears = tuple(_linears(architecture, module))
    _initialise(architecture, module, linears, seed)
    inside = list(module.layers.modules())
    return Network(
        module=module,
        task=task,
        layers=tuple(module.layers),
        linears=linears,
        attentions=tuple(Tap(part.softmax) for part in inside if isinstance(part, Probabilities)),
        stream=tuple(Tap(step) for layer in module.layers for step in _steps(layer)),
        final=Tap(module.head, "input"),
        norms=tuple(part for part in module.modules() if isinstance(part, nn.LayerNorm | nn.RMSNorm)),
        classes=module.head.classes,
    )


def _steps(layer: nn.Module) -> tuple[nn.Module, nn.Module]:
    return layer.get_submodule("attention"), layer.get_submodule("ffn")


def _linears(architecture: Architecture, module: Stack) -> Iterator[Linear]:
    """Yield the modules that bear the names of the matrices, in the order of the matrices."""
    for index, (shapes, layer) in enumerate(zip(architecture.layers, module.layers, strict=True)):
        attention, ffn = (getattr(step, "inner", step) for step in _steps(layer))
        middles = iter(getattr(ffn, "middle", ()))
        gated = any(matrix.name == "gate" for matrix in shapes.matrices)
        for matrix in shapes.matrices:
            step = attention if matrix.role == "attention" else ffn
            part = next(middles) if matrix.name == "middle" else step.get_submodule(matrix.name)
            assert tuple(part.get_parameter("weight").shape) == (matrix.rows, matrix.cols)
            role: LinearRole = "attention" if matrix.role == "attention" else "ffn"
            activated = matrix.name in (("gate",) if gated else ("up", "middle"))
            yield Linear(part, index, role, matrix.name, activated)


def _initialise(architecture: Architecture, module: Stack, linears: Sequence[Linear], seed: int) -> None:
    matrices = [matrix for layer in architecture.layers for matrix in layer.matrices]
    scaled = DEVIATION / (2 * architecture.depth) ** 0.5
    deviations = {
        id(linear.parameter): scaled
        for linear, matrix in zip(linears, matrices, strict=True)
        if matrix.scaled
    }
    for part in module.modules():
        if isinstance(part, AdaptiveTokens):
            deviations |= {id(parameter): 0.01 for parameter in part.projections.parameters()}
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in module.named_parameters():
            if parameter.ndim > 1:
                parameter.normal_(0.0, deviations.get(id(parameter), DEVIATION), generator=generator)
            else:
                parameter.fill_(0.0 if name.endswith("bias") else 1.0)
