"""The criteria by name. A plug-in adds its own to ``CRITERIA`` from the entry points ``zerolm.criteria``.

A criterion without tokens is a function from the shares of all layers (``weights.Shares``) and a seed to a
``Criterion``. One that needs ``tokens`` is a function from the sizes and a layer of the parent to
``activations.UnitStatistics``. One that also needs ``gradients`` gets a third argument: the roots (d, d) of
the Fisher information of the outputs of ``o`` and ``down`` there, by these names. Its scores are in nats per
token: the loss increase of removing a unit when the others are refitted.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from zerolm.checkpoints import Checkpoint, Ledger
from zerolm.registry import Entry, Registry, is_own, plugged
from zerolm.units.importance import weights
from zerolm.units.importance.criterion import Criterion

if TYPE_CHECKING:
    from zerolm.units.importance.activations import UnitStatistics

OBS: Final = "Optimal Brain Surgeon for units (arXiv 2302.04089, 2312.17244)"
NEEDS_TOKENS: Final = ("tokens", "torch")
Made = Entry[Callable[..., Any]]
CRITERIA: Final[Registry[Callable[..., Any]]] = Registry("criterion", "zerolm.criteria")


def by_tokens(file: str, name: str) -> Callable[..., UnitStatistics]:
    """Return a function that imports a statistics class of this package, and torch, when it is called."""

    def statistics(*arguments: Any) -> UnitStatistics:
        module = import_module(f"zerolm.units.importance.{file}")
        summed: UnitStatistics = getattr(module, name)(*arguments)
        return summed

    return statistics


BUILT_IN: Final = (
    Made("capacity", weights.capacity, "equation 3 of ZeroLM (arXiv 2503.18646), monotone"),
    Made("max_weight", weights.max_weight, "MAW (arXiv 2512.22671), as released"),
    Made("magnitude", weights.magnitude, "sum of |w|"),
    Made("random", weights.random, "drawn"),
    Made("prefix", weights.prefix, "the first units"),
    Made("amp", by_tokens("activations", "Amp"), "AMP (arXiv 2504.21174)", NEEDS_TOKENS),
    Made("output_energy", by_tokens("activations", "OutputEnergy"),
         "energy of the contribution to the residual stream", NEEDS_TOKENS),
    Made("compact", by_tokens("peers", "CommonActivations"), "COMPACT (arXiv 2509.06836)", NEEDS_TOKENS),
    Made("two_ssp", by_tokens("peers", "TwoSSP"), "2SSP (arXiv 2501.17771), without its second stage",
         NEEDS_TOKENS),
    Made("minitron", by_tokens("peers", "Minitron"), "Minitron (arXiv 2407.14679)", NEEDS_TOKENS),
    Made("flap", by_tokens("peers", "Flap"), "FLAP (arXiv 2312.11983), the same width in all layers",
         NEEDS_TOKENS),
    Made("surgeon", by_tokens("surgeon", "Surgeon"), f"{OBS}, with the loss's Fisher information",
         (*NEEDS_TOKENS, "gradients")),
)  # fmt: skip
for _entry in BUILT_IN:
    CRITERIA.add(_entry)
WEIGHTS_ONLY: Final = tuple(entry.name for entry in BUILT_IN if "tokens" not in entry.needs)
WITH_TOKENS: Final = tuple(entry.name for entry in BUILT_IN if "tokens" in entry.needs)


def needs_tokens(name: str) -> bool:
    """Return whether a criterion needs tokens; raise ``ValueError`` for an unknown one."""
    return "tokens" in CRITERIA.entry(name).needs


def needs_gradients(name: str) -> bool:
    """Return whether a criterion needs a backward pass; raise ``ValueError`` for an unknown one."""
    return "gradients" in CRITERIA.entry(name).needs


def criterion_of(name: str, checkpoint: Checkpoint, ledger: Ledger, *, seed: int = 0) -> Criterion:
    """Return a criterion that needs only weights; ``ValueError`` for one that needs tokens, or is broken."""
    if needs_tokens(name):
        raise ValueError(f"criterion {name!r} needs tokens")
    shares, maker = weights.all_shares(checkpoint, ledger), CRITERIA[name]
    with plugged(f"criterion {name!r}", maker):
        criterion: Criterion = maker(shares, seed)
        if not is_own(maker):
            _check(criterion, shares)
    return criterion


def _check(criterion: Criterion, shares: weights.Shares) -> None:
    """Raise ``ValueError`` where a criterion does not choose among all units of a layer, or score them."""
    for kind, layers in shares.items():
        for layer, parts in enumerate(layers):
            units = len(parts[0].squares)
            if list(criterion.choose(layer, kind, units)) != list(range(units)):
                raise ValueError(f"of {units} {kind} in layer {layer} it does not choose all")
            if not math.isfinite(criterion.score(layer, kind, units)):
                raise ValueError(f"its score of {units} {kind} in layer {layer} is not finite")
