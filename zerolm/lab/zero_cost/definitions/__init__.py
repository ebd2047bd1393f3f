"""The proxies of zerolm, by the passes that they read; whoever asks for one by name asks here."""

from zerolm.lab.zero_cost.definitions import (
    activations,
    confidence,
    flow,
    gradients,
    jacobian,
    noise,
    transfer,
    weights,
)
from zerolm.lab.zero_cost.registry import find_proxy, proxy_names

__all__ = [
    "activations",
    "confidence",
    "find_proxy",
    "flow",
    "gradients",
    "jacobian",
    "noise",
    "proxy_names",
    "transfer",
    "weights",
]
