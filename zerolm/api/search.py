"""``zerolm.search``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from os import PathLike
from pathlib import Path
from typing import Any, ClassVar, Final, Self

from zerolm.api.baseline import BaselineModel, baseline_of
from zerolm.api.calibrate import CalibrationReport, attached, calibration_of
from zerolm.api.configuration import absolute
from zerolm.api.documented import documented
from zerolm.api.report import Report
from zerolm.api.vocabularies import chosen_vocabulary
from zerolm.calibration import Calibration, calibrate, explained
from zerolm.commands.costs import CONDITIONS
from zerolm.commands.search import SEARCH
from zerolm.costs import CostModel
from zerolm.groundtruth.labels import read_labels
from zerolm.io.files import write_json
from zerolm.progress import Progress, silent
from zerolm.report.phrases import (
    baseline_sentence,
    certificate_sentence,
    cost_label,
    expectation_lines,
    latency_lines,
    show_cost,
    vocabularies_sentence,
)
from zerolm.report.search import search_fragment, search_page
from zerolm.scores import SCORES, make_score, score_settings
from zerolm.settings import Setting, nearest, setting_of, shown
from zerolm.solvers import SearchResult
from zerolm.solvers import search as solve
from zerolm.solvers.result import Choice, VocabularyChoice
from zerolm.spaces import SPACES, SearchSpace, make_space, shape_text
from zerolm.spaces.document import to_document

Amount = int | str
Text = str | PathLike[str]
BUDGETS: Final = tuple(setting.name for setting in SEARCH.groups["Budgets"])
SOURCES: Final = ("score", "labels", "calibration")
"""The settings that name what to maximise."""


@dataclass(frozen=True, repr=False)
class SearchReport(SearchResult, Report):
    """The best architectures within the budgets, and how far that is proven."""

    configuration: Mapping[str, Any] = field(default_factory=dict)
    command: ClassVar[str] = SEARCH.name

    def lines(self) -> list[str]:
        pick = self.pick
        costs = ", ".join(
            f"{cost_label(cost)} {show_cost(cost, pick.costs[cost])}" for cost in self.cost_names
        )
        return [
            f"pick: {shape_text(pick.architecture)}",
            f"      {costs}",
            *(f"      {line}" for line in (*latency_lines(self), *expectation_lines(self))),
            *filter(None, [baseline_sentence(self), vocabularies_sentence(self)]),
            certificate_sentence(self),
        ]

    def page(self) -> str:
        return search_page(self, self.run_yaml)

    def fragment(self) -> str:
        return search_fragment(self)

    @property
    def remarks(self) -> list[str]:
        return [f"warning: {warning}" for warning in (self.calibration or {}).get("warnings", ())]

    @property
    def written(self) -> list[str]:
        stock = self.space.config(self.pick.architecture) is not None
        kind = "config.json" if stock else f"architecture.json ({self.space.unstocked()})"
        return [*super().written, f"pick/{kind} and the best {len(self.best)}"]

    def rows(self) -> list[dict[str, Any]]:
        return [_row(choice) for choice in self.best]

    def write_more(self, folder: Path) -> None:
        """Write a folder with the configuration of each architecture."""
        choices = {"pick": self.pick} | {f"{i:02}": choice for i, choice in enumerate(self.best, 1)}
        for name, choice in choices.items():
            write_architecture(self.space, choice, folder / name)

    @classmethod
    def from_folder(cls, folder: Path, document: dict[str, Any], configuration: dict[str, Any]) -> Self:
        return cls(**vars(SearchResult.from_json(document)), configuration=configuration)


@documented(SEARCH)
def search(
    space: str | None = None,
    *,
    baseline: Text | None = None,
    within: float | str | None = None,
    vocabularies: str | Sequence[int] | None = None,
    text: Text | None = None,
    max_params: Amount | None = None,
    max_body_params: Amount | None = None,
    max_macs: Amount | None = None,
    max_kv_bytes: Amount | None = None,
    max_weight_bytes: Amount | None = None,
    min_params: Amount | None = None,
    min_body_params: Amount | None = None,
    min_macs: Amount | None = None,
    min_kv_bytes: Amount | None = None,
    min_weight_bytes: Amount | None = None,
    context: Amount = 1024,
    batch: int = 1,
    kv_bits: int = 16,
    bits: int = 16,
    group_size: int = 128,
    score: str | None = None,
    labels: Text | None = None,
    metric: str | None = None,
    calibration: Text | CalibrationReport | None = None,
    top: int = 10,
    method: str = "auto",
    seed: int = 0,
    progress: Progress = silent,
    **settings: Any,
) -> SearchReport:
    """Return the best architectures of a space within budgets, with a proof that they are the best.

    ``settings`` are those of the space and of the score (``hidden="512,768"``, ``alpha=1.1``). Raises
    ``Infeasible`` where nothing fits, and ``ValueError`` for a value that makes no sense, in one line.
    """
    given = {name: value for name, value in locals().items() if name not in ("progress", "settings")}
    own = SEARCH.values(given, objects={"calibration": (CalibrationReport,)})
    values = {name: value for name, value in settings.items() if value is not None}
    sources = [name for name in SOURCES if own[name] is not None]
    if own["space"] is None and own["baseline"] is None:
        raise ValueError("no space is named; `zerolm spaces` lists them")
    if own["within"] is not None and own["baseline"] is None:
        raise ValueError("within says how near a baseline: give baseline too")
    if (own["vocabularies"] is None) != (own["text"] is None):
        raise ValueError("vocabularies are judged by a text: give both, or neither")
    if own["vocabularies"] and (own["baseline"] is not None or "vocab" in values):
        other = "the baseline" if own["baseline"] is not None else "vocab"
        raise ValueError(f"{other} says what the vocabulary is: leave it out, or vocabularies")
    if len(sources) > 1:
        raise ValueError(f"{' and '.join(sources)} each say what to maximise; give one of them")
    if own["metric"] is not None and own["labels"] is None:
        raise ValueError("metric says which result of the labels counts: give labels too")
    name = (own["score"] or "geo") if sources in ([], ["score"]) else None
    costs = CostModel(**{setting.name: own[setting.name] for setting in CONDITIONS})
    budgets = {budget: own[budget] for budget in BUDGETS if own[budget] is not None}
    model = _baseline(own, costs)
    of_space, of_score = _divided(model.space if model else own["space"], name, values)
    if model:
        budgets = model.budgets(budgets)
    made = model.space_with(of_space, own["within"], costs) if model else make_space(own["space"], **of_space)
    asked = make_score(name or "geo", costs, **of_score)
    fitted = _calibration(own, made)
    maximised = fitted.score() if fitted else name or "geo"
    reference = model.reference(made, fitted.score() if fitted else asked) if model else None
    searched = partial(
        solve, score=maximised, options=of_score, method=own["method"], seed=own["seed"], progress=progress
    )
    every: tuple[VocabularyChoice, ...] = ()
    if own["vocabularies"]:
        best = partial(searched, top=1, compare=False)
        asks = budgets, costs
        chosen = chosen_vocabulary(made, own["vocabularies"], str(own["text"]), asks, best, progress)
        made, budgets, costs, every = chosen.space, chosen.budgets, chosen.costs, chosen.every
    result = searched(
        made,
        budgets=budgets,
        costs=costs,
        top=own["top"],
        floor=reference.choice.score if reference else None,
    )
    question = replace(result.question, baseline=reference, vocabularies=every)
    result = replace(result, question=question)
    if fitted:
        result = explained(result, fitted)
    ran = own | {path: absolute(own[path]) for path in ("labels", "baseline", "text")}
    ran |= {"calibration": attached(own["calibration"])}
    ran |= {"score": name} | made.settings | of_score
    if every:
        ran |= {"vocab": None}  # it was chosen
    return SearchReport(**vars(result), configuration=ran)


def _baseline(own: Mapping[str, Any], costs: CostModel) -> BaselineModel | None:
    """Return the model that the search is to better, if the user names one."""
    if own["baseline"] is None:
        return None
    if own["space"] is not None:
        SPACES.entry(own["space"])
    return baseline_of(own["baseline"], own["space"], costs)


def _calibration(own: Mapping[str, Any], space: SearchSpace) -> Calibration | None:
    """Return what the labels or the calibration file that the user names say, or None."""
    if own["labels"] is not None:
        return calibrate(read_labels(own["labels"], space=space, metric=own["metric"]))
    return calibration_of(own["calibration"], space=space) if own["calibration"] is not None else None


def _divided(
    space: str, score: str | None, given: Mapping[str, Any]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the values of what the space declares, and of what the score does (None: labels have none)."""
    homes = {f"space {space!r}": SPACES[space].declared}
    homes[f"score {score!r}"] = score_settings(score) if score is not None else ()
    values: dict[str, dict[str, Any]] = {owner: {} for owner in homes}
    for name, value in given.items():
        owners = [owner for owner, settings in homes.items() if _declares(settings, name)]
        if len(owners) > 1:
            raise ValueError(f"{name} is a setting of {' and of '.join(owners)}: it cannot be given")
        owner = owners[0] if owners else _owner(name, homes)
        if not owners and score is None and owner != f"space {space!r}":
            raise ValueError(f"{name} is an option of a score; labels and a calibration bring their own")
        values[owner][name] = setting_of(owner, homes[owner], name).parse(value)
    settings, options = values.values()
    return settings, options


def _owner(name: str, homes: Mapping[str, Sequence[Setting]]) -> str:
    """Return whose setting a name would be, by who else has it; ``ValueError`` where nobody has."""
    declaring = ([e.options for e in SPACES.entries()], [e.options for e in SCORES.entries()])
    for owner, others in zip(homes, declaring, strict=True):
        if any(_declares(settings, name) for settings in others):
            return owner
    known = [*(s.name for s in SEARCH.settings), *(s.name for settings in homes.values() for s in settings)]
    raise ValueError(f"setting {shown(name)} is not known{nearest(name, known)}")


def _declares(settings: Sequence[Setting], name: str) -> bool:
    return any(setting.name == name for setting in settings)


def _row(choice: Choice) -> dict[str, Any]:
    expected = {"expected": choice.expected.mean} if choice.expected else {}
    shape = {"shape": shape_text(choice.architecture), **choice.architecture.choices}
    return {"score": choice.score, **choice.costs, **expected, **shape}


def write_architecture(space: SearchSpace, choice: Choice, folder: Path) -> None:
    """Write ``architecture.json``, and ``config.json`` where a stock class builds it, into a new folder."""
    folder.mkdir()
    write_json(folder / "architecture.json", to_document(space, choice.architecture))
    stock = space.config(choice.architecture)
    if stock is not None:
        write_json(folder / "config.json", stock)
