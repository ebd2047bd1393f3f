"""``zerolm.score``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from os import PathLike
from pathlib import Path
from typing import Any, ClassVar, Self

from zerolm.api.calibrate import CalibrationReport, attached, calibration_of
from zerolm.api.configuration import Attached, absolute
from zerolm.api.documented import documented
from zerolm.api.options import score_options
from zerolm.api.report import Report, checked
from zerolm.architecture import Architecture
from zerolm.calibration import Pool, expected_of
from zerolm.commands.costs import CONDITIONS
from zerolm.commands.score import SCORE
from zerolm.costs import CostModel
from zerolm.groundtruth.labels import as_labelled
from zerolm.groundtruth.truth import Line
from zerolm.io.files import parse_json, read_text
from zerolm.report.phrases import cost_label, show_cost, show_expected, show_score
from zerolm.report.score import score_page
from zerolm.scores import all_variants
from zerolm.solvers.result import Choice, Expected
from zerolm.spaces import shape_text
from zerolm.spaces.document import from_document, scores_of

MAX_JSON_BYTES = 16 << 20


@dataclass(frozen=True)
class ScoreValue:
    """One score of the architecture, higher expected to be better; ``options`` are those beside alpha."""

    score: str
    alpha: float | None
    value: float
    options: dict[str, Any] = field(default_factory=dict)

    @property
    def label(self) -> str:
        """The score with its options."""
        options = {**({} if self.alpha is None else {"alpha": self.alpha}), **self.options}
        said = ", ".join(f"{option} {value}" for option, value in options.items())
        return self.score + (f" ({said})" if said else "")

    def to_json(self) -> dict[str, Any]:
        row = {"score": self.score, "alpha": self.alpha, "value": self.value}
        return {**row, "options": self.options} if self.options else row


@dataclass(frozen=True, repr=False)
class ArchitectureScores:
    """An architecture by its space, choices and shape in words, with its costs and scores.

    ``metric`` and ``expected`` are what a calibration expects, None without one or with too few labels.
    """

    space: Line
    architecture: dict[str, Any]
    shape: str
    costs: dict[str, int]
    scores: list[ScoreValue]
    metric: str | None = None
    expected: Expected | None = None


@dataclass(frozen=True, repr=False)
class ScoreReport(ArchitectureScores, Report):
    """The scores and costs of one architecture."""

    left_out: Mapping[str, str] = field(default_factory=dict)
    configuration: Mapping[str, Any] = field(default_factory=dict)
    command: ClassVar[str] = SCORE.name

    def to_json(self) -> dict[str, Any]:
        document: dict[str, Any] = {
            "space": self.space,
            "architecture": self.architecture,
            "shape": self.shape,
            "costs": self.costs,
            "scores": self.rows(),
        }
        if self.metric is not None:
            document["metric"] = self.metric
            document["expected"] = asdict(self.expected) if self.expected else None
        return document

    def rows(self) -> list[dict[str, Any]]:
        return [row.to_json() for row in self.scores]

    def lines(self) -> list[str]:
        lines = [f"{self.space}: {self.shape}"]
        lines.append(", ".join(f"{cost_label(cost)} {show_cost(cost, n)}" for cost, n in self.costs.items()))
        if self.metric is not None and self.expected:
            lines.append(f"expected {self.metric}: {show_expected(self.expected)}")
        told = [f"{row.label} {show_score(row.value)}" for row in self.scores]
        return lines + [", ".join(told[i : i + 4]) for i in range(0, len(told), 4)]

    @property
    def remarks(self) -> list[str]:
        return [f"{name} is left out: {reason}" for name, reason in self.left_out.items()]

    def page(self) -> str:
        return score_page(self.to_json(), self.run_yaml)

    @classmethod
    def from_folder(cls, folder: Path, document: dict[str, Any], configuration: dict[str, Any]) -> Self:
        scored = checked(ArchitectureScores, document)
        for cost in scored.costs:
            cost_label(cost)
        return cls(**vars(scored), configuration=configuration)


@documented(SCORE)
def score(
    architecture: str | PathLike[str] | Architecture | Choice | Mapping[str, Any],
    *,
    score: str | Sequence[str] | None = None,
    calibration: str | PathLike[str] | CalibrationReport | None = None,
    context: int | str = 1024,
    batch: int = 1,
    kv_bits: int = 16,
    bits: int = 16,
    group_size: int = 128,
    **options: Any,
) -> ScoreReport:
    """Return the scores and costs of one architecture, or of a Hugging Face configuration.

    ``architecture`` is a file or folder, what such a file holds, or an ``Architecture`` such as the pick of
    a search. ``options`` are those of scores, one value or a list (``alpha=[0.5, 1.1]``). Raises
    ``ValueError`` for anything that makes no sense, in one line.
    """
    given = {name: value for name, value in locals().items() if name != "options"}
    objects = {"architecture": (Architecture, Choice, Mapping), "calibration": (CalibrationReport,)}
    own = SCORE.values(given, objects)
    asked = score_options(options)
    shape = _architecture(own["architecture"])
    calibrated = None if own["calibration"] is None else calibration_of(own["calibration"])
    labelled = as_labelled(calibrated, shape) if calibrated else shape
    costs = CostModel(**{setting.name: own[setting.name] for setting in CONDITIONS})
    told = scores_of(shape, own["score"], options=asked, costs=costs)
    rows = [
        ScoreValue(**row | {"alpha": None if row["alpha"] is None else float(row["alpha"])}) for row in told
    ]
    expected = None
    if calibrated:
        value = float(calibrated.rank(Pool.of([labelled]))[0])
        rows.append(ScoreValue(f"calibrated ({calibrated.method})", None, value))
        expected = next(iter(expected_of(calibrated, [labelled]) or []), None)
    ran = {"architecture": _repeatable(own["architecture"]), "calibration": attached(own["calibration"])}
    return ScoreReport(
        shape.space,
        shape.choices,
        shape_text(shape),
        costs.of(shape),
        rows,
        calibrated.labels.metric if calibrated else None,
        expected,
        left_out={} if own["score"] else all_variants(asked)[1],
        configuration=own | ran | asked,
    )


def _architecture(given: Any) -> Architecture:
    if isinstance(given, Architecture | Choice):
        return given if isinstance(given, Architecture) else given.architecture
    return from_document(given if isinstance(given, Mapping) else read_document(Path(given)))


def _repeatable(given: Any) -> str | Attached | None:
    """Return what names the architecture in a configuration; None for one that no document tells fully."""
    if isinstance(given, Mapping):
        return Attached("architecture.json", dict(given))
    if isinstance(given, Architecture | Choice):
        shape = _architecture(given)
        document = {"space": shape.space, "architecture": shape.choices}
        try:
            return Attached("architecture.json", document) if from_document(document) == shape else None
        except ValueError:
            return None
    return absolute(given)


def read_document(path: Path) -> Any:
    """Return the JSON of an architecture: of a file, or of that in a folder; ``ValueError`` where none is."""
    if not path.is_dir():
        if not path.exists():
            raise ValueError(f"{str(path)!r} does not exist; give an architecture file or a folder")
        return _json(path)
    for name in ("architecture.json", "config.json"):
        if (path / name).is_file():
            return _json(path / name)
    raise ValueError(f"folder {str(path)!r} has neither config.json nor architecture.json")


def _json(path: Path) -> Any:
    try:
        return parse_json(read_text(path, MAX_JSON_BYTES))
    except (OSError, ValueError, RecursionError) as error:
        raise ValueError(f"{str(path)!r} cannot be read: {error}") from None
