"""``zerolm calibrate``: a better ranking of a space from a few trained architectures."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from zerolm.progress import Progress, silent
from zerolm.settings import REQUIRED
from zerolm.settings.request import Request, setting
from zerolm.verbs.report import run_of
from zerolm.verbs.shared import metric

if TYPE_CHECKING:
    from zerolm.verbs.calibrate_report import CalibrationReport

METHODS = ("stack", "dictionary", "gp", "blend", "algorithm1")


@dataclass(frozen=True, kw_only=True)
class CalibrateSettings(Request):
    """Return a better ranking of a space from a few trained architectures, judged on those it did not see.

    ``labels`` are a file, or what ``zerolm.read_labels`` read. ``zerolm.search`` and ``zerolm.score`` take
    the result as ``calibration``. Raises ``ValueError`` for labels that cannot be fitted, in one line.
    """

    name: ClassVar[str] = "calibrate"
    examples = (
        ("zerolm calibrate --labels labels.csv", "how well a fit predicts results that it did not see"),
        ("zerolm calibrate --labels labels.csv --out fitted", "keep the fit, with a page on it"),
        ("zerolm search llama --calibration fitted --max-params 60M", "search by it"),
    )
    notes = (
        "Labels: a benchmark file, or a CSV file with columns space, architecture (JSON, or one column "
        "architecture.NAME per choice) and a result. `zerolm search --calibration DIR` and `zerolm score "
        "--calibration DIR` use the output."
    )
    labels: Any = setting(
        "path",
        REQUIRED,
        "trained architectures with results, CSV or JSON",
        group="Labels",
        by_place=True,
    )
    metric: str | None = metric()
    method: str = setting(
        "text",
        "stack",
        "how to fit: dictionary (a sum of closed forms), gp (a Gaussian process), blend (their mean), or "
        "algorithm1 (ZeroLM's alpha). stack (default) weights the first two and two plain scores",
        choices=METHODS,
        group="Fit",
    )
    seed: int = setting("integer", 0, "seed of cross-validation splits", low=0, high=2**32 - 1)

    @classmethod
    def objects(cls) -> Mapping[str, tuple[type, ...]]:
        from zerolm.calibration import Labels

        return {"labels": (Labels,)}

    def run(self, progress: Progress = silent) -> CalibrationReport:
        from zerolm.calibration import Labels, calibrate, judge
        from zerolm.groundtruth.labels import benchmark_of, read_labels
        from zerolm.verbs.calibrate_report import CalibrationReport
        from zerolm.verbs.run_file import Attached

        changes = {}
        if isinstance(self.labels, Labels):
            labels = self.labels
            if self.metric not in (None, labels.metric):
                raise ValueError(f"the labels are of {labels.metric}, not of {self.metric}; read them anew")
            changes["labels"] = Attached("labels.json", benchmark_of(labels))
        else:
            labels = read_labels(self.labels, metric=self.metric)
        fitted = calibrate(labels, self.method, seed=self.seed)
        judgement = judge(labels, self.method, seed=self.seed, progress=progress)
        return CalibrationReport(fitted, judgement, run=run_of(self, **changes))
