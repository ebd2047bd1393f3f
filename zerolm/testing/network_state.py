"""What a proxy may not change, as it can be compared: the state of a network, and what passes hold."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass
from typing import Any, Final

import numpy as np
import torch
from torch import Tensor

from zerolm.networks.network import Network

HOOKS: Final = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")


def state(network: Network) -> dict[str, Any]:
    """Copies of all that a network is, and of the state of what draws random numbers, each by a name."""
    module, found = network.module, dict[str, Any]()
    for name, parameter in module.named_parameters(remove_duplicate=False):
        found[f"the weight {name}"] = parameter.detach().clone()
        found[f"the gradient of {name}"] = None if parameter.grad is None else parameter.grad.clone()
        found[f"whether {name} has a gradient"] = parameter.requires_grad
        found[f"the hooks of {name}"] = tuple(parameter._backward_hooks or ())
    for name, buffer in module.named_buffers(remove_duplicate=False):
        found[f"the buffer {name}"] = buffer.clone()
    for name, part in module.named_modules():
        found[f"the mode of {name or 'the network'}"] = part.training
        found[f"the hooks of {name or 'the network'}"] = [tuple(getattr(part, kind)) for kind in HOOKS]
        found[f"what {name or 'the network'} does"] = part.__dict__.get("forward")
    found["torch's random state"] = torch.get_rng_state()
    found["Python's random state"] = random.getstate()
    found["numpy's random state"] = repr(np.random.get_state())
    found["whether torch keeps gradients"] = torch.is_grad_enabled()
    return found


def tensors(held: object) -> Iterator[Tensor]:
    """Every tensor in dictionaries, sequences and dataclasses, however deep, modules left out."""
    if isinstance(held, Tensor):
        yield held
    elif isinstance(held, Network):
        return
    elif isinstance(held, Mapping):
        for each in held.values():
            yield from tensors(each)
    elif isinstance(held, tuple | list):
        for each in held:
            yield from tensors(each)
    elif is_dataclass(held):
        for each in fields(held):
            yield from tensors(getattr(held, each.name))


def same(one: object, other: object) -> bool:
    """Whether two are equal; of tensors and numbers, whether all bits are."""
    if isinstance(one, Tensor) and isinstance(other, Tensor):
        return (one.dtype, one.shape) == (other.dtype, other.shape) and _bits(one) == _bits(other)
    return repr(one) == repr(other) if isinstance(one, float | tuple | list) else bool(one == other)


def _bits(tensor: Tensor) -> bytes:
    raw = tensor.detach().cpu().contiguous().flatten().view(torch.uint8)
    return raw.numpy().tobytes()


def close(one: Sequence[float] | None, other: Sequence[float] | None, share: float) -> bool:
    """Whether numbers differ by no more than a share of them."""
    if one is None or other is None or len(one) != len(other):
        return one is other is None
    return bool(np.allclose(one, other, rtol=share, atol=1e-12, equal_nan=True))
