"""``zerolm score``."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from zerolm.calibration import Pool, expected_of
from zerolm.cli.files import read_json
from zerolm.cli.settings import RunSettings, checked
from zerolm.cli.units import parse_alphas
from zerolm.groundtruth.labels import as_labelled, load
from zerolm.report.phrases import cost_label, shape_text, show_cost, show_expected, show_score
from zerolm.spaces.document import ALPHAS, from_document
from zerolm.spaces.document import score as score_rows

Number = Annotated[str | None, typer.Option(metavar="N")]


def score(
    path: Annotated[Path, typer.Argument(help="An architecture file, or a folder with config.json.")],
    name: Annotated[list[str] | None, typer.Option("--score", help="Repeat for several.")] = None,
    alpha: Annotated[list[str] | None, typer.Option(help="Of zerolm; repeat for several.")] = None,
    calibration: Annotated[
        Path | None, typer.Option(metavar="FILE", help="What `zerolm calibrate --out` wrote.")
    ] = None,
    context: Number = None,
    batch: Number = None,
    kv_bits: Number = None,
    bits: Number = None,
    group_size: Number = None,
    json_output: Annotated[bool, typer.Option("--json", help="One JSON object.")] = False,
) -> None:
    """Scores and costs of one architecture, or of a Hugging Face configuration."""
    architecture = from_document(_document(path))
    calibrated = load(calibration) if calibration else None
    labelled = as_labelled(calibrated, architecture) if calibrated else architecture
    given = {"context": context, "batch": batch, "kv_bits": kv_bits, "bits": bits, "group_size": group_size}
    costs = checked(RunSettings, {key: value for key, value in given.items() if value is not None}).costs
    alphas = parse_alphas(alpha) if alpha else ALPHAS
    rows = score_rows(architecture, name, alphas=alphas, costs=costs)
    values = costs.of(architecture)
    expected = None
    if calibrated:
        value = float(calibrated.rank(Pool.of([labelled]))[0])
        rows.append({"score": f"calibrated ({calibrated.method})", "alpha": None, "value": value})
        expected = next(iter(expected_of(calibrated, [labelled]) or []), None)
    if json_output:
        found: dict[str, Any] = {
            "space": architecture.space,
            "architecture": architecture.choices,
            "costs": values,
            "scores": rows,
        }
        if calibrated:
            found["expected"] = asdict(expected) if expected else None
        print(json.dumps(found))
        return
    print(f"{architecture.space}: {shape_text(architecture)}")
    for cost, value in values.items():
        print(f"  {cost_label(cost):<18} {show_cost(cost, value):>10}  ({value:,})")
    for row in rows:
        label = row["score"] + (f" (alpha {row['alpha']:g})" if row["alpha"] is not None else "")
        print(f"  {label:<22} {show_score(row['value'])}")
    if calibrated and expected:
        print(f"  expected {calibrated.labels.metric}: {show_expected(expected)}")


def _document(path: Path) -> Any:
    if not path.is_dir():
        if not path.exists():
            raise ValueError(f"{str(path)!r} does not exist; give an architecture file or a folder")
        return read_json(path)
    for name in ("architecture.json", "config.json"):
        if (path / name).is_file():
            return read_json(path / name)
    raise ValueError(f"folder {str(path)!r} has neither config.json nor architecture.json")
