"""``zerolm score``: the scores and costs of one architecture."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from zerolm.progress import Progress, silent
from zerolm.settings import REQUIRED
from zerolm.settings.request import Request, argument, part, setting
from zerolm.verbs.report import run_of
from zerolm.verbs.search import CALIBRATION
from zerolm.verbs.shared import Conditions, like, read_like

if TYPE_CHECKING:
    from zerolm.architecture import Architecture
    from zerolm.calibration import Calibration
    from zerolm.solvers.result import Expected
    from zerolm.verbs.run_file import Attached
    from zerolm.verbs.score_report import ScoreReport, ScoreValue


@dataclass(frozen=True, kw_only=True)
class ScoreSettings(Request):
    """Return the scores and costs of one architecture, of a configuration, or of a known decoder.

    ``architecture`` is a file or folder, what such a file holds, an ``Architecture`` such as the pick of a
    search, or the name of a model. ``further`` are options of scores, one value or a list
    (``alpha=[0.5, 1.1]``). Raises ``ValueError`` for anything that makes no sense, in one line.
    """

    name: ClassVar[str] = "score"
    owners = ("scores",)
    is_repeated = True
    takes_progress = False
    examples = (
        ("zerolm score best/pick", "what `zerolm search --out best` picked"),
        ("zerolm score config.json --bits 4 --context 4096", "4-bit weights and a cache of 4,096 tokens"),
        ("zerolm score config.json --score zerolm --alpha 0.5 --alpha 1.1", "one score with two options"),
        ("zerolm score SmolLM2-135M", "a known decoder (`zerolm spaces --known`)"),
    )
    notes = (
        "Every option of a score is a flag too, and may be given several times: "
        "`zerolm score zerolm --help` lists those of zerolm."
    )
    architecture: Any = argument(
        "path",
        REQUIRED,
        "architecture file, config.json, model folder, known decoder, or hub model (owner/name)",
        metavar="PATH",
    )
    score: tuple[str, ...] | None = setting(
        "names",
        None,
        "scores to compute, A,B,C or repeated; default: all",
        group="Scores",
        metavar="NAME",
    )
    calibration: Any = setting("path", None, CALIBRATION)
    conditions: Conditions = part(Conditions, group="Conditions of the costs")
    like: str | None = like(group="Reading")

    @classmethod
    def objects(cls) -> Mapping[str, tuple[type, ...]]:
        from zerolm.architecture import Architecture
        from zerolm.solvers.result import Choice
        from zerolm.verbs.calibrate_report import CalibrationReport

        return {"architecture": (Architecture, Choice, Mapping), "calibration": (CalibrationReport,)}

    def run(self, progress: Progress = silent) -> ScoreReport:
        with read_like(self.like):
            return self._scored()

    def _scored(self) -> ScoreReport:
        from zerolm.scores import all_variants
        from zerolm.scores.base import score_options
        from zerolm.spaces import shape_text
        from zerolm.spaces.document import scores_of, task_of
        from zerolm.verbs.calibrate_report import attached, calibration_of
        from zerolm.verbs.score_report import ScoreReport, ScoreValue

        options, architecture = score_options(self.further), self._architecture()
        calibration = None if self.calibration is None else calibration_of(self.calibration)
        calibrated = _expectation(calibration, architecture) if calibration else None
        costs = self.conditions.model()
        rows = scores_of(architecture, self.score, options=options, costs=costs)
        scores = [ScoreValue.of(row) for row in rows]
        attachments = {"architecture": self._repeatable(), "calibration": attached(self.calibration)}
        return ScoreReport(
            architecture.space,
            architecture.choices,
            shape_text(architecture),
            costs.of_task(task_of(architecture)).of(architecture),
            scores + ([calibrated[0]] if calibrated else []),
            calibration.labels.metric if calibration else None,
            calibrated[1] if calibrated else None,
            left_out={} if self.score else all_variants(options)[1],
            run=run_of(self, **attachments, **options),
        )

    def _architecture(self) -> Architecture:
        from zerolm.architecture import Architecture
        from zerolm.checkpoints.named_model import named_model
        from zerolm.solvers.result import Choice
        from zerolm.spaces.decoders import SPACE_OF, Decoder
        from zerolm.spaces.document import from_document

        value = self.architecture
        if isinstance(value, Architecture | Choice):
            return value if isinstance(value, Architecture) else value.architecture
        document = value if isinstance(value, Mapping) else named_model(value)[1]
        if isinstance(document, Decoder):
            if document.family not in SPACE_OF:
                return document.architecture
            document = document.document
        return from_document(document)

    def _repeatable(self) -> str | Attached | None:
        """Return the entry for the architecture in a configuration; None where no document describes it
        fully."""
        from zerolm.settings.setting import absolute
        from zerolm.spaces.document import from_document
        from zerolm.verbs.run_file import Attached

        if isinstance(self.architecture, str):
            return absolute(self.architecture)  # type: ignore[no-any-return]
        if isinstance(self.architecture, Mapping):
            return Attached("architecture.json", dict(self.architecture))
        architecture = self._architecture()
        document = {"space": architecture.space, "architecture": architecture.choices}
        try:
            is_whole = from_document(document) == architecture
        except ValueError:
            return None
        return Attached("architecture.json", document) if is_whole else None


def _expectation(calibration: Calibration, architecture: Architecture) -> tuple[ScoreValue, Expected | None]:
    """Return the score that a calibration gives an architecture, and what it expects of it."""
    from zerolm.calibration import Pool, expected_of
    from zerolm.groundtruth.labels import as_labelled
    from zerolm.verbs.score_report import ScoreValue

    labelled = as_labelled(calibration, architecture)
    value = float(calibration.rank(Pool.of([labelled]))[0])
    expected = next(iter(expected_of(calibration, [labelled]) or []), None)
    return ScoreValue(f"calibrated ({calibration.method})", None, value), expected
