"""Proxies: training-free scores of networks that run, computed together from a handful of passes (torch)."""

import zerolm.networks  # noqa: F401 - says what to install where torch is missing
from zerolm.proxies.definitions import (
    activations,
    confidence,
    flow,
    gradients,
    jacobian,
    noise,
    transfer,
    weights,
)
from zerolm.proxies.registry import LeftOut, Proxy, find_proxy, proxy, proxy_names

__all__ = [
    "LeftOut",
    "Proxy",
    "activations",
    "confidence",
    "find_proxy",
    "flow",
    "gradients",
    "jacobian",
    "noise",
    "proxy",
    "proxy_names",
    "transfer",
    "weights",
]
