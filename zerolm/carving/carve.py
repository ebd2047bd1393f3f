"""From a parent and a request to a plan, and to a child on the disk that was opened again and compared."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from zerolm.carving.export.child_tensors import Child
from zerolm.carving.export.formats import FORMATS, UNEVEN, Format
from zerolm.carving.importance.criteria import criterion_of, needs_tokens
from zerolm.carving.importance.criterion import Criterion, Indifferent
from zerolm.carving.kept_units import Cut, dimensions
from zerolm.carving.planning.part_costs import StoredCosts, stored_bits, window_note
from zerolm.carving.planning.plan import Planned
from zerolm.carving.planning.size_spaces import SIZE_SPACES
from zerolm.carving.planning.sizes import (
    budgets_of,
    costs_of,
    heuristic_of,
    plan_of,
    plans_of,
    rounding,
    width_note,
)
from zerolm.carving.recipe import Making, Recipe, document, read_recipe, versions_of
from zerolm.carving.request import Destination, Methods, SizeRequest
from zerolm.carving.result import Carved, CarvingMethod, spectrum
from zerolm.carving.width.narrowing import Basis, Width
from zerolm.carving.width.weights_basis import weights_basis
from zerolm.checkpoints import Checkpoint, Ledger, ledger_of
from zerolm.checkpoints.identity import fingerprint
from zerolm.checkpoints.origin import origin_of
from zerolm.costs import CostModel
from zerolm.io.folders import REPORT, check_new, new_folder
from zerolm.progress import Progress, silent

if TYPE_CHECKING:
    from zerolm.carving.session import Session

NOWHERE: Final = Destination()
FINALISTS: Final = 4
NEAR: Final = 2.0
"""So many plans at most are measured, of those that are foretold to lose no more than twice the least."""


@dataclass(frozen=True, eq=False)
class Job:
    """A parent and what is to be done with it; ``session`` is None where no tokens are needed.

    ``recipe`` is that of the child that is built again.
    """

    name: str
    checkpoint: Checkpoint
    request: SizeRequest
    methods: Methods
    session: Session | None
    output: Destination
    costs: CostModel
    progress: Progress
    recipe: Recipe | None = None

    @property
    def form(self) -> str:
        return self.output.form or "hf"

    @property
    def format(self) -> Format:
        return FORMATS[self.form]

    @cached_property
    def basis(self) -> Basis:
        """The basis of the stream: that of the session, without one by the weights."""
        if self.session is not None:
            return self.session.basis
        return weights_basis(self.checkpoint, progress=self.progress)

    def costs_of(self, cut: Cut | None = None) -> dict[str, int]:
        return costs_of(self.checkpoint, self.costs, cut, self.request.space)


def carve(
    parent: str | Path,
    size: SizeRequest,
    methods: Methods,
    destination: Destination = NOWHERE,
    *,
    costs: CostModel | None = None,
    progress: Progress = silent,
) -> Carved:
    """Carve a child out of a parent, a folder or a model of the hub, and write it where a folder is named.

    Without ``costs``, weight bytes are those of the types that weights are stored in. A run that was killed
    goes on when it is started again. Raises ``ValueError``, in one line, for what cannot be done; nothing is
    written then.
    """
    checkpoint = _opened(parent, destination)
    costs = costs or StoredCosts()
    if size.space is not None:
        SIZE_SPACES[size.space].choices(checkpoint)
    limits = budgets_of(size.budgets or {}, costs_of(checkpoint, costs, space=size.space))
    size = replace(size, budgets=limits)
    methods.check()
    session = _session(checkpoint, methods, progress)
    form = destination.form or "hf"
    job = Job(
        str(parent), checkpoint, size, methods, session, replace(destination, form=form), costs, progress
    )
    _check_possible(job)
    criterion = _criterion(job, _sound(checkpoint, progress))
    if methods.plan == "heuristic":
        return _finished(job, heuristic_of(checkpoint, criterion, size))
    if methods.plan == "weights" or session is None:
        return _planned(job, plan_of(checkpoint, criterion, size, costs))
    is_free = bool(limits) and size.space is None and size.keep.get("hidden") != 1
    narrows = checkpoint.family.cut.hidden and is_free
    table = session.table(criterion, _cuttable(checkpoint), with_stream=narrows)
    planned, measured = _best_measured(job, session, plans_of(checkpoint, table, size, costs))
    predicted = table.predicted(_narrowed(job, planned.cut, planned.width))
    known = table.stream.known(checkpoint.layout.tied) if table.stream else None
    return _planned(job, planned, {"predicted": predicted}, known, measured)


def rebuild(
    recipe: str | Path,
    parent: str | Path,
    destination: Destination = NOWHERE,
    *,
    text: str | Path | None = None,
    costs: CostModel | None = None,
    progress: Progress = silent,
) -> Carved:
    """Carve the child of a recipe out of its parent again.

    Without repair the bytes are the same anywhere; with it ``text`` must be the text that the recipe names,
    and the bytes are the same on the same machine. The ``note`` says where they are not.
    """
    checkpoint = _opened(parent, destination)
    _sound(checkpoint, progress)
    made = read_recipe(Path(recipe), checkpoint, fingerprint(checkpoint, progress=progress))
    methods = made.methods(None if text is None else str(text))
    session = _session(checkpoint, methods, progress)
    if session is not None:
        made.check_text(session.tokens.text)
    output = replace(destination, form=destination.form or made.method.format)
    size = SizeRequest(made.method.shape, space=made.method.space)
    costs = costs or StoredCosts()
    job = Job(str(parent), checkpoint, size, methods, session, output, costs, progress, made)
    return _finished(job, _narrowed(job, made.cut, made.width))


def _opened(parent: str | Path, destination: Destination) -> Checkpoint:
    """Return the parent, when the child may be written where it is to be."""
    place = destination.folder
    if place is None:
        return Checkpoint.open(parent)
    if Path(parent).is_dir() and not place.exists():
        _check_outside(place, Path(parent))
    check_new(place, destination.force)  # before a model of the hub is downloaded
    checkpoint = Checkpoint.open(parent)
    _check_outside(place, checkpoint.folder)
    return checkpoint


def _check_outside(place: Path, parent: Path) -> None:
    if place.resolve().is_relative_to(parent.resolve()):
        raise ValueError(
            f"output {str(place)!r} is the parent or in it, which is never touched; name another"
        )


def _session(checkpoint: Checkpoint, methods: Methods, progress: Progress) -> Session | None:
    if methods.text is None:
        return None
    from zerolm.carving.session import Session

    return Session(checkpoint, methods, progress)


def _check_possible(job: Job) -> None:
    """Refuse before the long work what could only fail after it."""
    checkpoint, request, output = job.checkpoint, job.request, job.output
    layout, family, form = checkpoint.layout, checkpoint.family, job.format
    if family.task == "next" and layout.name("head") is None and not layout.tied:
        raise ValueError(
            f"a {family.name} without a language-model head cannot be compared, so it is not carved"
        )
    if output.folder is not None and job.form == "hf" and request.shape == "per-layer" and request.budgets:
        raise ValueError(UNEVEN)
    if job.methods.plan != "heuristic":
        any_layer = Indifferent(-1.0 if job.methods.plan == "measured" else None)
        rounding(checkpoint, request, plan_of(checkpoint, any_layer, request, job.costs))
    if output.folder is not None and job.form != "hf":
        form.check(checkpoint, Cut.whole(dimensions(checkpoint)))


def _sound(checkpoint: Checkpoint, progress: Progress) -> Ledger:
    """Return the ledger of a parent, which also tells that all its weights are finite."""
    return ledger_of(checkpoint, progress=progress)


def _criterion(job: Job, ledger: Ledger) -> Criterion:
    """Return the criterion, with the weights or the tokens that it needs."""
    if needs_tokens(job.methods.criterion) and job.session is not None:
        return job.session.importance()
    return criterion_of(job.methods.criterion, job.checkpoint, ledger, seed=job.methods.seed)


def _cuttable(checkpoint: Checkpoint) -> list[str]:
    """Return the kinds of units that the stock class can lack."""
    can = checkpoint.family.cut
    return [kind for kind, possible in (("groups", can.heads), ("ffn", can.ffn)) if possible]


def _best_measured(job: Job, session: Session, plans: Sequence[Planned]) -> tuple[Planned, str]:
    """Return the plan that loses least when it is repaired, of the best ones beside each width of the stream.

    The table tells how to divide a loss between layers; repair gives back more of some kinds of units than of
    others, so between widths what is left after it decides. Also what was measured, in words.
    """
    near = [plan for plan in plans if plan.worth >= NEAR * plans[0].worth][:FINALISTS]
    if len(near) < 2:
        return plans[0], ""
    cuts = [_narrowed(job, plan.cut, plan.width) for plan in near]
    losses = session.finals(cuts)
    best = min(range(len(near)), key=losses.__getitem__)
    told = ", ".join(f"{_width_of(cut)} {loss:.3g}" for cut, loss in zip(cuts, losses, strict=True))
    return near[best], f"loss of the best plans beside widths of the stream, {job.methods.repair}: {told}"


def _width_of(cut: Cut) -> str:
    """Return the width of the stream in words."""
    untied = cut.narrowing and not cut.narrowing.width.tied
    return f"{cut.hidden} with its own head" if untied else str(cut.hidden)


def _planned(
    job: Job,
    planned: Planned,
    losses: Mapping[str, float] | None = None,
    widths: Mapping[int, float] | None = None,
    measured: str = "",
) -> Carved:
    """Return the outcome of a plan; ``widths`` are known losses by the width of the stream."""
    cut = _narrowed(job, planned.cut, planned.width)
    notes = (
        rounding(job.checkpoint, job.request, planned),
        window_note(job.checkpoint, job.costs),
        width_note(cut),
        measured,
    )
    note = "; ".join(filter(None, notes))
    told = spectrum(job.basis, widths) if cut.narrowing or widths else []
    return _finished(job, cut, optimal=planned.optimal, losses=losses, note=note, told=told)


def _narrowed(job: Job, cut: Cut, width: Width | None) -> Cut:
    """Return the cut with a stream of this width."""
    if width is None:
        return cut
    narrowing = job.basis.narrowing(width)
    share = f"{narrowing.kept:.1%} of its energy stays"
    job.progress(f"narrowing the stream to {width.hidden} of {cut.parent.hidden} directions: {share}")
    return replace(cut, narrowing=narrowing)


def _finished(
    job: Job,
    cut: Cut,
    *,
    optimal: bool | None = None,
    losses: Mapping[str, float] | None = None,
    note: str = "",
    told: list[dict[str, Any]] | None = None,
) -> Carved:
    """Return the outcome of a plan, with its child on the disk where one is wanted."""
    form = job.format
    if job.output.folder is not None:
        form.check(job.checkpoint, cut)
    costs = {"parent": job.costs_of(), "child": job.costs_of(cut)}
    if form.pads:
        costs["stored"] = job.costs_of(cut.padded())
    methods, request = job.methods, job.request
    measured = {"measured": job.session.loss(cut)} if losses and job.session is not None else {}
    carved = Carved(
        job.name,
        job.checkpoint.family.name,
        CarvingMethod(
            methods.criterion, methods.repair, methods.plan, request.shape, job.form, request.space
        ),
        cut,
        costs,
        stored_bits(job.checkpoint, job.costs),
        optimal,
        {**(losses or {}), **measured},
        note,
        spectrum=told or [],
    )
    return carved if job.output.folder is None else _written(job, carved, job.output.folder)


def _written(job: Job, carved: Carved, out: Path) -> Carved:
    """Write the child into a new folder, opened again and compared before the folder gets its name."""
    from zerolm.carving.export.write_child import write
    from zerolm.carving.session import Session

    session = job.session or Session(job.checkpoint, job.methods, job.progress)
    repaired = session.repaired(carved.cut, job.recipe.ridges or None if job.recipe else None)
    losses = dict(carved.losses)
    if losses and repaired.arrays:
        losses["repaired"] = session.loss(carved.cut, repaired)
    notes = [carved.note, repaired.note]
    versions = versions_of("torch", "transformers")
    origin = origin_of(job.checkpoint.folder)
    making = Making(origin, session.fingerprint, session.calibration, repaired.ridges, versions)
    with new_folder(out, job.output.force) as folder:
        recipe = document(replace(carved, losses=losses), making)
        more = REPORT if job.output.finish else ()
        child = Child(job.checkpoint, carved.cut, repaired)
        sha256 = write(child, recipe, folder, more, progress=job.progress)
        if job.recipe and job.recipe.method.format == job.form:
            notes.append(job.recipe.difference(sha256, versions))
        job.progress("opening the child again")
        proof = job.format.verified(session, carved.cut, repaired, folder)
        note = "; ".join(filter(None, notes))
        carved = replace(carved, losses=losses, note=note, verified=asdict(proof))
        if job.output.finish:
            job.output.finish(folder, carved)
    session.done()
    return carved
