"""``zerolm.diagnose``."""

from __future__ import annotations

from dataclasses import asdict
from os import PathLike
from pathlib import Path
from typing import Any, ClassVar

from zerolm.api.configuration import absolute
from zerolm.api.document_report import DocumentReport
from zerolm.api.documented import documented
from zerolm.commands.doctor import DOCTOR
from zerolm.doctor import examine
from zerolm.progress import Progress, silent
from zerolm.report.doctor import doctor_fragment, doctor_page
from zerolm.settings import shown


class DoctorReport(DocumentReport):
    """Which runtimes open a checkpoint: a row for each, facts about the folder, and advice."""

    command: ClassVar[str] = DOCTOR.name

    def lines(self) -> list[str]:
        by_verdict = dict[str, list[str]]()
        for row in self.document["runtimes"]:
            by_verdict.setdefault(row["verdict"], []).append(row["runtime"])
        first = f"{shown(self.document['folder'])}: {self.document['weights']:,} weights"
        return [first, *(f"{verdict}: {', '.join(names)}" for verdict, names in by_verdict.items())]

    def rows(self) -> list[dict[str, Any]]:
        return [row | {"reasons": "; ".join(row["reasons"])} for row in self.document["runtimes"]]

    def page(self) -> str:
        return doctor_page(self.document, self.run_yaml)

    def fragment(self) -> str:
        return doctor_fragment(self.document)


@documented(DOCTOR)
def diagnose(folder: str | PathLike[str], *, progress: Progress = silent) -> DoctorReport:
    """Return which runtimes open a checkpoint, and why not.

    transformers and llama.cpp really open the folder where they are installed, in a process of their own;
    the others are judged by their rules. Raises ``ValueError`` where there is no such folder.
    """
    own = DOCTOR.values({"folder": folder})
    diagnosis = examine.diagnose(Path(own["folder"]), progress=progress)
    document = {
        "folder": own["folder"],
        "runtimes": [asdict(verdict) for verdict in diagnosis.verdicts],
        **diagnosis.facts,
        "advice": diagnosis.advice,
    }
    return DoctorReport.of(document, {"folder": absolute(own["folder"])})
