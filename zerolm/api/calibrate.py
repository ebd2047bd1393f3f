"""``zerolm.calibrate``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from os import PathLike
from pathlib import Path
from typing import Any, ClassVar, Self

from zerolm.api.configuration import Attached, absolute
from zerolm.api.documented import documented
from zerolm.api.report import Report, checked
from zerolm.calibration import METHODS, Calibration, Judgement, Labels, judge
from zerolm.calibration import calibrate as fit
from zerolm.calibration.rivals import UNCALIBRATED
from zerolm.commands.calibrate import CALIBRATE
from zerolm.groundtruth.labels import benchmark_of, from_document, load, read_labels, to_document
from zerolm.io.files import write_json
from zerolm.progress import Progress, silent
from zerolm.report.calibration import calibration_fragment, calibration_page
from zerolm.settings import shown
from zerolm.spaces import SearchSpace

FILE = "calibration.json"


@dataclass(frozen=True, repr=False)
class CalibrationReport(Report):
    """A ranking fitted to labels, and how it does on labels that were hidden from it."""

    calibration: Calibration
    judgement: Judgement
    configuration: Mapping[str, Any] = field(default_factory=dict)
    command: ClassVar[str] = CALIBRATE.name

    def to_json(self) -> dict[str, Any]:
        return to_document(self.calibration, self.judgement)

    def lines(self) -> list[str]:
        fitted = self.calibration
        labels = fitted.labels
        better = "higher is better" if labels.higher_is_better else "lower is better"
        chosen = f", chosen by {fitted.requested}" if fitted.requested != fitted.method else ""
        lines = [f"{len(labels)} labels of {labels.space}: {labels.metric} ({better})"]
        lines.append(f"method {fitted.method}{chosen}")
        if fitted.alpha:
            lines.append(f"  alpha {fitted.alpha.alpha:g}")
        if fitted.dictionary and fitted.method != "gp":
            lines += [f"  {entry}" for entry in fitted.dictionary.entries]
        if fitted.predictor and fitted.method in ("gp", "blend"):
            shares = fitted.predictor.shares().items()
            lines.append("  " + ", ".join(f"{name} {share:.0%}" for name, share in shares if share >= 0.005))
        return lines + _judged(self.judgement)

    @property
    def remarks(self) -> list[str]:
        return [f"warning: {warning}" for warning in self.to_json()["warnings"]]

    def rows(self) -> list[dict[str, Any]]:
        labels, sign = self.calibration.labels, 1.0 if self.calibration.labels.higher_is_better else -1.0
        return [
            {**architecture.choices, labels.metric: sign * float(value)}
            for architecture, value in zip(labels.pool.architectures, labels.result, strict=True)
        ]

    def page(self) -> str:
        return calibration_page(self.to_json(), self.run_yaml)

    def fragment(self) -> str:
        return calibration_fragment(self.to_json())

    @property
    def written(self) -> list[str]:
        return [FILE, *super().written]

    def write_more(self, folder: Path) -> None:
        """Write what ``--calibration`` of ``search`` and ``score`` reads."""
        write_json(folder / FILE, self.to_json())

    @classmethod
    def from_folder(cls, folder: Path, document: dict[str, Any], configuration: dict[str, Any]) -> Self:
        """Return the calibration, fitted again to its labels."""
        requested, judgement = document["requested"], checked(Judgement, document["judged"])
        if requested not in METHODS or set(judgement.baselines) - set(UNCALIBRATED):
            raise ValueError(f"its method {shown(requested)} or its baselines are not known")
        fitted = replace(from_document(document), requested=requested)
        return cls(fitted, judgement, configuration)


@documented(CALIBRATE)
def calibrate(
    labels: str | PathLike[str] | Labels | None = None,
    *,
    metric: str | None = None,
    method: str = "auto",
    seed: int = 0,
    progress: Progress = silent,
) -> CalibrationReport:
    """Return a better ranking of a space from a few trained architectures, judged on those it did not see.

    ``labels`` are a file, or what ``zerolm.read_labels`` read. ``zerolm.search`` and ``zerolm.score`` take
    the result as ``calibration``. Raises ``ValueError`` for labels that cannot be fitted, in one line.
    """
    given = {name: value for name, value in locals().items() if name != "progress"}
    own = CALIBRATE.values(given, objects={"labels": (Labels,)})
    ran = own | {"labels": absolute(own["labels"])} if isinstance(own["labels"], str) else own
    if isinstance(own["labels"], Labels):
        trained = own["labels"]
        if own["metric"] not in (None, trained.metric):
            raise ValueError(f"the labels are of {trained.metric}, not of {own['metric']}; read them anew")
        ran = own | {"labels": Attached("labels.json", benchmark_of(trained))}
    else:
        trained = read_labels(own["labels"], metric=own["metric"])
    fitted = fit(trained, own["method"], seed=own["seed"])
    judgement = judge(trained, own["method"], seed=own["seed"], progress=progress)
    return CalibrationReport(fitted, judgement, ran)


def calibration_of(given: str | CalibrationReport, *, space: SearchSpace | None = None) -> Calibration:
    """Return the calibration of a folder, a file, or an earlier result; ``ValueError`` if it does not fit."""
    if isinstance(given, CalibrationReport):
        return given.calibration if space is None else from_document(given.to_json(), space=space)
    path = Path(given)
    return load(path / FILE if path.is_dir() else path, space=space)


def attached(given: str | CalibrationReport | None) -> str | Attached | None:
    """Return what names a calibration in the configuration of a run."""
    return Attached(FILE, given.to_json()) if isinstance(given, CalibrationReport) else absolute(given)


def _judged(judgement: Judgement) -> list[str]:
    """Return how a calibration does on hidden labels, beside scores that saw none."""
    if judgement.tau is None:
        return ["too few labels, or too alike, to judge it on hidden ones"]
    others = ", ".join(f"{name} {_tau(tau)}" for name, tau in judgement.baselines.items())
    deviation = f" +- {judgement.deviation:.3f} a fold" if judgement.deviation is not None else ""
    lines = [f"tau-b on hidden labels ({judgement.folds} folds): {judgement.tau:.3f}{deviation}; {others}"]
    if None not in (judgement.coverage, judgement.width, judgement.label_width):
        lines.append(
            f"90 % intervals hold {judgement.coverage:.0%} of hidden results, mean width "
            f"{judgement.width:.3g} (from the labels alone: {judgement.label_width:.3g})"
        )
    return lines


def _tau(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"
