"""From a parent and a wish to a plan, and to a child on the disk that was opened again and compared."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from zerolm.carving.export.folder import UNEVEN, check_format, expressible, padded
from zerolm.carving.importance.weights import WITH_TOKENS, Criterion, Indifferent, criterion_of, dimensions
from zerolm.carving.kept_units import Cut
from zerolm.carving.methods import LENGTH, SEQUENCES, Method, check_text
from zerolm.carving.planning.lonas import choices_in
from zerolm.carving.recipe import document, fingerprint, read_recipe, widths
from zerolm.carving.request import Wish, budgets_of, costs_of, heuristic_of, plan_of
from zerolm.checkpoints import Checkpoint, Ledger, ledger_of
from zerolm.costs import CostModel
from zerolm.io.folders import check_new, new_folder

if TYPE_CHECKING:
    from zerolm.carving.session import Running

Progress = Callable[[str], None]


@dataclass(frozen=True, eq=False)
class Carved:
    """What a carving kept, what that costs, and whether the child on the disk was found to be the same.

    ``costs`` are of ``parent`` and ``child`` by name, and of what is ``stored`` where zeros fill it up.
    ``losses`` (KL in nats a token, or 1 - cosine, on calibration tokens) are ``predicted`` by the measured
    table, ``measured`` of the whole plan, and of the ``repaired`` one. ``note`` says what was done other than
    asked. ``verified`` is None where nothing was written. ``space`` is that of LoNAS whose costs these are.
    """

    parent: str
    family: str
    criterion: str
    repair: str
    plan: str
    shape: str
    format: str
    costs: dict[str, dict[str, int]]
    widths: list[dict[str, int]]
    optimal: bool | None
    losses: dict[str, float]
    note: str
    verified: dict[str, Any] | None
    space: str | None
    cut: Cut

    def to_json(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "cut"}


@dataclass(frozen=True, eq=False)
class Job:
    """A parent and what is to be done with it; ``running`` is None where no tokens are needed."""

    name: str
    checkpoint: Checkpoint
    method: Method
    running: Running | None
    shape: str
    form: str
    costs: CostModel
    out: Path | None
    force: bool
    progress: Progress
    ridges: dict[tuple[int, str], float] = field(default_factory=dict)
    space: str | None = None

    def costs_of(self, cut: Cut | None = None) -> dict[str, int]:
        return costs_of(self.checkpoint, self.costs, cut, self.space)


def carve(
    parent: str | Path,
    out: str | Path | None = None,
    *,
    budgets: Mapping[str, int | str] | None = None,
    keep_ffn: float | None = None,
    keep_heads: float | None = None,
    keep_layers: float | None = None,
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
    progress: Progress = lambda text: None,
) -> Carved:
    """Carve a child out of a parent, a folder or a model of the hub; without ``out`` only plan it.

    ``budgets`` maps ``max_params`` and the like to integers, or to ``"0.8x"`` of the parent's. ``keep_...``
    are shares of widths. ``text`` is a file of calibration text, or ``random``. The others are those of the
    command ``zerolm carve``. A run that was killed goes on when it is started again. Raises ``ValueError``,
    in one line, for what cannot be done; nothing is written then.
    """
    checkpoint, place = _opened(parent, out, force)
    costs = costs or CostModel()
    if space is not None:
        choices_in(space, checkpoint)
    limits = budgets_of(budgets or {}, costs_of(checkpoint, costs, space=space))
    shape = shape or ("per-layer" if space else "uniform")
    wish = Wish(
        shape,
        keep_ffn,
        keep_heads,
        keep_layers,
        limits,
        multiple_of,
        tensor_parallel,
        least_groups,
        least_ffn,
        space,
    )
    method = Method.of(
        None if text is None else str(text),
        criterion,
        repair,
        plan,
        fixed=not limits and keep_layers is None,
        sequences=sequences,
        length=length,
        seed=seed,
    )
    running = _running(checkpoint, method, progress)
    job = Job(
        str(parent), checkpoint, method, running, shape, form, costs, place, force, progress, space=space
    )
    _possible(job, wish)
    ledger = _sound(checkpoint, progress)
    by, weights = _criterion(job, ledger), fingerprint(checkpoint, ledger)
    if method.plan == "heuristic":
        return _finished(job, weights, heuristic_of(checkpoint, by, wish))
    if method.plan == "weights" or running is None:
        planned = plan_of(checkpoint, by, wish, costs)
        return _finished(job, weights, planned.cut, optimal=planned.optimal)
    table = running.table(by, _cuttable(checkpoint))
    planned = plan_of(checkpoint, table, wish, costs)
    predicted = {"predicted": table.predicted(planned.cut)}
    return _finished(job, weights, planned.cut, optimal=planned.optimal, losses=predicted)


def rebuild(
    recipe: str | Path,
    parent: str | Path,
    out: str | Path | None = None,
    *,
    text: str | Path | None = None,
    form: str | None = None,
    costs: CostModel | None = None,
    force: bool = False,
    progress: Progress = lambda text: None,
) -> Carved:
    """Carve the child of a recipe out of its parent again.

    Without repair the bytes are the same anywhere; with it ``text`` must be the text that the recipe names,
    and the bytes are the same on the same machine.
    """
    checkpoint, place = _opened(parent, out, force)
    weights = fingerprint(checkpoint, _sound(checkpoint, progress))
    made = read_recipe(Path(recipe), checkpoint, dimensions(checkpoint), weights)
    method = Method.again(made, None if text is None else str(text))
    running = _running(checkpoint, method, progress)
    if running is not None:
        check_text(running.tokens.text, made)
    form, costs = form or made.written_as, costs or CostModel()
    job = Job(
        str(parent),
        checkpoint,
        method,
        running,
        made.shape,
        form,
        costs,
        place,
        force,
        progress,
        made.ridges,
        made.space,
    )
    return _finished(job, weights, made.cut)


def _opened(parent: str | Path, out: str | Path | None, force: bool) -> tuple[Checkpoint, Path | None]:
    place = None if out is None else Path(out)
    if place is not None:
        check_new(place, force)
    checkpoint = Checkpoint.open(parent)
    if checkpoint.family.has_experts:
        raise ValueError("mixtures of experts cannot be carved yet")
    if place is not None and place.resolve().is_relative_to(checkpoint.folder.resolve()):
        raise ValueError(f"output {str(out)!r} is the parent or in it, which is never touched; name another")
    return checkpoint, place


def _running(checkpoint: Checkpoint, method: Method, progress: Progress) -> Running | None:
    if method.text is None:
        return None
    from zerolm.carving.session import Running

    return Running(checkpoint, method, progress)


def _possible(job: Job, wish: Wish) -> None:
    """Refuse before the long work what could only fail after it."""
    check_format(job.form)
    layout, family = job.checkpoint.layout, job.checkpoint.family
    if family.task == "next" and layout.name("head") is None and not layout.tied:
        raise ValueError(
            f"a {family.name} without a language-model head cannot be compared, so it is not carved"
        )
    if job.out is not None and job.form == "hf" and wish.shape == "per-layer" and wish.budgets:
        raise ValueError(UNEVEN)
    if job.method.plan != "heuristic":
        any_layer = Indifferent(-1.0 if job.method.plan == "measured" else None)
        plan_of(job.checkpoint, any_layer, wish, job.costs)
    if job.out is not None and job.form != "hf":
        expressible(job.checkpoint, Cut.whole(dimensions(job.checkpoint)), job.form)


def _sound(checkpoint: Checkpoint, progress: Progress) -> Ledger:
    """The ledger of a parent, which also tells that all its weights are finite."""
    progress("reading the weights")
    return ledger_of(checkpoint)


def _criterion(job: Job, ledger: Ledger) -> Criterion:
    """The criterion, with the weights or the tokens that it needs."""
    name = job.method.criterion
    if name in WITH_TOKENS and job.running is not None:
        return job.running.importance()
    return criterion_of(name, job.checkpoint, ledger, seed=job.method.seed)


def _cuttable(checkpoint: Checkpoint) -> list[str]:
    """The kinds of units that the stock class can lack."""
    can = checkpoint.family.cut
    return [kind for kind, possible in (("groups", can.heads), ("ffn", can.ffn)) if possible]


def _finished(
    job: Job,
    weights: str,
    cut: Cut,
    *,
    optimal: bool | None = None,
    losses: Mapping[str, float] | None = None,
) -> Carved:
    """The outcome of a plan, with its child on the disk where one is wanted.

    ``weights`` is the fingerprint of the parent's.
    """
    if job.out is not None:
        expressible(job.checkpoint, cut, job.form)
    costs = {"parent": job.costs_of(), "child": job.costs_of(cut)}
    if job.form == "padded":
        costs["stored"] = job.costs_of(padded(cut))
    found = Carved(
        job.name,
        job.checkpoint.family.name,
        job.method.criterion,
        job.method.repair,
        job.method.plan,
        job.shape,
        job.form,
        costs,
        widths(cut),
        optimal,
        dict(losses or {}),
        "",
        None,
        job.space,
        cut,
    )
    if losses and job.running is not None:
        found.losses["measured"] = job.running.loss(cut)
    return found if job.out is None else _written(job, weights, found, job.out)


def _written(job: Job, weights: str, found: Carved, out: Path) -> Carved:
    """The child in a new folder, opened again and compared before the folder gets its name."""
    from zerolm.carving.export.write_child import verified, write
    from zerolm.carving.session import Running

    running = job.running or Running(job.checkpoint, job.method, job.progress)
    repaired = running.repaired(found.cut, job.ridges or None)
    losses = dict(found.losses)
    if losses and repaired.arrays:
        losses["repaired"] = running.loss(found.cut, repaired)
    found = replace(found, losses=losses, note=repaired.note)
    with new_folder(out, job.force) as folder:
        job.progress("writing the child")
        recipe = document(job.checkpoint, weights, found, running.calibration, repaired.ridges)
        write(job.checkpoint, found.cut, repaired, job.form, recipe, folder)
        job.progress("opening the child again")
        proof = verified(running, found.cut, repaired, job.form, folder)
    running.done()
    return replace(found, verified=asdict(proof))
