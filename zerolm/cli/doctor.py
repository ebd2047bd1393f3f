"""``zerolm doctor``."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from zerolm.cli.progress import patient
from zerolm.report.phrases import show_amount


def doctor(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="A folder with a checkpoint, sound or not.")],
    json_output: Annotated[bool, typer.Option("--json", help="One JSON object.")] = False,
) -> None:
    """Which runtimes open a checkpoint, and why not.

    transformers and llama.cpp really open it where they are installed; the others are judged by their rules.
    No pickle is opened, and no code of the folder is run.
    """
    from zerolm.doctor.examine import diagnose

    diagnosis = diagnose(folder, progress=patient(0.0))
    if json_output:
        verdicts = [asdict(verdict) for verdict in diagnosis.verdicts]
        print(
            json.dumps(
                {"folder": str(folder), "runtimes": verdicts, **diagnosis.facts, "advice": diagnosis.advice}
            )
        )
        return
    width = max(len(verdict.runtime) for verdict in diagnosis.verdicts)
    for verdict in diagnosis.verdicts:
        known = "opened" if verdict.known == "opened" else "rules"
        print(f"{verdict.runtime:<{width}}  {verdict.verdict:<7}  {known:<6}  {'; '.join(verdict.reasons)}")
    facts = diagnosis.facts
    if facts["tensors"]:
        kinds = ", ".join(facts["dtypes"])
        print(
            f"\n{facts['weights']:,} weights in {facts['tensors']} tensors of {kinds}: "
            f"{show_amount(facts['bytes'], size=True)}"
        )
    for line in diagnosis.advice:
        print(line)
    print("by rules: configuration, names and shapes; nothing was run, no weight was read")
