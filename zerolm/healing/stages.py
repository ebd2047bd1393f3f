"""Carving and healing in one: a cut in several stages, each healed before the next."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from zerolm.carving.carve import carve
from zerolm.carving.formats import FORMATS, UNEVEN
from zerolm.carving.recipe import MAX_RECIPE_BYTES, OF_EXPERTS, from_layers, to_layers
from zerolm.carving.request import Destination, Methods
from zerolm.checkpoints import Checkpoint, ledger_of
from zerolm.costs import CostModel
from zerolm.healing.heal import heal
from zerolm.healing.request import HealRequest
from zerolm.healing.result import Healed
from zerolm.io.files import parse_json, read_text, write_json
from zerolm.io.folders import check_new, work_folder
from zerolm.io.plain import as_plain
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
        """Return whether layers may have different sizes."""
        return not self.size.is_uniform


@dataclass(frozen=True, eq=False)
class CarvedAndHealed:
    """The plain JSON of the child's carving, compared with its parent, and the result of the last healing."""

    carving: dict[str, Any]
    healed: Healed

    def to_json(self) -> dict[str, Any]:
        """Return the carving and its healing as one object; the child is the healed one."""
        healing = as_plain(self.healed)
        written = {name: healing[name] for name in ("format", "verified")}
        return {**self.carving, **written, "healing": healing}


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
    stages.request.check()
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
    staged, request = out.absolute().parent / f"{out.name}.stages", _part(stages)
    with work_folder(staged, identity, destination.force) as work:
        source, earlier = checkpoint, None
        for stage in range(1, stages.count + 1):
            cut = work / str(stage) / out.name  # a GGUF is named for its folder
            cut.parent.mkdir(exist_ok=True)
            document = _carved(stages, stage, (checkpoint, source), cut, progress)
            if earlier is not None:
                document = _rebased(cut, source.root, earlier, document)
            earlier = document
            if stage < stages.count:
                healed = cut.parent / f"{out.name}.healed"
                if not (healed / RECIPE).is_file():
                    heal(cut, checkpoint.place, request, Destination(healed), progress=progress)
                source = Checkpoint.open(healed)

        def finished(folder: Path, healed: Healed) -> None:
            if finish is not None:
                finish(folder, CarvedAndHealed(document, healed))

        place = replace(destination, form=form, finish=finished if finish else None)
        return CarvedAndHealed(document, heal(cut, checkpoint.place, request, place, progress=progress))


def _check_possible(stages: Stages, checkpoint: Checkpoint, form: str) -> None:
    """Refuse before the long work what could only fail after it."""
    if stages.size.cuts_experts_alone and stages.count > 1:
        raise ValueError(
            f"experts are pruned in one step, and nothing else is cut: drop --steps {stages.count}"
        )
    if stages.uneven and stages.count > 1:
        raise ValueError("stages cut all layers to one size: give --shape uniform, or leave --steps out")
    if stages.uneven and form == "hf":
        raise ValueError(UNEVEN)
    whole = Cut.whole(dimensions(checkpoint))
    FORMATS[form].check(checkpoint, whole)
    ledger_of(checkpoint)  # refuses weights that are not finite


def _part(stages: Stages) -> HealRequest:
    """Return the request of one stage."""
    tokens = stages.request.tokens
    return replace(stages.request, tokens=None if tokens is None else tokens // stages.count)


def _carved(
    stages: Stages,
    stage: int,
    opened: tuple[Checkpoint, Checkpoint],
    out: Path,
    progress: Progress,
) -> dict[str, Any]:
    """Carve the child of a stage, unless it is there, and return its plain JSON."""
    file = out.parent / "carving.json"
    if not (out / RECIPE).is_file():
        form = "padded" if stages.uneven else "hf"
        size, place = _size(stages, stage, *opened), Destination(out, form)
        running: dict[str, Any] = {"costs": stages.costs, "compute": stages.compute, "progress": progress}
        carved = carve(opened[1].place, size, stages.methods, place, **running)
        write_json(file, carved.to_json())
    document: dict[str, Any] = parse_json(read_text(file, MAX_RECIPE_BYTES))
    return document


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


def _rebased(cut: Path, source: Path, earlier: Mapping[str, Any], document: dict[str, Any]) -> dict[str, Any]:
    """Make the first parent that of a later stage's recipe, and return its plain JSON so.

    ``earlier`` is that of the stage before. Without ridges: what was trained between cannot be built again
    from a recipe.
    """
    before, recipe = (parse_json(read_text(folder / RECIPE, MAX_RECIPE_BYTES)) for folder in (source, cut))
    first = from_layers(Dimensions(**earlier["parent_sizes"]), before["layers"])
    second = from_layers(Dimensions(**document["parent_sizes"]), recipe["layers"]).after(first)
    stream = _stream(before["stream"], recipe["stream"])
    origin = {name: before[name] for name in ("parent", "revision", "parent_weights", "family")}
    licence = {name: before[name] for name in before if name.startswith("license")}
    costs = {**recipe["costs"], "parent": earlier["costs"]["parent"]}
    changes = {
        "layers": to_layers(second),
        "stream": stream,
        "costs": costs,
        "ridges": {},
        "healing": before["healing"],
    }
    changes |= {name: before[name] for name in (*OF_EXPERTS, "tokens") if name in before}
    write_json(cut / RECIPE, {**recipe, **origin, **licence, **changes})
    widths = [{**one, "layer": layer} for one, layer in zip(document["widths"], second.sizes, strict=True)]
    whole = {name: earlier[name] for name in ("parent", "parent_sizes", "vocabulary", "experts")}
    units = _units(earlier["units"], document["units"], len(widths))
    return {**document, **whole, "widths": widths, "stream": stream, "costs": costs, "units": units}


def _units(
    before: Sequence[Mapping[str, Any]], after: Sequence[Mapping[str, Any]], depth: int
) -> list[dict[str, Any]]:
    """Return the pruned units of each kind in two successive cuts, of a parent with ``depth`` layers.

    Units within layers are counted in the remaining layers.
    """
    later = {row["unit"]: row for row in after}
    layers = next((row["after"] for row in before if row["unit"] == "layers"), depth)
    rows = []
    for row in before:
        more = later.get(row["unit"], {"after": row["after"], "params": 0})
        whole = row["before"] * depth // layers if row["unit"] in WITHIN_LAYERS else row["before"]
        params = row["params"] + more["params"]
        rows.append({**row, "before": whole, "after": more["after"], "params": params})
    return rows


def _stream(before: Mapping[str, Any] | None, second: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """Return the stream of two narrowings, one after the other, in the words of a recipe."""
    if before is None or second is None:
        last = second or before
        return None if last is None else dict(last)
    return {**second, "kept_energy": before["kept_energy"] * second["kept_energy"]}
