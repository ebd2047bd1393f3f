"""Architectures as networks that run, with random weights."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from importlib import import_module
from typing import Final

import torch
from torch import nn

from zerolm.architecture import Architecture
from zerolm.networks.modules.attention import Probabilities
from zerolm.networks.modules.embeddings import AdaptiveTokens
from zerolm.networks.modules.layer import Stack
from zerolm.networks.network import Linear, LinearRole, Network, Tap, matrices_of
from zerolm.spaces import SPACES

DEVIATION: Final = 0.02


def build(architecture: Architecture, seed: int = 0) -> Network:
    """Return the network of an architecture, float32 on the CPU, in evaluation mode.

    Weights are normal with deviation 0.02 (matrices marked ``scaled``: over sqrt(2 L); the projections of
    adaptive embeddings: 0.01), biases 0 and gains 1. The same seed gives the same weights; torch's own random
    state is neither used nor changed. ``ValueError`` for a space whose networks cannot be built, or sizes
    that make no network.
    """
    module_of = network_function(architecture.space)
    with torch.device("meta"):  # nothing is drawn twice
        module = module_of(architecture).train(False)
    module.to_empty(device="cpu")
    linears = tuple(_linears(architecture, module))
    _initialise(architecture, module, linears, seed)
    inside = list(module.layers.modules())
    return Network(
        module=module,
        task=SPACES[architecture.space].task,
        layers=tuple(module.layers),
        linears=linears,
        attentions=tuple(Tap(part.softmax) for part in inside if isinstance(part, Probabilities)),
        stream=tuple(Tap(step) for layer in module.layers for step in _steps(layer)),
        final=Tap(module.head, "input"),
        norms=tuple(part for part in module.modules() if isinstance(part, nn.LayerNorm | nn.RMSNorm)),
        classes=module.head.classes,
    )


def network_function(name: str) -> Callable[[Architecture], Stack]:
    """Return the function that the space of this name refers to; ``ValueError`` where there is none."""
    reference = SPACES[name].network if name in SPACES else ""
    if not reference:
        possible = ", ".join(other for other in SPACES if SPACES[other].network)
        raise ValueError(f"no network is known for {name!r}; there are {possible}")
    module, _, function = reference.partition(":")
    try:
        return getattr(import_module(module), function)  # type: ignore[no-any-return]
    except (ImportError, AttributeError) as error:
        raise ValueError(f"the network {reference!r} of space {name!r} cannot be imported: {error}") from None


def _steps(layer: nn.Module) -> tuple[nn.Module, nn.Module]:
    return layer.get_submodule("attention"), layer.get_submodule("ffn")


def _linears(architecture: Architecture, module: Stack) -> Iterator[Linear]:
    """Yield the matrices of the modules with their names, in order; each part of a fused one counts."""
    for index, (shapes, layer) in enumerate(zip(architecture.layers, module.layers, strict=True)):
        named = _by_name(layer)
        gated = any(matrix.name == "gate" for matrix in shapes.matrices)
        for matrix in shapes.matrices:
            part = next(named[matrix.name])
            assert tuple(part.get_parameter("weight").shape) == (matrix.rows, matrix.cols)
            role: LinearRole = "attention" if matrix.role == "attention" else "ffn"
            names = tuple(matrix.name) if matrix.parts > 1 else (matrix.name,)  # qkv: q, k and v
            sizes = dict.fromkeys(names, matrix.rows // matrix.parts)
            yield from matrices_of(part, index, role, sizes, ("gate",) if gated else ("up", "middle"))


def _by_name(layer: nn.Module) -> dict[str, Iterator[nn.Module]]:
    """Return the modules inside a layer's steps by their names, those of a name in order."""
    attention, ffn = _steps(layer)
    parts: dict[str, list[nn.Module]] = {}
    for step in (attention, *(ffn if isinstance(ffn, nn.Sequential) else [ffn])):
        for name, child in getattr(step, "inner", step).named_children():
            parts.setdefault(name, []).extend(child if isinstance(child, nn.ModuleList) else [child])
    return {name: iter(modules) for name, modules in parts.items()}


def _initialise(architecture: Architecture, module: Stack, linears: Sequence[Linear], seed: int) -> None:
    scaled = {
        (index, matrix.name)
        for index, layer in enumerate(architecture.layers)
        for matrix in layer.matrices
        if matrix.scaled
    }
    deviations = {
        id(linear.parameter): DEVIATION / (2 * architecture.depth) ** 0.5
        for linear in linears
        if (linear.layer, linear.name) in scaled
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
