"""Rules that every proxy must satisfy, for authors of plug-ins: ``check_proxy``, or tests to subclass."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from copy import deepcopy
from dataclasses import replace
from functools import cached_property
from typing import ClassVar, Final

from zerolm.lab.testing.network_state import close, same, state, tensors
from zerolm.lab.testing.small_networks import SETTINGS, shuffled, small_batch, small_networks
from zerolm.lab.zero_cost import find_proxy
from zerolm.lab.zero_cost.compute import numbers
from zerolm.lab.zero_cost.passes import NEEDS, Need, Passes
from zerolm.lab.zero_cost.registry import LeftOut, Proxy
from zerolm.lab.zero_cost.result import Mode
from zerolm.networks.batch import Batch
from zerolm.networks.network import Network

Numbers = tuple[float, ...]
ROUNDING: Final = 1e-6
"""Share of a value by which the order of a batch may change it, in float64."""


class Checks:
    """The rules for one proxy, each a method that raises ``AssertionError``, on copies of the networks."""

    def __init__(self, proxy: str | Proxy, networks: Sequence[Network] | None = None) -> None:
        self.proxy = find_proxy(proxy) if isinstance(proxy, str) else proxy
        self.given = networks

    @cached_property
    def networks(self) -> Sequence[Network]:
        return deepcopy(small_networks() if self.given is None else self.given)

    def leaves_the_network(self) -> None:
        """The network and what torch keeps for all of them are as before, and so is all randomness.

        That is: weights, buffers and gradients, and which tensors they are; flags, modes, attributes and
        hooks of all kinds, of modules, of parameters and of the whole process; defaults of torch.
        """
        for network, mode in self._everywhere():
            passes = self._passes(network, mode)
            before = state(network)
            self._value(passes)
            after = state(network)
            for part in before | after:
                as_before = part in before and part in after and same(before[part], after[part])
                self._demand(as_before, f"must leave everything as it is; it changes {part}")

    def finite(self) -> None:
        """Finite numbers, or ``LeftOut``, but not everywhere; and finite scores of all networks together."""
        values = [self._value(self._passes(network)) for network in self.networks]
        pool = [value for value in values if value is not None]
        self._demand(bool(pool), "is left out of every network: nothing of it can be checked")
        for value in pool:
            odd = not value or not all(map(math.isfinite, value))
            self._demand(not odd, f"must give finite numbers or raise LeftOut, and gave {value}")
        for name, column in self.proxy.scores(pool).items():
            if isinstance(column, LeftOut):
                continue
            whole = len(column) == len(pool) and all(map(math.isfinite, column))
            self._demand(whole, f"must finish with one finite score for each network; {name} is {column}")

    def deterministic(self) -> None:
        """The same numbers, bit by bit, whenever the seed is the same."""
        for network, mode in self._everywhere():
            first, second = (self._value(self._passes(network, mode)) for _ in range(2))
            self._demand(same(first, second), f"must be determined by the seed; gave {first}, then {second}")

    def declares_its_needs(self) -> None:
        """Alone, with only the passes that it needs, its values are those that it has among all other
        proxies."""
        for network in self.networks:
            passes = self._passes(network)
            ran = set(passes.seconds)
            alone = self._value(passes)
            more = sorted(set(passes.seconds) - ran)
            self._demand(not more, f"must name all that it needs; it also uses {', '.join(more)}")
            together = self._value(self._passes(network, needs={*NEEDS, *self.proxy.needs}))
            alike = same(alone, together)
            self._demand(
                alike, f"must name all that it needs; it gives {alone} alone, {together} with others"
            )

    def only_reads(self) -> None:
        """Tensors of the passes stay as they are: other proxies read them too."""
        for network, mode in self._everywhere():
            passes = self._passes(network, mode)
            before = [tensor.clone() for tensor in tensors(vars(passes))]
            self._value(passes)
            after = list(tensors(vars(passes)))
            whole = len(before) == len(after) and all(map(same, before, after))
            self._demand(whole, "must only read what the passes hold: other proxies read it too")

    def ignores_order(self) -> None:
        """The order of micro-batches, and of samples within them, says nothing (sane mode; in float64)."""
        for network in self.networks:
            wide = deepcopy(network)
            wide.module.double()
            batch = small_batch(network)
            one, other = (self._value(self._passes(wide, batch=b)) for b in (batch, shuffled(batch)))
            alike = close(one, other, ROUNDING)
            self._demand(alike, f"must not depend on the order of the batch; gave {one}, then {other}")

    def _passes(
        self,
        network: Network,
        mode: Mode = "sane",
        batch: Batch | None = None,
        needs: Iterable[Need] | None = None,
    ) -> Passes:
        """The passes with what the proxy needs, and nothing else unless said."""
        protocol = replace(SETTINGS, mode=mode).protocol(network.task)
        needed = frozenset(self.proxy.needs if needs is None else needs)
        passes = Passes(network, batch or small_batch(network), protocol, needed)
        passes.run()
        return passes

    def _value(self, passes: Passes) -> Numbers | None:
        try:
            return numbers(self.proxy.compute(passes))
        except LeftOut:
            return None
        except (KeyError, AttributeError, TypeError) as error:
            message = f"must name all that it needs; alone it fails with {error!r}"
            raise AssertionError(f"proxy {self.proxy.name!r} {message}") from error

    def _everywhere(self) -> Iterator[tuple[Network, Mode]]:
        for network in self.networks:
            yield network, "sane"
            yield network, "faithful"

    def _demand(self, true: bool, rule: str) -> None:
        if not true:
            raise AssertionError(f"proxy {self.proxy.name!r} {rule}")


RULES: Final[tuple[Callable[[Checks], None], ...]] = (
    Checks.leaves_the_network,
    Checks.finite,
    Checks.deterministic,
    Checks.declares_its_needs,
    Checks.only_reads,
    Checks.ignores_order,
)


def check_proxy(proxy: str | Proxy, networks: Sequence[Network] | None = None) -> None:
    """Raise ``AssertionError``, saying which rule is broken, unless a proxy satisfies them all.

    It takes a second or two on the usual networks, a small llama and a small FlexiBERT; ``networks`` take
    their place.
    """
    for rule in RULES:
        rule(Checks(proxy, networks))


class ProxyConformance:
    """For pytest: ``class TestMine(ProxyConformance): proxy = "mine"``, once the proxy is registered.

    It has a test for each of the ``RULES``.
    """

    proxy: ClassVar[str | Proxy]


def _test_of(rule: Callable[[Checks], None]) -> Callable[[ProxyConformance], None]:
    return lambda self: rule(Checks(self.proxy))


for _rule in RULES:
    setattr(ProxyConformance, f"test_{_rule.__name__}", _test_of(_rule))
