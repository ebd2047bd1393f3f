"""Several proxies of one network, computed together."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from zerolm.networks.batch import Batch
from zerolm.networks.network import Network
from zerolm.networks.passes import Passes, Protocol
from zerolm.proxies.registry import LeftOut, Proxy, Value


@dataclass(frozen=True)
class Found:
    """What a proxy found: its numbers, or why it is left out. ``seconds`` as if it ran alone."""

    value: tuple[float, ...]
    seconds: float
    left_out: str | None = None


def compute(network: Network, proxies: Sequence[Proxy], batch: Batch, protocol: Protocol) -> dict[str, Found]:
    """Every proxy by name; each pass runs once. Gradients are freed when this returns.

    The seconds of a proxy are those of its passes, shared or not, and of its own reduction.
    ``ValueError`` where the loss is not finite.
    """
    passes = Passes(network, batch, protocol, {need for proxy in proxies for need in proxy.needs})
    passes.run()
    found: dict[str, Found] = {}
    for proxy in proxies:
        start, reason = time.perf_counter(), None
        try:
            value = numbers(proxy.compute(passes))
        except LeftOut as error:
            value, reason = (), str(error)
        except Exception as error:
            if isinstance(error, ValueError) or proxy.compute.__module__.startswith("zerolm."):
                raise
            message = f"proxy {proxy.name!r} fails with {type(error).__name__}: {error}"
            raise ValueError(f"{message}; does it name all its needs?") from error
        needed = sum(passes.seconds[name] for name in alone(proxy))
        found[proxy.name] = Found(value, needed + time.perf_counter() - start, reason)
    return found


def numbers(value: Value) -> tuple[float, ...]:
    """What a proxy returned, a number or a row of numbers, as a row; ``ValueError`` for anything else."""
    row = np.atleast_1d(np.asarray(value, np.float64))
    if row.ndim > 1:
        raise ValueError(f"a proxy gives a number or a row of numbers, not an array of shape {row.shape}")
    return tuple(row.tolist())


def alone(proxy: Proxy) -> set[str]:
    """The passes that would run for this proxy alone, each counted once."""
    names = set(proxy.passes)
    if "curvature" in names:
        names.add("backward")
    return names - {"forward"} if "backward" in names else names
