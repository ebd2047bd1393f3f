"""The settings of a search, from flags and from a YAML file, checked in one place."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from zerolm.cli.yaml_files import read_yaml
from zerolm.costs import COSTS, CostModel
from zerolm.scores import SCORES, make_score, score_settings
from zerolm.settings import Setting, nearest, setting_of, shown
from zerolm.solvers import METHODS
from zerolm.spaces import SPACES, SearchSpace, make_space

CONDITIONS: Final = (
    Setting("context", "integer", 1024, "tokens attended to (1024)", low=1, high=1 << 24),
    Setting("batch", "integer", 1, "sequences at once (1)", low=1, high=1 << 10),
    Setting("kv_bits", "integer", 16, "bits of a cached number (16)", low=1, high=32),
    Setting("bits", "integer", 16, "bits of a weight of body and head (16)", low=1, high=32),
    Setting("group_size", "integer", 128, "weights that share a scale (128)", low=1, high=1 << 20),
)
"""How a network is run."""
BUDGETS: Final = tuple(
    Setting(f"{side}_{cost}", "integer", None, f"{cost} at {word}", low=0, metavar="AMOUNT")
    for cost in COSTS
    for side, word in (("max", "most"), ("min", "least"))
)
OWN: Final = (
    Setting("score", "text", "geo", "the score to maximise (geo)"),
    Setting("labels", "text", None, "trained architectures of this space, CSV or JSON", metavar="FILE"),
    Setting("metric", "text", None, "which result of the labels (their own, or their only one)"),
    Setting("calibration", "text", None, "what `zerolm calibrate --out` wrote", metavar="FILE"),
    Setting("top", "integer", 10, "how many architectures to list (10)", low=1, high=1000),
    Setting("method", "text", "auto", "how to search (auto)", choices=METHODS),
    Setting("seed", "integer", 0, "seed of the sampling methods (0)", low=0, high=2**32 - 1),
    Setting("out", "text", None, "folder to write the results to", metavar="DIR"),
    Setting("force", "flag", False, "replace the folder if it exists"),
    Setting("json", "flag", False, "one JSON object"),
)
SEARCH: Final = (*BUDGETS, *CONDITIONS, *OWN)
"""Settings of every search, whatever its space and score."""
SOURCES: Final = ("score", "labels", "calibration")
"""The settings that name what to maximise."""


@dataclass(frozen=True)
class Objective:
    """The aim of a search: a score with its options, or what labels or a calibration file say."""

    score: str
    options: dict[str, Any]
    labels: Path | None
    metric: str | None
    calibration: Path | None


@dataclass(frozen=True)
class Destination:
    """Where a result goes."""

    folder: Path | None
    force: bool
    json: bool


@dataclass(frozen=True)
class SearchRequest:
    """Everything that ``zerolm search`` is told."""

    space: SearchSpace
    objective: Objective
    budgets: dict[str, int]
    costs: CostModel
    top: int
    method: str
    seed: int
    output: Destination


def cost_model(given: Mapping[str, Any]) -> CostModel:
    """Return how a network is run, from what is given of ``CONDITIONS`` (None: not given)."""
    return CostModel(**{s.name: s.parse(given[s.name]) for s in CONDITIONS if given.get(s.name) is not None})


def load_settings(config: Path | None, flags: Mapping[str, Any]) -> SearchRequest:
    """Return settings of a YAML file, the flags (None: not given) before them; ``ValueError`` if unsound."""
    given = {**(read_yaml(config) if config else {}), **{k: v for k, v in flags.items() if v is not None}}
    if not given.get("space"):
        raise ValueError("no space is named; `zerolm spaces` lists them")
    space, sources = str(given.pop("space")), [name for name in SOURCES if name in given]
    if len(sources) > 1:
        raise ValueError(f"{' and '.join(sources)} each say what to maximise; give one of them")
    own = {s.name: s.parse(given.pop(s.name)) if s.name in given else s.default for s in SEARCH}
    settings, options = _divided(space, own["score"] if sources in ([], ["score"]) else None, given)
    if own["labels"] is None and own["calibration"] is None:
        make_score(own["score"], **options)
    if own["metric"] is not None and own["labels"] is None:
        raise ValueError("metric says which result of the labels counts: give labels too")
    if own["out"] is not None and not own["out"].strip():
        raise ValueError("out names no folder")
    return SearchRequest(
        make_space(space, **settings),
        Objective(own["score"], options, _path(own["labels"]), own["metric"], _path(own["calibration"])),
        {s.name: own[s.name] for s in BUDGETS if own[s.name] is not None},
        cost_model(own),
        own["top"],
        own["method"],
        own["seed"],
        Destination(_path(own["out"]), own["force"], own["json"]),
    )


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
    known = ["space", *(s.name for s in SEARCH), *(s.name for settings in homes.values() for s in settings)]
    raise ValueError(f"setting {shown(name)} is not known{nearest(name, known)}")


def _declares(settings: Sequence[Setting], name: str) -> bool:
    return any(setting.name == name for setting in settings)


def _path(text: str | None) -> Path | None:
    return None if text is None else Path(text)
