"""The experts, and neurons of each, that a request keeps: how many, which, and the excluded options."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from zerolm.architecture import Floats, Ints
from zerolm.carving.experts.expert_scores import is_of_pairs, needs_tokens
from zerolm.carving.experts.fewer_experts import NEURONS, expert_layers, with_neurons
from zerolm.carving.experts.stock_mixture import Routing
from zerolm.carving.request import SUMMED, Methods
from zerolm.checkpoints import Checkpoint
from zerolm.families.config import sizes_of
from zerolm.families.values import part_at
from zerolm.planning.size_request import ALL, AUTO, WORST, SizeRequest
from zerolm.planning.sizes import EXPERTS_MULTIPLE
from zerolm.settings.domains import domains_of
from zerolm.settings.units import KeptUnits
from zerolm.solvers.subsets import best_at_worst, least_pairs
from zerolm.statistics import TOLERANCE

Costs = Mapping[str, int]
TRIED: Final = 16
"""Largest number of expert counts that are tried together with numbers of neurons."""
KEPT: Final = KeptUnits("--keep-expert-ffn", "neurons", "0.75")


def check_request(size: SizeRequest, methods: Methods, *, alone: bool) -> None:
    """Raise ``ValueError`` for impossible requests for experts; ``alone``: nothing else is removed.

    A joint plan of experts and neurons needs estimated losses, and a choice by the worst domain scores of
    single experts on several domains.
    """
    experts, name = size.experts, methods.criterion
    flag = "--keep-experts" if experts.keep == AUTO else "--keep-expert-ffn"
    if not size.budgets and experts.take_budgets:
        raise ValueError(f"{flag} auto chooses within budgets: give one such as --max-params 0.7x")
    if alone and methods.plan != "weights":
        raise ValueError("--plan has no effect with --keep-experts alone: use --criterion")
    if experts.domains == WORST and (len(domains_of(methods.text)) < 2 or not needs_tokens(name)):
        raise ValueError("--domains worst needs texts of several domains: --text code=FILE,chat=FILE")
    if experts.domains == WORST and is_of_pairs(name):
        raise ValueError(f"--domains worst needs scores of single experts, not of pairs as {name}: give reap")
    if needs_tokens(name) and methods.text is None:
        raise ValueError(
            f"criterion {name} needs tokens: give --text FILE, or --criterion aimer, which needs none"
        )
    if experts.keep == experts.ffn == AUTO and name != SUMMED:
        raise ValueError(
            f"experts and their neurons are planned together by estimated losses, which {name} does not "
            f"give: use --criterion {SUMMED} and --text, or one of both numbers"
        )


def counts_of(size: SizeRequest, routing: Routing) -> list[int]:
    """Return the possible numbers of experts of a layer, ascending; only one where the request sets it.

    A request for neurons alone keeps all experts. So does ``1`` together with neurons where a token uses
    several experts: it is then the share 1, because it cannot be a number.
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
    """Return the numbers of experts that a joint plan tries, ascending: at most ``TRIED``, evenly spread.

    Both ends are included. Choosing experts by pairs takes time for each layer and number.
    """
    places = np.unique(np.linspace(0, len(counts) - 1, TRIED).round().astype(int))
    return [counts[place] for place in places]


def limits_of(size: SizeRequest) -> dict[str, int]:
    """Return budgets, which are numbers, by the names of costs."""
    return {name.removeprefix("max_"): limit for name, limit in size.budgets.items()}


def largest_within(limits: Costs, counts: Sequence[int], costs: Callable[[int], Costs]) -> int | None:
    """Return the largest of ``counts`` (ascending) within limits, None without one; costs are monotone."""

    def is_over(count: int) -> bool:
        child = costs(count)
        return any(child[name] > limit for name, limit in limits.items())

    fitting = bisect_left(counts, True, key=is_over)
    return counts[fitting - 1] if fitting else None


def most_within(
    limits: Costs, counts: Sequence[int], costs: Callable[[int], Costs], units: str = "experts a layer"
) -> int:
    """Return the largest of ``counts`` of ``units`` within limits; ``ValueError`` names the least costs."""
    most = largest_within(limits, counts, costs)
    if most is not None:
        return most
    child = costs(counts[0])
    name = next(name for name, limit in limits.items() if child[name] > limit)
    raise ValueError(
        f"max_{name} {limits[name]} would have to be at least {child[name]}, with {counts[0]} {units}"
    )


def check_experts(experts: Mapping[int, Ints], layers: list[int], routing: Routing) -> None:
    """Raise ``ValueError`` for experts of a recipe that do not fit the parent's ``layers``."""
    groups = routing.groups
    by_group = {
        tuple(np.bincount(kept * groups // routing.experts, minlength=groups)) for kept in experts.values()
    }
    if sorted(experts) != layers or len({count for row in by_group for count in row}) != 1:
        raise ValueError("the recipe keeps other numbers of experts than its parent's layers can have")
    routing.size(str(sum(by_group.pop())))


@dataclass(frozen=True)
class ExpertPlan:
    """The kept experts of a layer and neurons of each, with the predicted loss of all removed ones."""

    experts: int
    neurons: int
    loss: float


def least_lost(
    counts: Sequence[int],
    most: Callable[[int], int | None],
    by_experts: Callable[[int], float],
    by_neurons: Callable[[int, int], float],
) -> ExpertPlan:
    """Return the plan of least loss; ties go to the most experts.

    ``counts`` are the possible numbers of experts, ascending; ``most`` returns the largest number of neurons
    within the budgets for a number of experts, None where there is none. More neurons never lose more, so no
    other number has to be tried. Fewer experts never lose less, so the search ends once their loss alone
    reaches that of the best plan. Raises ``ValueError`` where no plan is within the budgets.
    """
    best: ExpertPlan | None = None
    for count in reversed(counts):
        neurons = most(count)
        if neurons is None:
            continue
        alone = by_experts(count)
        if best is not None and alone >= best.loss:
            break
        plan = ExpertPlan(count, neurons, alone + by_neurons(count, neurons))
        if best is None or plan.loss < best.loss * (1 - TOLERANCE):
            best = plan
    if best is None or not np.isfinite(best.loss):
        raise ValueError("no number of experts and of their neurons is within the budgets")
    return best


@dataclass(frozen=True)
class ExpertWidth:
    """The number of neurons of an expert of the parent (``whole``), and the numbers ``possible``, ascending.

    Stock classes multiply all experts at once, with rows of a multiple of eight numbers.
    """

    whole: int
    step: int
    possible: tuple[int, ...]

    @classmethod
    def of(cls, checkpoint: Checkpoint, request: SizeRequest) -> ExpertWidth:
        """Return the width of a checkpoint's experts; ``ValueError`` where it cannot be changed alone."""
        family, whole = checkpoint.family, checkpoint.layout.sizes.get(NEURONS, 0)
        if not family.has_experts or not whole or not expert_layers(checkpoint):
            raise ValueError(f"a {family.name} like this one has no experts whose neurons can be pruned")
        if checkpoint.packed:
            raise ValueError(
                "the parent is stored quantised, in blocks of several neurons: give no --keep-expert-ffn"
            )
        step = math.lcm(EXPERTS_MULTIPLE, request.multiple_of or 1, request.tensor_parallel)
        slots = checkpoint.layout.slots.items()
        others = {
            label: name
            for name, slot in slots
            if not slot.of_experts
            for axis in slot.axes
            for label in axis.split("+")
        }
        faults = {count: _fault(checkpoint, count, others) for count in range(step, whole, step)}
        if faults and all(faults.values()):
            raise ValueError(next(iter(faults.values())))
        possible = [count for count, fault in faults.items() if not fault]
        return cls(whole, step, (*possible, whole))

    def check(self, neurons: Mapping[int, Ints]) -> None:
        """Raise ``ValueError`` for neurons (e, n) by layer of a recipe that do not fit the parent."""
        sizes = {rows.shape[1] for rows in neurons.values()}
        if len(sizes) != 1 or not sizes <= {*self.possible}:
            raise ValueError("the recipe keeps other numbers of neurons than experts of its parent can have")

    def size(self, text: str) -> tuple[int, str]:
        """Return the number of neurons for ``512``, ``0.75`` or ``0.75x``, and a note on rounding.

        A share is rounded to the nearest possible number; ties go to the larger. Raises ``ValueError`` for an
        impossible number.
        """
        exact, is_share = KEPT.wanted(text, self.whole)
        near = min(self.possible, key=lambda count: (abs(count - exact), -count))
        if near == exact:
            return near, ""
        if is_share:
            return (
                near,
                f"{text} of {self.whole} neurons of an expert is {exact.normalize():f}: {near} are kept",
            )
        raise ValueError(
            f"--keep-expert-ffn {text}: an expert has {self.whole} neurons and keeps a multiple of "
            f"{self.step} that leaves shared experts unchanged; the nearest that can be is {near}"
        )


def _fault(checkpoint: Checkpoint, count: int, others: Mapping[str, str]) -> str:
    """Return why experts cannot have ``count`` neurons with all other widths unchanged; empty where they can.

    ``others`` are the axes of tensors that belong to no expert, each with the name of a tensor.
    """
    family, layout, config = checkpoint.family, checkpoint.layout, checkpoint.config
    at = part_at(family, config)
    try:
        part = with_neurons(checkpoint, config if at is None else config[at], count)
        sizes = sizes_of(family, part if at is None else {**config, at: part}).sizes
    except ValueError as error:
        return str(error)
    name = next(
        (others[label] for label in sizes if label in others and sizes[label] != layout.sizes[label]), ""
    )
    return name and (
        f"experts of a {family.name} have their width in common with {name!r}: neurons of experts alone "
        "cannot leave"
    )


@dataclass(frozen=True, eq=False)
class ChosenExperts:
    """The experts that a layer keeps, ascending.

    For choices by pairs ``loss`` is p' F p of the removed experts. For choices by domains another choice
    would be better by at most a share of ``gap``. Both are None elsewhere.
    """

    kept: Ints
    loss: float | None = None
    gap: float | None = None

    @property
    def is_proven(self) -> bool:
        """Whether it is proven that no other choice is better; a choice by pairs has no proof."""
        return self.loss is None and not self.gap


def best_experts(scores: Floats, count: int, groups: int = 1) -> Ints:
    """Return the ``count`` experts, ascending, with the largest sum of scores (e,), equally many per group.

    Experts of a group are consecutive. The sum is separable, so the best of each group are the best choice.
    """
    best = best_of_rows(scores.reshape(groups, -1), count // groups, "an expert's")
    return (best + np.arange(groups)[:, None] * (len(scores) // groups)).reshape(-1)


def best_of_rows(scores: Floats, count: int, whose: str = "a neuron's") -> Ints:
    """Return the ``count`` places (r, count), ascending, with the largest scores (r, n) of each row.

    Ties go to the first. Raises ``ValueError``, with ``whose`` they are, for a score that is not finite.
    """
    if not np.isfinite(scores).all():
        raise ValueError(f"{whose} score is NaN or infinite: the model's activations are not finite")
    best: Ints = np.sort(np.argsort(-scores, axis=1, kind="stable")[:, :count], axis=1)
    return best


def best_by_domains(scores: Floats, count: int, groups: int = 1) -> ChosenExperts:
    """Return ``count`` experts, equal numbers from each group, with the best worst domain.

    ``scores`` are (domains, e); a domain counts by the share of its sum that is kept.
    """
    totals = scores.sum(1, keepdims=True)
    used = (totals > 0)[:, 0]
    if not used.any():
        return ChosenExperts(best_experts(scores.sum(0), count, groups))
    best = best_at_worst(scores[used] / totals[used], count, groups)
    return ChosenExperts(best.chosen, gap=best.gap)


def best_by_pairs(pairs: Floats, count: int, groups: int = 1) -> ChosenExperts:
    """Return ``count`` experts, equal numbers from each group, with a small p' F p of the removed ones.

    ``pairs`` F is (e, e). No exchange of two experts lowers it. Raises ``ValueError`` for a pair that is
    not finite.
    """
    removed = least_pairs(pairs, len(pairs) - count, groups)
    kept = np.setdiff1d(np.arange(len(pairs)), removed)
    return ChosenExperts(kept, float(pairs[np.ix_(removed, removed)].sum()))
