"""The result of ``zerolm calibrate``: a fit, what it consists of, and how it ranks hidden labels."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Final, Self

from zerolm.calibration import Calibration, Judgement
from zerolm.calibration.rivals import UNCALIBRATED
from zerolm.groundtruth.labels import from_document, load, to_document
from zerolm.io.files import write_json
from zerolm.io.plain import checked
from zerolm.settings.setting import absolute
from zerolm.show.charts import Axis, Bar, Bars
from zerolm.show.sheet import NOTEBOOK, PAGE, Cell, Heading, Row, Sheet, pairs
from zerolm.show.text import sentence, show_number
from zerolm.spaces import SearchSpace
from zerolm.verbs.report import Report
from zerolm.verbs.run_file import Attached

FILE: Final = "calibration.json"
TAU: Final = "tau-b on hidden labels"
HIDDEN: Final = "Labels are hidden at random, folds of the same labels: of larger networks it knows less."
VISIBLE: Final = 0.005
"""The least share that is shown."""


@dataclass(frozen=True, repr=False, eq=False)
class CalibrationReport(Report):
    """A ranking fitted to labels, and how it does on labels that were hidden from it."""

    command: ClassVar[str] = "calibrate"
    calibration: Calibration
    judgement: Judgement

    def to_json(self) -> dict[str, Any]:
        return to_document(self.calibration, self.judgement)

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> Self:
        """Return the calibration, fitted again to its labels."""
        judgement = checked(Judgement, document["judged"])
        if set(judgement.baselines) - set(UNCALIBRATED):
            raise ValueError("its baselines are not known")
        return cls(from_document(document), judgement)

    def lines(self) -> list[str]:
        fitted, labels = self.calibration, self.calibration.labels
        lines = [f"{len(labels)} labels of {labels.space}: {labels.metric} ({self._better()})"]
        lines.append(f"method {fitted.method}")
        if fitted.alpha:
            lines.append(f"  alpha {fitted.alpha.alpha:g}")
        if fitted.dictionary and fitted.method != "gp":
            lines += [f"  {entry}" for entry in fitted.dictionary.entries]
        if fitted.predictor and fitted.method in ("gp", "blend"):
            shares = _visible(fitted.predictor.shares()).items()
            lines.append("  " + ", ".join(f"{name} {share:.0%}" for name, share in shares))
        return lines + self._judged()

    def _better(self) -> str:
        return f"{'higher' if self.calibration.labels.higher_is_better else 'lower'} is better"

    def _judged(self) -> list[str]:
        judgement = self.judgement
        if judgement.tau is None:
            return ["too few labels, or too alike, to judge it on hidden ones"]
        others = ", ".join(f"{name} {show_number(tau)}" for name, tau in judgement.baselines.items())
        deviation = f" +- {judgement.deviation:.3f} a fold" if judgement.deviation is not None else ""
        lines = [f"{TAU} ({judgement.folds} folds): {judgement.tau:.3f}{deviation}; {others}"]
        if None not in (judgement.coverage, judgement.width, judgement.label_width):
            lines.append(
                f"90 % intervals hold {judgement.coverage:.0%} of hidden results, mean width "
                f"{judgement.width:.3g} (from the labels alone: {judgement.label_width:.3g})"
            )
        return lines

    @property
    def remarks(self) -> list[str]:
        return [f"warning: {warning}" for warning in self.to_json()["warnings"]]

    def heading(self) -> Heading:
        labels, unbeaten = self.calibration.labels, " and ".join(self.judgement.not_beaten)
        verdict = f"do not beat {unbeaten}" if unbeaten else "beat geo and counting parameters"
        if self.judgement.tau is None:
            verdict = "are too few to judge a calibration"
        return Heading(
            f"{len(labels)} labels of {labels.space} {verdict}",
            f"{labels.metric} ({self._better()}), method {self.calibration.method}",
            " ".join(map(sentence, self._judged())),
            trust=" ".join([HIDDEN, *map(sentence, self.remarks)]),
        )

    def sheets(self) -> list[Sheet]:
        taus = self._taus()
        sheets = [
            Sheet(
                "How it ranks labels that it did not see",
                charts=taus,
                sentences=[] if taus else ["Too few labels."],
                on=(PAGE, NOTEBOOK),
            )
        ]
        widths = {
            f"mean width, {self.calibration.labels.metric}": self.judgement.width,
            "width from the labels alone": self.judgement.label_width,
        }
        rows = [(name, f"{width:.3g}") for name, width in widths.items() if width is not None]
        if self.judgement.coverage is not None:
            held = ("hidden results within", f"{self.judgement.coverage:.0%}")
            sheets.append(pairs("Its 90 % intervals", [held, *rows], on=(PAGE,)))
        parts = self._parts()
        nothing = [] if parts else ["Nothing but labels."]
        return [*sheets, Sheet("What it consists of", sentences=nothing, parts=parts, on=(PAGE,))]

    def _taus(self) -> list[Bars]:
        tau, deviation = self.judgement.tau, self.judgement.deviation
        if tau is None:
            return []
        ends = (None, None) if deviation is None else (max(-1.0, tau - deviation), min(1.0, tau + deviation))
        rows = [Bar("this calibration", tau, f"{tau:.3f}", "blue", *ends)]
        rows += [
            Bar(name, other, show_number(other), "grey") for name, other in self.judgement.baselines.items()
        ]
        values = [value for bar in rows for value in (bar.value, bar.low, bar.high) if value is not None]
        x = Axis(min(0.0, *values), max(1.0, *values), f"{TAU}, one deviation of a fold")
        return [Bars(TAU, x, rows)]

    def _parts(self) -> list[Sheet]:
        fitted = self.calibration
        parts = [Sheet(sentences=[f"alpha {fitted.alpha.alpha:g}"])] if fitted.alpha else []
        features = fitted.predictor.shares() if fitted.predictor else {}
        for title, shares in (
            ("Weights of the methods", _visible(fitted.weights)),
            ("Shares of what the predictor sees", _visible(features)),
        ):
            if shares:
                parts.append(pairs(title, [(name, f"{share:.0%}") for name, share in shares.items()]))
        if fitted.dictionary:
            entries = zip(fitted.dictionary.entries, fitted.dictionary.weights, strict=True)
            rows: list[Row] = [[Cell(str(entry), "shape"), f"{weight:.4g}"] for entry, weight in entries]
            parts.append(Sheet("Dictionary", [Cell("entry", "shape"), "weight"], rows, kind="dictionary"))
        return parts

    def rows(self) -> list[dict[str, Any]]:
        """Return the labels: the choices of each architecture, and its result."""
        labels, sign = self.calibration.labels, 1.0 if self.calibration.labels.higher_is_better else -1.0
        return [
            {**architecture.choices, labels.metric: sign * float(value)}
            for architecture, value in zip(labels.pool.architectures, labels.result, strict=True)
        ]

    @property
    def written(self) -> list[str]:
        return [FILE, *super().written]

    def write_more(self, folder: Path) -> None:
        """Write what ``--calibration`` of ``search`` and ``score`` reads."""
        write_json(folder / FILE, self.to_json())


def _visible(shares: Mapping[str, float]) -> dict[str, float]:
    return {name: share for name, share in shares.items() if share >= VISIBLE}


def calibration_of(value: str | CalibrationReport, space: SearchSpace | None = None) -> Calibration:
    """Return the calibration of a folder, a file, or an earlier result; ``ValueError`` if it does not fit."""
    if isinstance(value, CalibrationReport):
        return value.calibration if space is None else from_document(value.to_json(), space=space)
    path = Path(value)
    return load(path / FILE if path.is_dir() else path, space=space)


def attached(value: str | CalibrationReport | None) -> str | Attached | None:
    """Return the entry for a calibration in the configuration of a run."""
    return Attached(FILE, value.to_json()) if isinstance(value, CalibrationReport) else absolute(value)
