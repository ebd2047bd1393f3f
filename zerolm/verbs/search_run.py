"""How ``zerolm search`` runs: from its settings to space, score, budgets, and the result."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from zerolm.calibration import calibrate, explained
from zerolm.checkpoints.named_model import named_model
from zerolm.costs import CostModel
from zerolm.groundtruth.labels import labelled_settings, read_labels
from zerolm.progress import Progress
from zerolm.scores import SCORES, make_score, score_settings
from zerolm.settings import Setting, nearest, setting_of, shown
from zerolm.solvers import Infeasible, search
from zerolm.solvers.baseline import BaselineModel, amounts_of, baseline_of
from zerolm.solvers.result import SearchResult, VocabularyChoice
from zerolm.solvers.vocabularies import Scope, best_vocabulary
from zerolm.spaces import SPACES, SearchSpace, make_space
from zerolm.verbs.calibrate_report import attached, calibration_of
from zerolm.verbs.report import run_of
from zerolm.verbs.search_report import SearchReport
from zerolm.verbs.shared import limits, needing_torch

if TYPE_CHECKING:
    from zerolm.text.vocabularies import TokenCounts
    from zerolm.verbs.search import SearchSettings


def run_search(request: SearchSettings, progress: Progress) -> SearchReport:
    """Return the result of a search; ``Infeasible`` where nothing fits, ``ValueError`` for wrong values."""
    score, costs, model = request.score_name, request.conditions.model(), None
    if request.baseline is not None:
        if request.space is not None:
            SPACES.entry(request.space)
        model = baseline_of(*named_model(request.baseline), request.space, costs)
    name = model.space if model else str(request.space)
    of_space, of_score = divided(request, name, score)
    if request.labels is not None:
        of_space = labelled_settings(request.labels, name) | of_space
    scope, model = _scope(request, model, of_space, costs)
    calibration = None
    if request.labels is not None:
        calibration = calibrate(read_labels(request.labels, space=scope.space, metric=request.metric))
    elif request.calibration is not None:
        calibration = calibration_of(request.calibration, space=scope.space)
    maximised = calibration.score() if calibration else make_score(str(score), costs, **of_score)
    reference = model.reference(scope.space, maximised) if model else None

    def solve(scope: Scope, **more: Any) -> SearchResult:
        wanted = maximised if calibration else str(score)
        how: dict[str, Any] = {"method": request.method, "seed": request.seed, "progress": progress}
        return search(
            scope.space, wanted, budgets=scope.budgets, costs=scope.costs, options=of_score, **how, **more
        )

    vocabularies: tuple[VocabularyChoice, ...] = ()
    if request.vocabularies:
        best = partial(solve, top=1, compare=False)
        counts = _counts(request, scope.space, progress)
        scope, vocabularies = best_vocabulary(scope, counts.tokens, counts.size, best, progress)
    training = request.training.plan()
    try:
        result = solve(scope, top=request.top, floor=reference.choice.score if reference else None)
    except Infeasible as error:
        if training is None or training.max_flops is None:
            raise
        over = f"max_macs is max_train_flops {training.max_flops:.4g} over {training.tokens:,} tokens"
        raise Infeasible(f"{error}; {over}") from None
    question = replace(result.question, baseline=reference, vocabularies=vocabularies, training=training)
    result = replace(result, question=question)
    if calibration:
        result = explained(result, calibration)
    settings = {"score": score, "calibration": attached(request.calibration)} | scope.space.settings
    settings |= of_score | ({"vocab": None} if vocabularies else {})  # which is chosen anew
    return SearchReport(**vars(result), run=run_of(request, **settings))


def _counts(request: SearchSettings, space: SearchSpace, progress: Progress) -> TokenCounts:
    """Return the tokens of the text by vocabulary; ``ValueError`` for a space without a vocabulary."""
    if not any(setting.name == "vocab" for setting in space.declared):
        raise ValueError(f"space {space.name!r} has no vocabulary to choose")
    with needing_torch("tokenizers are trained"):
        from zerolm.text.vocabularies import token_counts

        return token_counts(str(request.text), request.vocabularies or (), progress)


def _scope(
    request: SearchSettings, model: BaselineModel | None, settings: Mapping[str, Any], costs: CostModel
) -> tuple[Scope, BaselineModel | None]:
    """Return the space with the settings of it, and the budgets; with a baseline those that it leaves.

    And the baseline, with its costs as the search counts them.
    """
    requested = limits(request.budgets)
    budgets = request.training.budgets(amounts_of(requested, model))
    space = (
        model.space_with(settings, request.within, costs)
        if model
        else make_space(str(request.space), **settings)
    )
    costs = request.training.costs(costs, space.name, space.settings.get("vocab"))
    if model:
        model = model.with_costs(costs)
        budgets = model.budgets(
            budgets, [name for name, value in requested.items() if isinstance(value, str)]
        )
    return Scope(space, budgets, costs), model


def divided(request: SearchSettings, space: str, score: str | None) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the further settings of a space, and those of a score (None: of labels, which have none).

    ``ValueError`` for one that neither declares, or both.
    """
    homes = {f"space {space!r}": SPACES[space].declared}
    homes[f"score {score!r}"] = options = score_settings(score) if score is not None else ()
    values: dict[str, dict[str, Any]] = {owner: {} for owner in homes}
    for name, value in request.further.items():
        if value is None:
            continue
        owners = [owner for owner, settings in homes.items() if _declares(settings, name)]
        if len(owners) > 1:
            raise ValueError(f"{name} is a setting of {' and of '.join(owners)}: it cannot be given")
        owner = owners[0] if owners else _owner(name, homes, request.settings())
        if not owners and score is None and owner != f"space {space!r}":
            raise ValueError(f"{name} is an option of a score; labels and a calibration bring their own")
        values[owner][name] = setting_of(owner, homes[owner], name).parse(value)
    of_space, of_score = values.values()
    shared = ((name, getattr(request.training, name)) for name in request.shares)
    of_score |= {name: value for name, value in shared if value is not None and _declares(options, name)}
    return of_space, of_score


def _owner(name: str, homes: Mapping[str, Sequence[Setting]], declared: Sequence[Setting]) -> str:
    """Return the owner that a setting of this name belongs to; ``ValueError`` where no space or score has
    one."""
    declaring = ([e.options for e in SPACES.entries()], [e.options for e in SCORES.entries()])
    for owner, others in zip(homes, declaring, strict=True):
        if any(_declares(settings, name) for settings in others):
            return owner
    names = [setting.name for settings in (declared, *homes.values()) for setting in settings]
    raise ValueError(f"setting {shown(name)} is not known{nearest(name, names)}")


def _declares(settings: Sequence[Setting], name: str) -> bool:
    return any(setting.name == name for setting in settings)
