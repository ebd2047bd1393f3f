"""Carving and healing in one: a cut in several stages, each healed before the next."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from zerolm.carving.carve import carve
from zerolm.carving.formats import FORMATS
from zerolm.carving.recipe import MAX_RECIPE_BYTES, OF_EXPERTS, from_layers, to_layers
from zerolm.carving.request import Destination, Methods
from zerolm.carving.result import CarvedChild, ChildStream, UnitRow
from zerolm.checkpoints import Checkpoint, ledger_of
from zerolm.costs import CostModel
from zerolm.healing.heal import heal
from zerolm.healing.request import HealRequest
from zerolm.healing.result import CarvedAndHealed, Healed
from zerolm.io.files import parse_json, read_text, replacing, write_json
from zerolm.io.folders import check_new, work_folder
from zerolm.io.plain import as_plain, checked
from zerolm.planning.part_costs import StoredCosts
from zerolm.planning.size_request import ALL, ExpertsRequest, KeptShares, SizeRequest, VocabularyRequest
from zerolm.planning.sizes import budgets_of, costs_of, sizes_of
from zerolm.progress import Progress, silent
from zerolm.settings.compute import ComputeRequest
from zerolm.training.processes import device_for, processes
from zerolm.units.kept_units import Cut, Dimensions, dimensions
from zerolm.units.within_layers import UNITS

RECIPE: Final = "recipe.json"
WITHIN_LAYERS: Final = tuple(unit.shown for unit in UNITS)


@dataclass(frozen=True, eq=False)
class Stages:
    """A cut to a ``size`` in ``count`` stages, each healed as ``request`` says.

    The tokens of the request are those of all stages together.
    """

    size: SizeRequest
    methods: Methods
    request: HealRequest
    count: int = 1
    costs: CostModel = field(default_factory=StoredCosts)
    compute: ComputeRequest = field(default_factory=ComputeRequest)

    @property
    def uneven(self) -> bool:
        return not self.size.is_uniform


Finish = Callable[[Path, CarvedAndHealed], None]
"""Writes the files of ``REPORT`` into the folder of a child that was carved, healed and verified."""


def carve_and_heal(
    parent: str | Path,
    stages: Stages,
    destination: Destination,
    *,
    finish: Finish | None = None,
    progress: Progress = silent,
) -> CarvedAndHealed:
    """Carve a child, heal it by its parent, and write it; of several stages each cuts by the same factor.

    All stages learn from the first parent. What a killed run has finished is not done again. Raises
    ``ValueError``, in one line, for what cannot be done, and ``TrainingFailed``.
    """
    device_for(stages.request.execution)
    if processes().num_processes > 1:
        raise ValueError("carving runs in one process: carve, then give zerolm heal to accelerate launch")
    checkpoint, out, form = Checkpoint.open(parent), destination.place, destination.form or "hf"
    check_new(out, destination.force)
    _check_possible(stages, checkpoint, form)
    identity = {
        "parent": str(checkpoint.place),
        "settings": [str(stages.size), str(stages.methods), str(stages.costs)],
        "request": str(stages.request),
        "stages": stages.count,
    }
    staged, tokens = out.absolute().parent / f"{out.name}.stages", stages.request.tokens
    request = replace(stages.request, tokens=None if tokens is None else tokens // stages.count)
    with work_folder(staged, identity, destination.force) as work:
        source, earlier = checkpoint, None
        for stage in range(1, stages.count + 1):
            cut = work / str(stage) / out.name  # a GGUF is named for its folder
            cut.parent.mkdir(exist_ok=True)
            earlier = child = _carved(stages, stage, (checkpoint, source), earlier, cut, progress)
            if stage < stages.count:
                healed = cut.parent / f"{out.name}.healed"
                if not (healed / RECIPE).is_file():
                    heal(cut, checkpoint.place, request, Destination(healed), progress=progress)
                source = Checkpoint.open(healed)

        def with_healing(healed: Healed) -> CarvedAndHealed:
            written = {"format": healed.format, "verified": healed.verified}
            return CarvedAndHealed(**vars(child) | written, healing=healed)

        def finished(folder: Path, healed: Healed) -> None:
            if finish is not None:
                finish(folder, with_healing(healed))

        place = replace(destination, form=form, finish=finished if finish else None)
        return with_healing(heal(cut, checkpoint.place, request, place, progress=progress))


def _check_possible(stages: Stages, checkpoint: Checkpoint, form: str) -> None:
    """Refuse before the long work what could only fail after it."""
    if stages.size.cuts_experts_alone and stages.count > 1:
        raise ValueError(
            f"experts are pruned in one step, and nothing else is cut: drop --steps {stages.count}"
        )
    if stages.uneven and stages.count > 1:
        raise ValueError("stages cut all layers to one size: give --shape uniform, or leave --steps out")
    if stages.uneven:
        FORMATS[form].check_uneven(checkpoint)
    whole = Cut.whole(dimensions(checkpoint))
    FORMATS[form].check(checkpoint, whole)
    ledger_of(checkpoint)  # refuses weights that are not finite


def _carved(
    stages: Stages,
    stage: int,
    opened: tuple[Checkpoint, Checkpoint],
    earlier: CarvedChild | None,
    out: Path,
    progress: Progress,
) -> CarvedChild:
    """Return the child of a stage: carved, or read where a killed run has carved it.

    ``earlier`` is that of the stage before.
    """
    file = out.parent / "result.json"
    if file.is_file():
        return checked(CarvedChild, parse_json(read_text(file, MAX_RECIPE_BYTES)))
    form = "padded" if stages.uneven else "hf"
    size, place = _size(stages, stage, *opened), Destination(out, form, force=True)
    running: dict[str, Any] = {"costs": stages.costs, "compute": stages.compute, "progress": progress}
    child = carve(opened[1].place, size, stages.methods, place, **running).child
    if earlier is not None:
        child = _rebased(out, opened[1].root, earlier, child)
    with replacing(file) as written:
        written.write(json.dumps(as_plain(child)).encode())
    return child


def _size(stages: Stages, stage: int, parent: Checkpoint, source: Checkpoint) -> SizeRequest:
    """Return shares and budgets of a stage: of the whole cut's, this part of the way by equal factors.

    Shares are of the network that the stage begins with.
    """
    way, size = stage / stages.count, stages.size
    keep = dict[str, float]()
    for name, share in size.keep.items():
        whole, current = (sizes_of(one, size)[name].whole for one in (parent, source))
        keep[name] = min(1.0, share**way * whole / current)
    size = replace(size, shares=KeptShares(**keep))
    if stage > 1:
        # tokens and experts leave at once, before all else
        experts, tokens = ExpertsRequest(keep=ALL), VocabularyRequest(ALL)
        size = replace(size.without_experts, experts=experts, vocabulary=tokens)
    if not size.budgets:
        return size
    wholes = costs_of(parent, stages.costs, space=size.space)
    limits = budgets_of(size.budgets, wholes)
    if stage < stages.count:
        limits = {
            name: max(limit, round(wholes[name.removeprefix("max_")] ** (1 - way) * limit**way))
            for name, limit in limits.items()
        }
    return size.within(limits)


def _rebased(cut: Path, source: Path, earlier: CarvedChild, child: CarvedChild) -> CarvedChild:
    """Make the first parent that of a later stage's recipe, and return its child so.

    Without ridges: what was trained between cannot be built again from a recipe.
    """
    before, recipe = (parse_json(read_text(folder / RECIPE, MAX_RECIPE_BYTES)) for folder in (source, cut))
    first = from_layers(Dimensions(**vars(earlier.parent_sizes)), before["layers"])
    second = from_layers(Dimensions(**vars(child.parent_sizes)), recipe["layers"]).after(first)
    stream = _stream(earlier.stream, child.stream)
    origin = {name: before[name] for name in ("parent", "revision", "parent_weights", "family")}
    licence = {name: before[name] for name in before if name.startswith("license")}
    costs = {**child.costs, "parent": earlier.costs["parent"]}
    changes = {
        "layers": to_layers(second),
        "stream": as_plain(stream),
        "costs": costs,
        "ridges": {},
        "healing": before["healing"],
    }
    changes |= {name: before[name] for name in (*OF_EXPERTS, "tokens") if name in before}
    write_json(cut / RECIPE, {**recipe, **origin, **licence, **changes})
    widths = [replace(one, layer=layer) for one, layer in zip(child.widths, second.sizes, strict=True)]
    units = _units(earlier.units, child.units, len(widths))
    whole = {name: getattr(earlier, name) for name in ("parent", "parent_sizes", "vocabulary", "experts")}
    return replace(child, **whole, widths=widths, stream=stream, costs=costs, units=units)


def _units(before: Sequence[UnitRow], after: Sequence[UnitRow], depth: int) -> list[UnitRow]:
    """Return the pruned units of each kind in two successive cuts, of a parent with ``depth`` layers.

    Units within layers are counted in the remaining layers.
    """
    later = {row.unit: row for row in after}
    layers = next((row.after for row in before if row.unit == "layers"), depth)
    rows = []
    for row in before:
        more = later.get(row.unit, replace(row, params=0))
        whole = row.before * depth // layers if row.unit in WITHIN_LAYERS else row.before
        rows.append(UnitRow(row.unit, whole, more.after, row.params + more.params))
    return rows


def _stream(before: ChildStream | None, second: ChildStream | None) -> ChildStream | None:
    if before is None or second is None:
        return second or before
    return replace(second, kept_energy=before.kept_energy * second.kept_energy)
