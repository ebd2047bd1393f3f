"""From a parent and a request to a plan, and to a child on the disk that was opened again and compared."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from zerolm.carving.export.formats import FORMATS, UNEVEN, Format
from zerolm.carving.importance.criteria import criterion_of, needs_tokens
from zerolm.carving.importance.criterion import Criterion, Indifferent
from zerolm.carving.kept_units import Cut, dimensions
from zerolm.carving.planning.lonas import choices_in
from zerolm.carving.planning.part_costs import StoredCosts, stored_bits, window_note
from zerolm.carving.planning.plan import Planned
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
from zerolm.carving.request import Methods, SizeRequest, default_methods
from zerolm.carving.result import Carved, CarvingMethod, spectrum
from zerolm.carving.width.narrowing import Basis, Width
from zerolm.carving.width.weights_basis import weights_basis
from zerolm.checkpoints import Checkpoint, Ledger, ledger_of
from zerolm.checkpoints.identity import fingerprint
from zerolm.checkpoints.origin import origin_of
from zerolm.costs import CostModel
from zerolm.io.folders import REPORT, check_new, new_folder
from zerolm.progress import Progress, silent
from zerolm.text.defaults import LENGTH, SEQUENCES

if TYPE_CHECKING:
    from zerolm.carving.session import Session

FINALISTS: Final = 4
NEAR: Final = 2.0
"""So many plans at most are measured, of those that are foretold to lose no more than twice the least."""
Finish = Callable[[Path, Carved], None]
"""Writes the files of ``REPORT`` into the folder of a child that was verified."""


@dataclass(frozen=True)
class Output:
    """Where a child is written and in which ``form``, a name of ``FORMATS``; ``folder`` None: nowhere.

    ``finish`` is what else is written into that folder, if anything.
    """

    folder: Path | None
    form: str
    force: bool
    finish: Finish | None = None

    @property
    def format(self) -> Format:
        return FORMATS[self.form]


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
    output: Output
    costs: CostModel
    progress: Progress
    recipe: Recipe | None = None

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
    out: str | Path | None = None,
    *,
    budgets: Mapping[str, int | str] | None = None,
    keep_ffn: float | None = None,
    keep_heads: float | None = None,
    keep_layers: float | None = None,
    keep_hidden: float | None = None,
    shape: str | None = None,
    space: str | None = None,
    multiple_of: int | None = None,
    tensor_parallel: int = 1,
    least_groups: int = 1,
    least_ffn: int = 1,
    text: str | Path | None = None,
    sequences: int = SEQUENCES,
    length: int = LENGTH,
    criterion: str | None = None,
    repair: str | None = None,
    plan: str | None = None,
    seed: int = 0,
    form: str = "hf",
    costs: CostModel | None = None,
    force: bool = False,
    finish: Finish | None = None,
    progress: Progress = silent,
) -> Carved:
    """Carve a child out of a parent, a folder or a model of the hub; without ``out`` only plan it.

    ``budgets`` maps ``max_params`` and the like to integers, or to ``"0.8x"`` of the parent's. ``keep_...``
    are shares of widths. ``text`` is a file of calibration text, or ``random``. Without ``costs``, weight
    bytes are those of the types that weights are stored in. ``finish`` writes further files of the child.
    The others are those of the command ``zerolm carve``. A run that was killed goes on when it is started
    again. Raises ``ValueError``, in one line, for what cannot be done; nothing is written then.
    """
    checkpoint, place = _opened(parent, out, force)
    costs = costs or StoredCosts()
    if space is not None:
        choices_in(space, checkpoint)
    limits = budgets_of(budgets or {}, costs_of(checkpoint, costs, space=space))
    shares = {"heads": keep_heads, "ffn": keep_ffn, "layers": keep_layers, "hidden": keep_hidden}
    request = SizeRequest(
        shape or ("per-layer" if space else "uniform"),
        {kind: share for kind, share in shares.items() if share is not None},
        limits,
        multiple_of,
        tensor_parallel,
        least_groups,
        least_ffn,
        space,
    )
    usual = default_methods(None if text is None else str(text), fixed=not limits and keep_layers is None)
    given = {"criterion": criterion, "repair": repair, "plan": plan}
    named = {name: value for name, value in given.items() if value is not None}
    methods = replace(usual, **named, sequences=sequences, length=length, seed=seed)
    methods.check()
    output = Output(place, form, force, finish)
    session = _session(checkpoint, methods, progress)
    job = Job(str(parent), checkpoint, request, methods, session, output, costs, progress)
    _check_possible(job)
    by = _criterion(job, _sound(checkpoint, progress))
    if methods.plan == "heuristic":
        return _finished(job, heuristic_of(checkpoint, by, request))
    if methods.plan == "weights" or session is None:
        return _planned(job, plan_of(checkpoint, by, request, costs))
    narrows = checkpoint.family.cut.hidden and bool(limits) and space is None and keep_hidden != 1
    table = session.table(by, _cuttable(checkpoint), stream=narrows)
    planned, measured = _best_measured(job, session, plans_of(checkpoint, table, request, costs))
    predicted = table.predicted(_narrowed(job, planned.cut, planned.width))
    known = table.stream.known(checkpoint.layout.tied) if table.stream else None
    return _planned(job, planned, {"predicted": predicted}, known, measured)


def rebuild(
    recipe: str | Path,
    parent: str | Path,
    out: str | Path | None = None,
    *,
    text: str | Path | None = None,
    form: str | None = None,
    costs: CostModel | None = None,
    force: bool = False,
    finish: Finish | None = None,
    progress: Progress = silent,
) -> Carved:
    """Carve the child of a recipe out of its parent again.

    Without repair the bytes are the same anywhere; with it ``text`` must be the text that the recipe names,
    and the bytes are the same on the same machine. The ``note`` says where they are not.
    """
    checkpoint, place = _opened(parent, out, force)
    _sound(checkpoint, progress)
    made = read_recipe(Path(recipe), checkpoint, fingerprint(checkpoint, progress=progress))
    methods = made.methods(None if text is None else str(text))
    session = _session(checkpoint, methods, progress)
    if session is not None:
        made.check_text(session.tokens.text)
    output = Output(place, form or made.method.format, force, finish)
    request = SizeRequest(made.method.shape, space=made.method.space)
    costs = costs or StoredCosts()
    job = Job(str(parent), checkpoint, request, methods, session, output, costs, progress, made)
    return _finished(job, _narrowed(job, made.cut, made.width))


def _opened(parent: str | Path, out: str | Path | None, force: bool) -> tuple[Checkpoint, Path | None]:
    if out is None:
        return Checkpoint.open(parent), None
    place = Path(out)
    if Path(parent).is_dir() and not place.exists():
        _check_outside(place, Path(parent))
    check_new(place, force)  # before a model of the hub is downloaded
    checkpoint = Checkpoint.open(parent)
    _check_outside(place, checkpoint.folder)
    return checkpoint, place


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
    layout, family, form = checkpoint.layout, checkpoint.family, output.format
    if family.task == "next" and layout.name("head") is None and not layout.tied:
        raise ValueError(
            f"a {family.name} without a language-model head cannot be compared, so it is not carved"
        )
    if output.folder is not None and output.form == "hf" and request.shape == "per-layer" and request.budgets:
        raise ValueError(UNEVEN)
    if job.methods.plan != "heuristic":
        any_layer = Indifferent(-1.0 if job.methods.plan == "measured" else None)
        rounding(checkpoint, request, plan_of(checkpoint, any_layer, request, job.costs))
    if output.folder is not None and output.form != "hf":
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
    form = job.output.format
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
            methods.criterion, methods.repair, methods.plan, request.shape, job.output.form, request.space
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
        sha256 = write(job.checkpoint, carved.cut, repaired, recipe, folder, more, progress=job.progress)
        if job.recipe and job.recipe.method.format == job.output.form:
            notes.append(job.recipe.difference(sha256, versions))
        job.progress("opening the child again")
        proof = job.output.format.verified(session, carved.cut, repaired, folder)
        note = "; ".join(filter(None, notes))
        carved = replace(carved, losses=losses, note=note, verified=asdict(proof))
        if job.output.finish:
            job.output.finish(folder, carved)
    session.done()
    return carved
