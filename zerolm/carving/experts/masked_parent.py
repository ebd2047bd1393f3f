"""The proof: a child has the outputs of its parent with the removed experts and neurons masked."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.overrides import TorchFunctionMode

from zerolm.architecture import Ints
from zerolm.carving.experts.fewer_experts import DOWN, ROUTER, FewerExperts
from zerolm.checkpoints import Checkpoint
from zerolm.children.verify import Verified, distance_of, output_of, outputs, within_rounding
from zerolm.networks.blocks import Blocks
from zerolm.networks.opener import mapped_model
from zerolm.networks.stream import Stream
from zerolm.text.calibration import page_tokens

DOWN_NAME: Final = "down_proj"
"""The stock classes' parameter of the down projections of all experts of a layer."""


class MaskedLogits(TorchFunctionMode):
    """A mode in which products with these weights (experts, d) are minus infinity for the removed experts."""

    def __init__(self, removed: Sequence[tuple[Tensor, Ints]]) -> None:
        super().__init__()
        self.removed = {id(weight): torch.from_numpy(experts) for weight, experts in removed}
        self.met: set[int] = set()

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        if func is functional.linear:
            weight = args[1] if len(args) > 1 else (kwargs or {}).get("weight")
            experts = self.removed.get(id(weight))
            if experts is not None:
                self.met.add(id(weight))
                out = out.index_fill(-1, experts.to(out.device), -torch.inf)
        return out


@contextmanager
def masked(modules: Mapping[int, nn.Module], fewer: FewerExperts) -> Iterator[None]:
    """Mask the removed experts in the routers of these layers, within the context.

    Logits are set to minus infinity, and so are biases, which a router may add only for its choice. Raises
    ``ValueError`` where no such product occurs.
    """
    layout, routers, biases = fewer.parent.layout, list[tuple[Tensor, Ints]](), list[tuple[Tensor, Tensor]]()
    try:
        for layer, module in modules.items():
            removed = np.setdiff1d(np.arange(layout.sizes["experts"]), fewer.by_layer[layer])
            roles = (ROUTER, "router_bias")
            weight, bias = (_parameter_of(module, fewer.parent, role, layer) for role in roles)
            if weight is None:
                name = layout.name(ROUTER, layer)
                raise ValueError(f"the stock class has no router where {name!r} is stored")
            routers.append((weight, removed))
            if bias is not None:
                biases.append((bias, bias.detach().clone()))
                bias.detach()[..., torch.from_numpy(removed).to(bias.device)] = -torch.inf
        with MaskedLogits(routers) as mode:
            yield
        for layer, (weight, _) in zip(modules, routers, strict=True):
            if id(weight) not in mode.met:
                name = layout.name(ROUTER, layer)
                raise ValueError(f"the stock class does not use {name!r} as a router")
    finally:
        for bias, before in biases:
            bias.detach().copy_(before)


def _parameter_of(module: nn.Module, parent: Checkpoint, role: str, layer: int) -> Tensor | None:
    """Return the parameter or buffer of a layer with this role; None where the layer has none."""
    name = parent.layout.name(role, layer)
    if name is None:
        return None
    owner, _, leaf = parent.layout.slots[name].parameter.partition(f".{layer}.")[2].rpartition(".")
    value = getattr(module.get_submodule(owner), leaf, None)
    return value if isinstance(value, Tensor) else None


@torch.no_grad()
def compare_with_masked(child: Checkpoint, fewer: FewerExperts) -> Verified:
    """Run the child and the masked parent on the same real tokens, one layer of either in memory.

    The masked parent has the child's refitted down projections. Raises ``ValueError`` where the two differ by
    more than rounding.
    """
    parent, ids = fewer.parent, page_tokens(fewer.parent)
    stream = Stream(Blocks(mapped_model(parent), [{"input_ids": ids}]))
    for layer in fewer.by_layer:
        send_on(stream, fewer, layer)
    (hidden,) = stream.before(parent.layout.depth)
    wanted = outputs(stream.blocks.finish(0, hidden))
    stream.blocks.let_go()
    return within_rounding(distance_of(output_of(child, ids), wanted))


@contextmanager
def as_child(module: nn.Module, fewer: FewerExperts, layer: int) -> Iterator[None]:
    """Make a layer of the parent compute as the child's, with masked, changed and narrower experts."""
    with masked({layer: module}, fewer):
        if not fewer.neurons and not fewer.changed.get(layer):
            yield
            return
        experts = experts_module(fewer.parent, module, layer)
        before = experts.get_parameter(DOWN_NAME)
        setattr(experts, DOWN_NAME, nn.Parameter(_projections(experts, fewer, layer), requires_grad=False))
        try:
            yield
        finally:
            setattr(experts, DOWN_NAME, before)


def _projections(experts: nn.Module, fewer: FewerExperts, layer: int) -> Tensor:
    """Return the down projections with those that changed, and with zeros for the removed neurons."""
    whole = experts.get_parameter(DOWN_NAME).detach().clone()
    for expert, matrix in fewer.changed.get(layer, {}).items():
        whole[expert] = torch.from_numpy(matrix).to(whole)
    columns = whole if getattr(experts, "is_transposed", False) else whole.mT  # (e, m, d)
    if fewer.neurons:
        for expert, kept in zip(fewer.by_layer[layer].tolist(), fewer.neurons[layer], strict=True):
            columns[expert, np.setdiff1d(np.arange(columns.shape[1]), kept)] = 0.0
    return whole


def send_on(stream: Stream, fewer: FewerExperts, layer: int) -> None:
    """Pass the child's states before a layer through the parent's layer in the child's form."""
    stream.before(layer)  # first: embedding releases the layer in memory
    with as_child(stream.module(layer), fewer, layer):
        for _ in stream.through(layer):
            pass


def experts_module(checkpoint: Checkpoint, module: nn.Module, layer: int) -> nn.Module:
    """Return the module of the experts of a layer."""
    slots = checkpoint.layout.slots.values()
    name = next(slot.parameter for slot in slots if slot.layer == layer and slot.role == DOWN)
    return module.get_submodule(name.partition(f".{layer}.")[2].rpartition(".")[0])
