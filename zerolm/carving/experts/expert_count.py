"""How many experts of a layer stay, by a request, and what cannot stand beside it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

import numpy as np

from zerolm.architecture import Ints
from zerolm.carving.experts.routing import Routing
from zerolm.carving.planning.sizes import budgets_of
from zerolm.carving.request import AUTO, RANDOM, Methods, SizeRequest
from zerolm.settings.domains import domains_of

Costs = Mapping[str, int]
LEAST_SQUARES: Final = "least-squares"


def check_alone(size: SizeRequest, methods: Methods, *, rebuilt: bool = False) -> None:
    """Refuse what cannot stand beside experts; a child that is ``rebuilt`` has the size of its recipe."""
    others = [f"--keep-{name}" for name in size.keep] + (["--space"] if size.space else [])
    others += ["--keep-vocab"] if size.vocabulary.cuts else []
    if size.experts.keep != AUTO and not rebuilt:
        others += [f"--{name.replace('_', '-')}" for name in size.budgets]
    if others:
        raise ValueError(
            f"experts are taken out alone: {others[0]} cannot stand beside --keep-experts; "
            "carve the child again"
        )
    if size.experts.keep == AUTO and not size.budgets:
        raise ValueError("--keep-experts auto chooses within budgets: give one such as --max-params 0.7x")
    if methods.plan != "weights":
        raise ValueError("which experts go is told by their criterion: --plan is for other cuts")
    if methods.repair not in ("none", LEAST_SQUARES):
        raise ValueError(
            f"--repair {methods.repair} is for other cuts: experts take {LEAST_SQUARES}, or none"
        )


def check_merge(text: str | None) -> None:
    """Refuse to merge experts by anything but what they do on a text."""
    texts = domains_of(text).values() or [text]
    if text is None or RANDOM in texts:
        of = "without one" if text is None else "on random tokens"
        raise ValueError(
            f"experts are merged by what they do on a text, not {of}: give --text FILE, or no --merge"
        )


def count_of(size: SizeRequest, routing: Routing, parent: Costs, costs: Callable[[int], Costs]) -> int:
    """Return how many experts a layer keeps: as many as asked, or the most within the budgets.

    ``costs`` are those of a child with so many. ``ValueError`` where none can be.
    """
    request, parallel = size.experts, size.experts.parallel
    if routing.experts % parallel:
        raise ValueError(f"--expert-parallel {parallel} does not divide the {routing.experts} experts")
    if request.keep != AUTO:
        return routing.size(str(request.keep), parallel)
    limits = budgets_of(size.budgets, parent)
    unknown = next((name for name in limits if name.removeprefix("max_") not in parent), None)
    if unknown is not None:
        raise ValueError(f"{unknown} is not known of this parent; {', '.join(parent)} are")
    for count in reversed(routing.possible(parallel)):
        child = costs(count)
        over = [name for name, limit in limits.items() if child[name.removeprefix("max_")] > limit]
        if not over:
            return count
    least = child[over[0].removeprefix("max_")]
    raise ValueError(
        f"{over[0]} {limits[over[0]]} would have to be at least {least}, with {count} experts a layer"
    )


def checked(experts: Mapping[int, Ints], layers: list[int], routing: Routing) -> Mapping[int, Ints]:
    """Return the experts of a recipe; ``ValueError`` where they do not fit the parent's ``layers``."""
    sizes = {len(kept) for kept in experts.values()}
    groups = routing.groups
    each = {
        tuple(np.bincount(kept * groups // routing.experts, minlength=groups)) for kept in experts.values()
    }
    if sorted(experts) != layers or len(sizes) != 1 or any(len(set(row)) > 1 for row in each):
        raise ValueError("the recipe keeps other numbers of experts than its parent's layers can have")
    routing.size(str(sizes.pop()))
    return experts
