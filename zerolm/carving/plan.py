"""Planning a cut: which layers, how many KV groups and neurons in each, within budgets, exactly."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from zerolm.architecture import Ends, Floats, Ints, Layer, Matrix, Shapes
from zerolm.carving.criteria import Criterion
from zerolm.carving.cuts import Cut, Dimensions, LayerCut
from zerolm.checkpoints import Checkpoint
from zerolm.costs import COSTS, CostModel
from zerolm.solvers.limits import bounded_columns, single_limits
from zerolm.solvers.problem import Budgets, Problem, at_least
from zerolm.solvers.proven import Proven
from zerolm.spaces import CandidateTable
from zerolm.statistics import TOLERANCE

PARAMS = COSTS.index("params")


@dataclass(frozen=True, eq=False)
class Choices:
    """The numbers of KV groups and of neurons that a layer may keep, ascending; and of layers.

    ``own`` lists (groups, neurons) for each layer where they differ; all of them are in the others.
    """

    groups: tuple[int, ...]
    ffn: tuple[int, ...]
    depth: tuple[int, ...]
    own: tuple[tuple[tuple[int, ...], tuple[int, ...]], ...] = ()

    def of(self, layer: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """The numbers of KV groups and of neurons that this layer may keep."""
        return self.own[layer] if self.own else (self.groups, self.ffn)


@dataclass(frozen=True, eq=False)
class Accounts:
    """What the parts of a checkpoint cost: ``groups[g]`` and ``ffn[f]`` for each size, ``rest`` once a layer.

    All (5,) int64 in the order of ``COSTS``; ``outside`` is everything beside the layers.
    """

    groups: dict[int, Ints]
    ffn: dict[int, Ints]
    rest: Ints
    outside: Ints

    def of(self, sizes: Sequence[tuple[int, int]]) -> Ints:
        """The costs of a network whose layers have these (groups, neurons), (5,)."""
        total = self.outside.copy()
        for groups, ffn in sizes:
            total += self.rest + self.groups[groups] + self.ffn[ffn]
        return total


def accounts(checkpoint: Checkpoint, choices: Choices, costs: CostModel) -> Accounts:
    """Count tensor by tensor what a cut of each size stores and computes."""
    layout = checkpoint.layout
    part = {"q": layout.heads // layout.kv_heads * layout.head_size, "kv": layout.head_size}

    def layer(groups: int, ffn: int) -> Ints:
        matrices, vectors = [], 0
        for name in layout.layer(0).values():
            axes = layout.slots[name].axes
            sizes = {
                **layout.sizes, "q": groups * part["q"], "kv": groups * part["kv"], "ffn": ffn,
                "qkv": groups * (part["q"] + 2 * part["kv"]),
            }  # fmt: skip
            shape = [sizes[axis] for axis in axes]
            if len(shape) == 2:
                matrices.append(Matrix("ffn" if "ffn" in axes else "attention", shape[0], shape[1]))
            else:
                vectors += int(np.prod(shape))
        one = Layer(tuple(matrices), layout.hidden, groups * part["q"], groups * part["kv"], vectors, vectors)
        return np.asarray(costs.layers(Shapes.of([one]))[0], np.int64)

    least_g, least_f = choices.groups[0], choices.ffn[0]
    rest = layer(least_g, least_f)
    return Accounts(
        {groups: layer(groups, least_f) - rest for groups in choices.groups},
        {ffn: layer(least_g, ffn) - rest for ffn in choices.ffn},
        rest,
        costs.ends(_ends(checkpoint)),
    )


def _ends(checkpoint: Checkpoint) -> Ends:
    """The tensors outside the layers."""
    layout = checkpoint.layout
    embedding = head = 0
    heads: list[Matrix] = []
    vectors = 0
    for role, name in layout.layer(None).items():
        shape = checkpoint.tensors[name].shape
        count = int(np.prod(shape))
        if role in ("embedding", "positions", "types"):
            embedding += count
            head = count if role == "embedding" and layout.tied else head
        elif len(shape) == 2 and not (role == "head" and layout.tied):
            heads.append(Matrix("head", shape[0], shape[1]))
        elif len(shape) == 1:
            vectors += count
    return Ends(embedding, tied_head=head, head_matrices=tuple(heads), vectors=vectors)


@dataclass(frozen=True, eq=False)
class Planned:
    """A cut with its costs by name, its worth, and whether no other of its shape is worth more."""

    cut: Cut
    costs: dict[str, int]
    worth: float
    optimal: bool


def plan_uniform(
    parent: Dimensions, criterion: Criterion, choices: Choices, account: Accounts, budgets: Budgets
) -> Planned:
    """The best cut with the same sizes in all kept layers; of equals the cheapest in parameters.

    Every depth, number of groups and number of neurons is tried; of each the layers of most worth stay.
    Raises ``ValueError`` where none keeps the budgets.
    """
    gain, without = _gains(parent, criterion, choices)
    best_first = np.sort(gain, axis=0)[::-1].cumsum(axis=0)  # (layers, groups, ffn)
    depths = np.array(choices.depth)
    worth = best_first[depths - 1] + without.sum()  # (depths, groups, ffn)
    layer = np.array([[account.groups[g] + account.ffn[f] for f in choices.ffn] for g in choices.groups])
    costs = account.outside + depths[:, None, None, None] * (account.rest + layer)  # (depths, groups, ffn, 5)
    allowed = budgets.allow(costs)
    if not allowed.any():
        raise ValueError(_infeasible(budgets, costs.reshape(-1, len(COSTS)).min(axis=0)))
    top = worth[allowed].max()
    equal = allowed & (worth >= top - TOLERANCE * abs(top))
    d, g, f = np.unravel_index(np.argmin(np.where(equal, costs[..., PARAMS], np.inf)), worth.shape)
    groups, ffn = choices.groups[g], choices.ffn[f]
    kept = np.sort(np.argsort(-gain[:, g, f], kind="stable")[: depths[d]]).tolist()
    layers = (
        LayerCut(layer, criterion.choose(layer, "groups", groups), criterion.choose(layer, "ffn", ffn))
        for layer in kept
    )
    named = dict(zip(COSTS, costs[d, g, f].tolist(), strict=True))
    return Planned(Cut(parent, tuple(layers)), named, float(worth[d, g, f]), True)


def _gains(parent: Dimensions, criterion: Criterion, choices: Choices) -> tuple[Floats, Floats]:
    """What each layer of each size adds by being there, (layers, groups, ffn), and the worth without it."""
    groups, ffn = (
        np.array([[criterion.worth(layer, kind, size) for size in sizes] for layer in range(parent.depth)])
        for kind, sizes in (("groups", choices.groups), ("ffn", choices.ffn))
    )
    without = np.array([criterion.without(layer) or 0.0 for layer in range(parent.depth)])
    return groups[:, :, None] + ffn[:, None, :] - without[:, None, None], without


def plan_per_layer(
    parent: Dimensions, criterion: Criterion, choices: Choices, account: Accounts, budgets: Budgets
) -> Planned:
    """The best cut with sizes of its own in every layer, by exact search over all of them.

    Layers may go where the criterion knows what a network without them is worth.
    """
    column = next(iter(bounded_columns(budgets)), PARAMS)
    layers = [_candidates(parent, criterion, choices, account, layer) for layer in range(parent.depth)]
    fixed = account.outside + parent.depth * account.rest
    problem = Problem(tuple((each.table, 1) for each in layers), fixed)
    several = single_limits([problem], budgets, column) is None
    engine = Proven([problem], budgets, column, several)
    first = next(engine.in_order(), None)
    if first is None:
        raise ValueError(_infeasible(budgets, problem.extreme_costs()[0]))
    solution, bound = first
    cuts = []
    for layer, (each, chosen) in enumerate(zip(layers, solution.picks, strict=True)):
        groups, ffn = each.sizes[chosen[0]]
        if groups:
            kept = (criterion.choose(layer, "groups", groups), criterion.choose(layer, "ffn", ffn))
            cuts.append(LayerCut(layer, *kept))
    if not cuts:
        raise ValueError("only a network without any layer keeps the budgets")
    return Planned(
        Cut(parent, tuple(cuts)),
        dict(zip(COSTS, solution.costs.tolist(), strict=True)),
        solution.score,
        bool(at_least(solution.score, bound)),
    )


@dataclass(frozen=True, eq=False)
class Candidates:
    """What may become of a layer: ``sizes`` (groups, neurons), (0, 0) for none of it, beside their table."""

    sizes: list[tuple[int, int]]
    table: CandidateTable


def _candidates(
    parent: Dimensions, criterion: Criterion, choices: Choices, account: Accounts, layer: int
) -> Candidates:
    """All pairs of sizes of a layer but those that another beats in worth and in every cost."""
    groups, ffn = choices.of(layer)
    worth = np.add.outer(
        [criterion.worth(layer, "groups", size) for size in groups],
        [criterion.worth(layer, "ffn", size) for size in ffn],
    ).ravel()  # (pairs,)
    costs = np.array([account.groups[g] + account.ffn[f] for g in groups for f in ffn])  # (pairs, 5)
    sizes = [(g, f) for g in groups for f in ffn]
    gone = criterion.without(layer)
    if gone is not None and len(choices.depth) > 1:
        worth, costs = np.append(worth, gone), np.vstack([costs, -account.rest])
        sizes.append((0, 0))
    kept = _undominated(worth, costs)
    return Candidates([sizes[i] for i in kept], CandidateTable(worth[kept], costs[kept], (1,) * len(kept)))


def _undominated(worth: Floats, costs: Ints) -> Ints:
    """The candidates that none of more worth, or as much, costs as little in everything as."""
    order = np.lexsort((*costs.T, -worth))
    kept: list[int] = []
    for i in order:
        if not kept or not (costs[kept] <= costs[i]).all(axis=1).any():
            kept.append(int(i))
    return np.sort(np.array(kept))


def _infeasible(budgets: Budgets, least: Ints | None) -> str:
    broken = [
        f"max_{name} {budgets.high[i]} would have to be at least {least[i]}"
        for i, name in enumerate(COSTS)
        if least is not None and least[i] > budgets.high[i]
    ]
    return "no cut keeps the budgets" + (f": {', and '.join(broken)}" if broken else " together")
