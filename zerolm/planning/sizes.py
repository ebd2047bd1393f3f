"""From a request and a criterion to the possible sizes of a layer, and to the best cut."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Final

from zerolm.checkpoints import Checkpoint
from zerolm.costs import COSTS, CostModel
from zerolm.planning.part_costs import Choices, PartCosts, part_costs
from zerolm.planning.plan import Planned, plan_per_layer, plan_uniform
from zerolm.planning.size_request import SizeRequest
from zerolm.planning.size_spaces import SIZE_SPACES
from zerolm.settings.messages import called
from zerolm.solvers.problem import Budgets
from zerolm.statistics import TOLERANCE
from zerolm.units.importance.criterion import Criterion
from zerolm.units.kept_units import Cut, dimensions
from zerolm.units.stream.narrowing import Width
from zerolm.units.within_layers import UNITS, LayerUnit

FFN_STEPS: Final = 64
"""Number of steps of FFN widths that a plan within budgets tries by default."""
HIDDEN_STEP: Final = 128
"""Steps of the stream's width are powers of two, at most this one and a sixteenth of the parent's."""
EXPERTS_MULTIPLE: Final = 8
"""Grouped products of experts need rows of a multiple of this number of values: 16 bytes."""
FLAT_SPECTRUM: Final = 0.9
"""A narrower stream that keeps less than this share of the energy gets a note."""
KERNEL_MULTIPLE: Final = 32
"""Widths that are not a multiple of this are slow: an odd FFN width halves llama.cpp's speed on a prompt."""
WIDE: Final = 1536
"""Layers with at least this number of units keep a multiple of ``KERNEL_MULTIPLE`` by default."""
UNIT_NAMES: Final = {
    **{unit.share: unit.shown for unit in UNITS},
    "layers": "layers",
    "hidden": "components of the stream",
}


@dataclass(frozen=True)
class Sizes:
    """The sizes of one kind of units: the parent's, and the possible ones, ascending."""

    whole: int
    possible: tuple[int, ...]
    can_be_cut: bool

    def nearest(self, share: float) -> int:
        """Return the possible size nearest to a share; ties go to the larger."""
        return min(self.possible, key=lambda size: (abs(size - share * self.whole), -size))

    def sharp(self) -> str:
        """Return the largest share that cuts, in the fewest digits that select it; empty where none does."""
        smaller = [size for size in self.possible if size < self.whole]
        if not smaller:
            return ""
        texts = (f"{smaller[-1] / self.whole:.{digits}g}" for digits in range(2, 18))
        return next(text for text in texts if self.nearest(float(text)) == smaller[-1])


def sizes_of(checkpoint: Checkpoint, request: SizeRequest, width: Width | None = None) -> dict[str, Sizes]:
    """Return the possible sizes of all that ``SHARES`` names.

    Those of ``heads`` are KV groups, and possible with a residual stream of this ``width``.
    """
    parent, cut = dimensions(checkpoint), checkpoint.family.cut
    hidden = width.hidden if width else parent.hidden
    sizes = dict[str, Sizes]()
    for unit, whole in zip(UNITS, parent.units, strict=True):
        counts = _unit_counts(unit, whole, hidden, checkpoint, request)
        sizes[unit.share] = Sizes(whole, tuple(counts), unit.can_be_cut(checkpoint.family))
    least_layers = max(1, len(cut.required_layers(parent.depth)))
    layers = range(least_layers, parent.depth + 1) if cut.layers else [parent.depth]
    sizes["layers"] = Sizes(parent.depth, tuple(layers), cut.layers)
    sizes["hidden"] = Sizes(parent.hidden, tuple(_hidden_sizes(checkpoint, request)), cut.hidden)
    return sizes


def _hidden_sizes(checkpoint: Checkpoint, request: SizeRequest) -> Iterator[int]:
    whole, every = checkpoint.layout.hidden, EXPERTS_MULTIPLE if checkpoint.family.has_experts else 1
    usual = min(HIDDEN_STEP, 1 << max(0, (whole // 16).bit_length() - 1))
    step = request.multiple_of or (1 if "hidden" in request.keep else usual)
    yield from (width for width in range(step, whole, step) if width % every == 0)
    yield whole


def widths(checkpoint: Checkpoint, criterion: Criterion, request: SizeRequest) -> list[Width | None]:
    """Return the possible widths of the stream in a plan, the narrowest first; None for the parent's.

    For a parent with a tied head a narrower stream may have a tied head or a head of its own, if the
    criterion can compare their losses.
    """
    sizes, tied = sizes_of(checkpoint, request)["hidden"], checkpoint.layout.tied
    share = request.keep.get("hidden")
    possible: tuple[int, ...] = (sizes.whole,)
    usual = Width(sizes.whole, tied)
    can_compare = sizes.can_be_cut and request.space is None and criterion.narrower(usual) is not None
    if share is not None:
        _check_share("hidden", share, sizes, checkpoint.family.cut.hidden_note)
        if share * sizes.whole < sizes.possible[0] / 2:
            raise ValueError(
                f"--keep-hidden {share:g} of {sizes.whole} {UNIT_NAMES['hidden']} rounds to none; the "
                f"least is {sizes.possible[0] / sizes.whole:.4g}"
            )
        possible = (sizes.nearest(share),)
    elif request.budgets and can_compare:
        able = [h for h in sizes.possible if not request.is_square or _groups_at(checkpoint, request, h)]
        possible = tuple(able) or possible
    heads = (True, False) if tied and can_compare and request.budgets else (tied,)
    return [
        None if hidden == sizes.whole else Width(hidden, head)
        for hidden in possible
        for head in (heads if hidden < sizes.whole else (tied,))
    ]


def choices(checkpoint: Checkpoint, request: SizeRequest, width: Width | None = None) -> Choices:
    """Return the possible sizes of a layer; ``ValueError`` where the request allows none.

    ``width`` is that of the residual stream, None for the parent's.
    """
    if request.space is not None:
        if request.is_uniform or request != request.of_space():
            raise ValueError(
                "--space fixes the sizes per layer: combine it with budgets or --plan heuristic only"
            )
        return SIZE_SPACES[request.space].choices(checkpoint)
    kinds = sizes_of(checkpoint, request, width)
    chosen = {kind: _sizes_of_plans(kind, sizes, request) for kind, sizes in kinds.items()}
    if not all(chosen[unit.share] for unit in UNITS):
        step = request.multiple_of or max(1, kinds["ffn"].whole // FFN_STEPS)
        raise ValueError(
            f"no size is left: {kinds['heads'].whole} KV groups and {kinds['ffn'].whole} neurons in steps of "
            f"{step}, divisible by {request.tensor_parallel}{_nearest_divisors(checkpoint, request, width)}"
        )
    for kind, share in request.keep.items():
        if kind != "hidden":
            _check_share(kind, share, kinds[kind], checkpoint.family.cut.note)
            chosen[kind] = (kinds[kind].nearest(share),)
    hidden = width.hidden if width else kinds["hidden"].whole
    chosen["heads"] = _groups_at(checkpoint, request, hidden)
    if not chosen["heads"]:
        raise ValueError(
            f"queries of this gguf are as wide as its hidden size, and no KV groups make them {hidden} wide: "
            "--keep-heads 1 --keep-hidden 1 keeps both"
        )
    required_layers = checkpoint.family.cut.required_layers(kinds["layers"].whole)
    units = tuple(chosen[unit.share] for unit in UNITS)
    return Choices(units, chosen["layers"], width=width, required_layers=required_layers)


def _groups_at(checkpoint: Checkpoint, request: SizeRequest, hidden: int) -> tuple[int, ...]:
    """Return the numbers of KV groups that the request allows with a stream of this width."""
    parent, share = dimensions(checkpoint), request.keep.get("heads")
    sizes = sizes_of(checkpoint, request, Width(hidden, checkpoint.layout.tied))["heads"]
    counts = _sizes_of_plans("heads", sizes, request) if share is None else (sizes.nearest(share),)
    queries = parent.heads_per_group * parent.head_size
    return tuple(count for count in counts if not request.is_square or count * queries == hidden)


def _sizes_of_plans(kind: str, sizes: Sizes, request: SizeRequest) -> tuple[int, ...]:
    """Return the sizes of one kind of units that a plan may have: those that are not named are not cut."""
    is_free = request.budgets and (sizes.can_be_cut or kind == "layers")
    if kind in request.keep or is_free:
        return sizes.possible
    return tuple(size for size in sizes.possible if size == sizes.whole)


def _nearest_divisors(checkpoint: Checkpoint, request: SizeRequest, width: Width | None) -> str:
    """Return the end of a message: the nearest values of each divisor that leave a size, where some do."""

    def leaves_sizes(changed: SizeRequest) -> bool:
        kinds = sizes_of(checkpoint, changed, width)
        return all(_sizes_of_plans(unit.share, kinds[unit.share], changed) for unit in UNITS)

    changes: dict[str, tuple[int | None, Callable[[int], SizeRequest]]] = {
        "multiple_of": (request.multiple_of, lambda value: replace(request, multiple_of=value)),
        "tensor_parallel": (request.tensor_parallel, lambda value: replace(request, tensor_parallel=value)),
    }
    ends, most = "", max(dimensions(checkpoint).units)
    for name, (value, changed) in changes.items():
        if value is None:
            continue
        sides = range(min(value - 1, most), 0, -1), range(value + 1, most + 1)
        near = [next((each for each in side if leaves_sizes(changed(each))), None) for side in sides]
        ends += f"; {called(name)} can be {' or '.join(map(str, filter(None, near)))}" if any(near) else ""
    return ends


def with_ranked_layers(checkpoint: Checkpoint, choices: Choices, by: Criterion) -> Choices:
    """Return the choices of layers that a criterion can rank: only all layers where it ranks none.

    A hybrid keeps a layer with a state and another one, because its readers need both. It is the one of its
    kind whose removal costs most.
    """
    if by.without(0) is None:
        return replace(choices, depth=(checkpoint.layout.depth,))
    states = checkpoint.family.config.kinds_with_state
    has_state = [not kinds.isdisjoint(states) for kinds in checkpoint.layout.kinds]
    if len(set(has_state)) < 2:
        return choices
    required = set(choices.required_layers)
    for kind in (True, False):
        layers = [layer for layer, has in enumerate(has_state) if has is kind]
        if not required & {*layers}:
            required.add(min(layers, key=lambda layer: by.without(layer) or 0.0))
    depth = tuple(count for count in choices.depth if count >= len(required))
    return replace(choices, required_layers=frozenset(required), depth=depth)


def _unit_counts(
    unit: LayerUnit, whole: int, hidden: int, checkpoint: Checkpoint, request: SizeRequest
) -> list[int]:
    """Return the numbers of units that the request allows in a layer, ascending, with this hidden size."""
    if whole == 0:  # such as the neurons of a mixture of experts without a shared expert
        return [0]
    if not unit.is_fine:
        every = range(1, whole + 1)
        return [count for count in every if _group_count_allowed(count, hidden, checkpoint, request)]
    step = request.multiple_of or _usual_step(whole, is_share=unit.share in request.keep)
    divisor = math.lcm(request.tensor_parallel, request.multiple_of or 1)
    return sorted(count for count in {*range(step, whole + 1, step), whole} if count % divisor == 0)


def _usual_step(whole: int, *, is_share: bool) -> int:
    """Return the step of widths without a requested one: that of fast kernels where layers are wide."""
    step, fast = 1 if is_share else max(1, whole // FFN_STEPS), KERNEL_MULTIPLE if whole >= WIDE else 1
    return max(fast, step // fast * fast)


def _group_count_allowed(count: int, hidden: int, checkpoint: Checkpoint, request: SizeRequest) -> bool:
    """Return whether the request allows this number of KV groups, and the format uniform layers with them."""
    parent, cut = dimensions(checkpoint), checkpoint.family.cut
    biased = any(checkpoint.config.get(flag) for flag in checkpoint.family.config.flags)
    as_parent = count == parent.kv_heads and hidden == parent.hidden
    divisible = hidden % (count * parent.heads_per_group) == 0 or as_parent
    needed = cut.indivisible == "refused" or (cut.written_as is not None and biased)
    written = divisible or not needed or not request.is_uniform
    return written and count % request.tensor_parallel == 0


def _check_share(kind: str, share: float, sizes: Sizes, why: str) -> None:
    if share < 1.0 and not sizes.can_be_cut:
        raise ValueError(f"{kind} cannot be cut here: {why}")


def rounding(checkpoint: Checkpoint, request: SizeRequest, plan: Planned) -> str:
    """Return notes on rounded shares; ``ValueError`` where nothing is cut because of rounding."""
    lines = list(_rounded(checkpoint, request))
    if lines and plan.is_whole:
        raise ValueError(f"nothing would be cut: {', '.join(lines)}")
    return ", ".join(lines)


def width_notes(cut: Cut) -> list[str]:
    """Return notes on a stream with a flat spectrum, or with a width on which kernels are slow."""
    narrowing, notes = cut.narrowing, list[str]()
    if narrowing is None:
        return []
    if narrowing.kept < FLAT_SPECTRUM:
        notes.append(
            f"the stream's spectrum is flat: {cut.hidden} of its {cut.parent.hidden} directions keep "
            f"{narrowing.kept:.1%} of its energy"
        )
    if cut.hidden % KERNEL_MULTIPLE:
        smaller = range(KERNEL_MULTIPLE, cut.parent.hidden, KERNEL_MULTIPLE)
        nearest = min(smaller, key=lambda size: abs(size - cut.hidden), default=None)
        other = f" ({nearest} is one)" if nearest else ""
        notes.append(f"a hidden size of {cut.hidden} is slow, being no multiple of {KERNEL_MULTIPLE}{other}")
    return notes


def _rounded(checkpoint: Checkpoint, request: SizeRequest) -> Iterator[str]:
    if request.space is not None:
        return
    for kind, sizes in sizes_of(checkpoint, request).items():
        share = request.keep.get(kind)
        if share is None:
            continue
        kept = sizes.nearest(share)
        if share < 1.0 and kept == sizes.whole:
            cure = f"; the nearest share that cuts is {sizes.sharp()}" if sizes.sharp() else ""
            yield f"--keep-{kind} {share:g} of {sizes.whole} {UNIT_NAMES[kind]} rounds to all of them{cure}"
        elif sizes.whole >= WIDE and abs(kept - share * sizes.whole) >= 1:
            yield (
                f"--keep-{kind} {share:g} keeps {kept:,} of {sizes.whole:,} {UNIT_NAMES[kind]}, a width on "
                "which kernels are fast; --multiple-of 1 allows any"
            )


def plan_of(checkpoint: Checkpoint, criterion: Criterion, request: SizeRequest, costs: CostModel) -> Planned:
    """Return the best of ``plans_of``."""
    return plans_of(checkpoint, criterion, request, costs)[0]


def plans_of(
    checkpoint: Checkpoint, criterion: Criterion, request: SizeRequest, costs: CostModel
) -> list[Planned]:
    """Return the best cut for each width of the stream that allows one, the best of all first.

    Among equal ones that of fewest parameters is first. Raises ``ValueError`` where there is none; the error
    names the nearest possible cost.
    """
    if not request.budgets and not request.keep:
        raise ValueError("no target size: give a budget such as --max-params 0.8x, or --keep-ffn 0.75")
    plans, errors = [], []
    for width in widths(checkpoint, criterion, request):
        try:
            plan = _plan_at_width(checkpoint, criterion, request, costs, width)
        except ValueError as error:
            errors.append(error)
            continue
        score = plan.score + (criterion.narrower(width) or 0.0 if width else 0.0)
        plans.append(replace(plan, score=score, width=width))
    if not plans:
        raise errors[0]
    top = max(plan.score for plan in plans)
    equal = top - TOLERANCE * abs(top)
    return sorted(plans, key=lambda plan: (-min(plan.score, equal), plan.costs["params"]))


def _plan_at_width(
    checkpoint: Checkpoint, criterion: Criterion, request: SizeRequest, costs: CostModel, width: Width | None
) -> Planned:
    """Return the best cut for a stream of this width; ``ValueError`` where there is none."""
    parent, sizes = dimensions(checkpoint), choices(checkpoint, request, width)
    if criterion.without(0) is None and sizes.depth[-1] < parent.depth:
        raise ValueError("layers cannot be ranked by weights alone: give --text FILE, or --text random")
    sizes = with_ranked_layers(checkpoint, sizes, criterion)
    costs_by_part = part_costs_of(checkpoint, sizes, costs, request.space)
    budgets = Budgets.of(request.budgets)
    plan = plan_uniform if request.is_uniform else plan_per_layer
    return plan(parent, criterion, sizes, costs_by_part, budgets)


def heuristic_of(checkpoint: Checkpoint, criterion: Criterion, request: SizeRequest) -> Cut:
    """Return the heuristic subnet of the request's space, with units chosen by the criterion."""
    if request.space is None or request.budgets:
        raise ValueError("the heuristic plan is that of a --space, without budgets")
    sizes = SIZE_SPACES[request.space].heuristic(choices(checkpoint, request))
    return Cut.of(dimensions(checkpoint), range(len(sizes)), sizes.__getitem__, criterion.choose)


def part_costs_of(checkpoint: Checkpoint, sizes: Choices, costs: CostModel, space: str | None) -> PartCosts:
    """Return the costs of the parts of a checkpoint, counted by the ``space`` where one is given."""
    count = part_costs if space is None else SIZE_SPACES[space].part_costs
    return count(checkpoint, sizes, costs)


def costs_of(
    checkpoint: Checkpoint, costs: CostModel, cut: Cut | None = None, space: str | None = None
) -> dict[str, int]:
    """Return the costs of a cut by name; without a cut those of the parent."""
    cut = cut or Cut.whole(dimensions(checkpoint))
    costs_by_part = part_costs_of(checkpoint, Choices.of_cut(cut), costs, space)
    return dict(zip(COSTS, costs_by_part.of(cut.sizes).tolist(), strict=True))


def budgets_of(budgets: Mapping[str, int | str], parent: Mapping[str, int]) -> dict[str, int]:
    """Return budgets as integers: ``0.8x`` is a share of the parent's cost of that name, at most ``1x``."""
    limits = {}
    for name, value in budgets.items():
        if isinstance(value, int):
            limits[name] = value
            continue
        share = Decimal(value.removesuffix("x"))
        if share > 1:
            raise ValueError(f"{name} {value!r} is no share of the parent's: shares are at most '1x'")
        limits[name] = int(share * parent[name.partition("_")[2]])
    return limits
