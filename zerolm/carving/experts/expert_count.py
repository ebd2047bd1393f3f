"""How many experts of a layer stay, by a request, and what cannot stand beside it."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from typing import Final

import numpy as np

from zerolm.architecture import Ints
from zerolm.carving.experts.expert_worth import is_of_pairs, needs_tokens
from zerolm.carving.experts.routing import Routing
from zerolm.carving.request import SUMMED, Methods
from zerolm.planning.size_request import ALL, AUTO, STORED, WORST, SizeRequest
from zerolm.planning.sizes import budgets_of
from zerolm.settings.domains import domains_of

Costs = Mapping[str, int]
TRIED: Final = 16
"""So many numbers of experts at most are tried beside numbers of neurons."""
LEAST_SQUARES: Final = "least-squares"


def check_request(size: SizeRequest, methods: Methods, *, alone: bool) -> None:
    """Refuse what cannot be asked of experts; ``alone``: nothing else leaves."""
    flag = "--keep-experts" if size.experts.keep == AUTO else "--keep-expert-ffn"
    if not size.budgets and size.experts.take_budgets:
        raise ValueError(f"{flag} auto chooses within budgets: give one such as --max-params 0.7x")
    if size.experts.take_budgets and size.vocabulary.size == AUTO:
        raise ValueError(
            f"{flag} auto and --keep-vocab auto would share the budgets: give a number of one of them"
        )
    if size.experts.take_budgets and size.weights.types not in (None, STORED):
        raise ValueError(
            f"{flag} auto and --types would share max_weight_bytes: give a number of {flag[7:]}, or no types"
        )
    if alone and methods.plan != "weights":
        raise ValueError("--plan has no effect with --keep-experts alone: use --criterion")
    if methods.repair not in ("none", LEAST_SQUARES):
        raise ValueError(
            f"--repair {methods.repair} is for other cuts: experts take {LEAST_SQUARES}, or none"
        )


def check_joint(size: SizeRequest, methods: Methods) -> None:
    """Refuse to plan experts and neurons together by what does not foretell what both lose in one unit."""
    if size.experts.keep == size.experts.ffn == AUTO and methods.criterion != SUMMED:
        raise ValueError(
            f"experts and their neurons are planned together by estimated losses, which {methods.criterion} "
            f"does not give: use --criterion {SUMMED} and --text, or one of both numbers"
        )


def check_text(methods: Methods) -> None:
    """Refuse a criterion that needs tokens where there is no text."""
    if needs_tokens(methods.criterion) and methods.text is None:
        raise ValueError(
            f"criterion {methods.criterion} needs tokens: give --text FILE, or --criterion aimer, which "
            "needs none"
        )


def check_domains(size: SizeRequest, methods: Methods) -> None:
    """Refuse a choice by the worst of several domains, where there are none, or nothing tells it."""
    if size.experts.domains != WORST:
        return
    name = methods.criterion
    if len(domains_of(methods.text)) < 2 or not needs_tokens(name):
        raise ValueError("--domains worst needs texts of several domains: --text code=FILE,chat=FILE")
    if is_of_pairs(name):
        raise ValueError(f"--domains worst needs scores of single experts, not of pairs as {name}: give reap")


def count_of(size: SizeRequest, routing: Routing, parent: Costs, costs: Callable[[int], Costs]) -> int:
    """Return how many experts a layer keeps: as many as asked, or the most within the budgets.

    ``costs`` are those of a child with so many. ``ValueError`` where none can be.
    """
    counts = counts_of(size, routing)
    return counts[0] if size.experts.keep != AUTO else most_within(limits_of(size, parent), counts, costs)


def counts_of(size: SizeRequest, routing: Routing) -> list[int]:
    """Return the numbers of experts, ascending, that a request lets a layer keep; one where it says it.

    All stay where it is of neurons alone. So they do by the share 1 beside neurons, where a token is sent to
    more than one, so that it cannot be a number.
    """
    request, parallel = size.experts, size.experts.parallel
    if routing.experts % parallel:
        raise ValueError(f"--expert-parallel {parallel} does not divide the {routing.experts} experts")
    if request.keep in (None, ALL) or (
        request.keep == "1" and request.ffn is not None and routing.active > 1
    ):
        return [routing.experts]
    return routing.possible(parallel) if request.keep == AUTO else [routing.size(str(request.keep), parallel)]


def tried_of(counts: Sequence[int]) -> list[int]:
    """Return the numbers of experts that a joint plan tries, ascending: ``TRIED`` at most, evenly.

    Both ends are among them. Choosing experts by pairs takes seconds a layer and number.
    """
    places = np.unique(np.linspace(0, len(counts) - 1, TRIED).round().astype(int))
    return [counts[place] for place in places]


def limits_of(size: SizeRequest, parent: Costs) -> dict[str, int]:
    """Return budgets by the names of costs; ``ValueError`` for one that is not known of this parent."""
    limits = budgets_of(size.budgets, parent)
    named = {name.removeprefix("max_"): limit for name, limit in limits.items()}
    unknown = next((name for name in named if name not in parent), None)
    if unknown is not None:
        raise ValueError(f"max_{unknown} is not known of this parent; {', '.join(parent)} are")
    return named


def largest_within(limits: Costs, counts: Sequence[int], costs: Callable[[int], Costs]) -> int | None:
    """Return the largest of ``counts`` (ascending) within limits, None without one; costs do not fall."""

    def is_over(count: int) -> bool:
        child = costs(count)
        return any(child[name] > limit for name, limit in limits.items())

    fitting = bisect_left(counts, True, key=is_over)
    return counts[fitting - 1] if fitting else None


def most_within(
    limits: Costs, counts: Sequence[int], costs: Callable[[int], Costs], units: str = "experts a layer"
) -> int:
    """Return the largest of ``counts`` of ``units`` within limits; ``ValueError`` tells the least costs."""
    most = largest_within(limits, counts, costs)
    if most is not None:
        return most
    child = costs(counts[0])
    name = next(name for name, limit in limits.items() if child[name] > limit)
    raise ValueError(
        f"max_{name} {limits[name]} would have to be at least {child[name]}, with {counts[0]} {units}"
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
