"""``zerolm doctor``: which runtimes open a checkpoint, and why not."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, ClassVar, Final

from zerolm.diagnosis.result import Diagnosis
from zerolm.progress import Progress, silent
from zerolm.settings import REQUIRED
from zerolm.settings.request import Request, argument
from zerolm.show.sheet import NOTEBOOK, PAGE, TERMINAL, Cell, Heading, Row, Sheet, pairs
from zerolm.show.text import base_name, show_amount
from zerolm.verbs.report import Report, run_of

RULES: Final = (
    "What was not opened is judged by rules on configuration, names and shapes: nothing was run, no weight "
    "was read."
)


@dataclass(frozen=True, kw_only=True)
class DoctorSettings(Request):
    """Return which runtimes open a checkpoint, and why not.

    transformers, llama.cpp and, by an export, onnxruntime really open the folder where they are installed,
    in a process of their own; the others are judged by their rules. Raises ``ValueError`` where there is no
    checkpoint.
    """

    name: ClassVar[str] = "doctor"
    examples = (
        ("zerolm doctor child", "one line for each runtime, then sizes and what they divide by"),
        ("zerolm doctor child --out diagnosis", "the same as a page, as JSON, and how to repeat it"),
    )
    notes = (
        "transformers and llama.cpp open the folder where they are installed; onnxruntime with onnxscript "
        "runs an ONNX export. Other runtimes are judged by rules and by lists of their classes, each with "
        "version and date; what is not listed is unknown. No pickle is opened and no code of the folder is "
        "run."
    )
    folder: str = argument("path", REQUIRED, "checkpoint folder or GGUF file, valid or not", metavar="PATH")

    def run(self, progress: Progress = silent) -> DoctorReport:
        from zerolm.diagnosis.examine import diagnose

        diagnosis = diagnose(Path(self.folder), progress=progress)
        return DoctorReport(**vars(diagnosis) | {"folder": self.folder}, run=run_of(self))


@dataclass(frozen=True, repr=False, eq=False)
class DoctorReport(Diagnosis, Report):
    """Which runtimes open a checkpoint, and how that is shown."""

    command: ClassVar[str] = "doctor"

    def lines(self) -> list[str]:
        verdicts: dict[str, list[str]] = {}
        for one in self.runtimes:
            verdicts.setdefault(one.verdict, []).append(one.runtime)
        weights = f"{base_name(self.folder)}: {self.weights:,} weights"
        return [weights, *(f"{verdict}: {', '.join(names)}" for verdict, names in verdicts.items())]

    def heading(self) -> Heading:
        tried = [one for one in self.runtimes if one.known == "opened"]
        opened = sum(one.verdict == "opens" for one in tried)
        return Heading(
            f"{base_name(self.folder)}: {opened} of {len(tried)} that were tried opened it",
            f"{', '.join(self.architectures) or self.model_type or 'No class is named'}; {self.folder}",
            self.finding(),
            trust=RULES,
        )

    def sheets(self) -> list[Sheet]:
        table: list[Row] = [
            [
                one.runtime,
                Cell(one.verdict, one.verdict),
                one.known,
                Cell("; ".join(one.reasons), "shape"),
            ]
            for one in self.runtimes
        ]
        head: Row = ["runtime", "verdict", "evidence", Cell("why", "shape")]
        return [
            Sheet("Runtimes", head, table, kind="words", on=(PAGE, TERMINAL, NOTEBOOK)),
            *([Sheet("Advice", sentences=self.advice)] if self.advice else []),
            pairs("The checkpoint", self._facts(), on=(PAGE, TERMINAL)),
        ]

    def _facts(self) -> list[tuple[str, str]]:
        kinds = ", ".join(f"{count:,} {name}" for name, count in self.dtypes.items())
        facts = [
            ("model type", self.model_type or "not named"),
            ("tensors", f"{self.tensors:,}"),
            ("weights", f"{self.weights:,}" + (f" ({kinds})" if kinds else "")),
            ("size", show_amount(self.bytes, size=True)),
        ]
        if self.tied is not None:
            facts.append(("head and embedding", "tied" if self.tied else "not tied"))
        lists = {"tensor parallel": self.tensor_parallel, "gguf": self.gguf, "pickles": self.pickles}
        return facts + [(name, ", ".join(map(str, values))) for name, values in lists.items() if values]

    def rows(self) -> list[dict[str, Any]]:
        return [asdict(one) | {"reasons": "; ".join(one.reasons)} for one in self.runtimes]
