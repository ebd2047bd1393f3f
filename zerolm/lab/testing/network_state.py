"""The state that a proxy may not change, as it can be compared."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass
from typing import Any, Final

import numpy as np
import torch
from torch import Tensor, nn

from zerolm.networks.network import Network

PLAIN: Final = (bool, int, float, str, type(None))
"""Attributes of modules that can be compared."""


def state(network: Network) -> dict[str, Any]:
    """Return copies of all that a network is, and of what torch, numpy and Python keep, each by a name."""
    return {**_of_tensors(network.module), **_of_modules(network.module), **_of_the_process()}


def _of_tensors(module: nn.Module) -> dict[str, Any]:
    parts: dict[str, Any] = {}
    for name, parameter in module.named_parameters(remove_duplicate=False):
        parts[f"the weight {name}"] = parameter.detach().clone()
        parts[f"which parameter {name} is"] = id(parameter)
        parts[f"the gradient of {name}"] = None if parameter.grad is None else parameter.grad.clone()
        parts[f"whether {name} has a gradient"] = parameter.requires_grad
        parts[f"the hooks of {name}"] = _hooks(parameter)
    for name, buffer in module.named_buffers(remove_duplicate=False):
        parts[f"the buffer {name}"] = buffer.clone()
        parts[f"which buffer {name} is"] = id(buffer)
    return parts


def _hooks(parameter: Tensor) -> list[Any]:
    """Return the hooks of a parameter: on its gradient, and after it is accumulated."""
    after = getattr(parameter, "_post_accumulate_grad_hooks", None)
    return [tuple(parameter._backward_hooks or ()), tuple(after or ())]


def _of_modules(module: nn.Module) -> dict[str, Any]:
    """Return of every module its mode, hooks of any kind, and plain attributes, as dropout's probability."""
    parts: dict[str, Any] = {}
    for name, part in module.named_modules():
        place, attributes = name or "the network", vars(part)
        parts[f"the mode of {place}"] = part.training
        parts[f"the hooks of {place}"] = {
            kind: tuple(value)
            for kind, value in sorted(attributes.items())
            if "hooks" in kind and isinstance(value, Mapping)
        }
        parts[f"what {place} does"] = attributes.get("forward")
        parts[f"the modules of {place}"] = [(child, id(inner)) for child, inner in part.named_children()]
        parts[f"the attributes of {place}"] = {
            key: value for key, value in attributes.items() if isinstance(value, PLAIN) and key != "training"
        }
    return parts


def _of_the_process() -> dict[str, Any]:
    hooks = vars(torch.nn.modules.module)
    return {
        "torch's random state": torch.get_rng_state(),
        "Python's random state": random.getstate(),
        "numpy's random state": repr(np.random.get_state()),
        "whether torch keeps gradients": torch.is_grad_enabled(),
        "the inference mode": torch.is_inference_mode_enabled(),
        "the default type": torch.get_default_dtype(),
        "the default device": torch.get_default_device(),
        "the number of threads": torch.get_num_threads(),
        "whether algorithms are deterministic": (
            torch.are_deterministic_algorithms_enabled(),
            torch.is_deterministic_algorithms_warn_only_enabled(),
        ),
        "whether anomalies are detected": torch.is_anomaly_enabled(),
        "the precision of products": torch.get_float32_matmul_precision(),
        "the hooks of all modules": {
            name: tuple(value)
            for name, value in sorted(hooks.items())
            if name.startswith("_global_") and isinstance(value, Mapping)
        },
    }


def tensors(value: object) -> Iterator[Tensor]:
    """Yield every tensor in dictionaries, sequences and dataclasses, however deep, modules left out."""
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, Network):
        return
    elif isinstance(value, Mapping):
        yield from tensors(list(value.values()))
    elif isinstance(value, tuple | list):
        for part in value:
            yield from tensors(part)
    elif is_dataclass(value):
        yield from tensors([getattr(value, field.name) for field in fields(value)])


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
