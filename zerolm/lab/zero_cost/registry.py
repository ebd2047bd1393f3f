"""The proxies by name: what each computes, from which passes, and where it comes from."""

from __future__ import annotations

import hashlib
import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from zerolm.lab.zero_cost.passes import NEEDS, Look, Need, Passes, pass_of
from zerolm.registry import Entry, Registry, is_own, plugged
from zerolm.scores import SCORES

Value = float | Sequence[float]
Compute = Callable[[Passes], Value]
Pool = Sequence[Sequence[float]]
"""Numbers of a proxy for each of the candidates, (m, k); rows may differ in length."""
_NAME: Final = re.compile(r"[a-z][a-z0-9_]{0,59}")


class LeftOut(ValueError):
    """A proxy cannot be computed from this batch, of this network or of so few; the others can."""


Finish = Callable[[Pool], Mapping[str, Sequence[float] | LeftOut]]
"""Makes columns of scores from a pool; of one that cannot be made, the reason stands in its place."""


@dataclass(frozen=True)
class Proxy:
    """A training-free score of a network that runs.

    ``compute(passes)`` gives a number, or numbers from which ``finish`` makes the scores of several
    candidates at once. ``needs`` are names of ``NEEDS``, or looks; shapes and weights are always there.
    ``sign`` is -1 where lower is meant to be better. ``version`` counts changes of what it computes: stored
    values of another version are not used.
    """

    name: str
    compute: Compute
    source: str
    needs: tuple[Need, ...] = ()
    sign: int = 1
    version: int = 1
    finish: Finish | None = None

    @property
    def revision(self) -> str:
        """Return the key of stored values: the version and, of a proxy that is not zerolm's, its source."""
        if is_own(self.compute):
            return str(self.version)
        looks = [need for need in self.needs if isinstance(need, Look)]
        functions = [self.compute, *(part for look in looks for part in (look.taps, look.reduce))]
        source = "".join(map(_source, functions))
        return f"{self.version}.{hashlib.sha256(source.encode()).hexdigest()[:16]}"

    @property
    def passes(self) -> tuple[str, ...]:
        """The passes that must run for it."""
        return tuple(dict.fromkeys(map(pass_of, self.needs)))

    def scores(self, pool: Pool) -> dict[str, list[float] | LeftOut]:
        """Return columns of scores (m,), higher expected to be better; why there is none in its place."""
        columns: Mapping[str, Sequence[float] | LeftOut] = {self.name: [row[0] for row in pool]}
        if self.finish:
            with plugged(f"proxy {self.name!r}", self.finish):
                columns = self.finish(pool)
        return {
            name: column if isinstance(column, LeftOut) else [self.sign * value for value in column]
            for name, column in columns.items()
        }


PROXIES: Final = Registry[Proxy]("proxy", "zerolm.proxies")


def _source(function: Callable[..., object]) -> str:
    """Return the text of a function, or its name where there is none."""
    try:
        return inspect.getsource(function)
    except (OSError, TypeError):
        return f"{function.__module__}.{getattr(function, '__qualname__', '')}"


def proxy(
    name: str,
    *,
    source: str,
    needs: Sequence[Need] = (),
    higher_is_better: bool = True,
    version: int = 1,
    finish: Finish | None = None,
) -> Callable[[Compute], Compute]:
    """Register ``compute(passes)`` as a proxy; ``source`` names the paper and its equation.

    ``passes`` offers ``network``, ``batch``, ``protocol``, ``linears`` (the matrices), ``weight(linear)``,
    and what ``needs`` ask for: ``gradient(linear)``, ``loss``, ``flow``, ``curvature``, ``transfer``, and
    ``looked(look)`` for a ``Look`` at tensors that no pass reduces. It must leave the network as it is. Raise
    ``LeftOut`` where the batch does not suffice, and the version whenever what is computed changes, for
    stored values of the same version are used again.
    """

    def register(compute: Compute) -> Compute:
        if not _NAME.fullmatch(name):
            raise ValueError(f"a proxy's name is lower case letters, digits and _, not {name!r}")
        if name in SCORES and not is_own(compute):
            raise ValueError(f"{name!r} is a closed form already; call the proxy otherwise")
        for need in needs:
            if isinstance(need, Look) == (str(need) in NEEDS):
                problem = "looks at {!r}, which a pass has" if str(need) in NEEDS else "needs {!r}"
                raise ValueError(f"proxy {name!r} {problem.format(str(need))}; there are {', '.join(NEEDS)}")
        sign = 1 if higher_is_better else -1
        entry = Proxy(name, compute, source, tuple(needs), sign, version, finish)
        PROXIES.add(Entry(name, entry, source, tuple(map(str, needs))))
        return compute

    return register


proxy_names: Final = PROXIES.names
"""Returns every proxy, those of plug-ins too, in the order of registration."""
find_proxy: Final = PROXIES.__getitem__
"""Returns the proxy of a name; ``ValueError`` says which there are."""
