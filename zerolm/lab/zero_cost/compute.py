"""Several proxies of one network, computed together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from zerolm.lab.zero_cost.passes import Passes, Protocol, steps_of
from zerolm.lab.zero_cost.passes.clock import Clock
from zerolm.lab.zero_cost.registry import LeftOut, Proxy, Value
from zerolm.networks.batch import Batch
from zerolm.networks.network import Network
from zerolm.registry import plugged
from zerolm.settings import shown


@dataclass(frozen=True)
class Outcome:
    """The numbers of a proxy, or why it is left out. ``seconds`` as if it ran alone."""

    value: tuple[float, ...]
    seconds: float
    left_out: str | None = None


def compute(
    network: Network, proxies: Sequence[Proxy], batch: Batch, protocol: Protocol
) -> dict[str, Outcome]:
    """Return the outcome of every proxy by name; each pass runs once.

    The seconds of a proxy are those of its own reduction and of what it needs of the passes, shared or not:
    of a forward pass only, where that is all. They are this process's, on a GPU those that pass.
    ``ValueError`` where the loss is not finite.
    """
    passes = Passes(network, batch, protocol, {need for proxy in proxies for need in proxy.needs})
    passes.run()
    outcomes: dict[str, Outcome] = {}
    for proxy in proxies:
        clock, reason = Clock(network.device), None
        with clock.on(proxy.name):
            try:
                with plugged(f"proxy {proxy.name!r}", proxy.compute, LeftOut):
                    value = numbers(proxy.compute(passes))
            except LeftOut as error:
                value, reason = (), str(error)
        needed = sum(passes.seconds.get(name, 0.0) for name in costs(proxy))
        outcomes[proxy.name] = Outcome(value, needed + clock.seconds[proxy.name], reason)
    return outcomes


def numbers(value: Value) -> tuple[float, ...]:
    """Return the value of a proxy, a number or a row of them, as a row; ``ValueError`` for anything else."""
    row = np.atleast_1d(np.asarray(value))
    if row.dtype.kind not in "biuf":
        raise ValueError(f"a proxy gives a number or a row of numbers, not {shown(value)}")
    if row.ndim > 1:
        raise ValueError(f"a proxy gives a number or a row of numbers, not an array of shape {row.shape}")
    return tuple(row.astype(np.float64).tolist())


def costs(proxy: Proxy) -> set[str]:
    """Return the steps that take seconds for this proxy alone, each counted once."""
    return {name for need in proxy.needs for name in steps_of(need)}
