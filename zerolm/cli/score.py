"""``zerolm score``."""

from __future__ import annotations

import inspect
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from zerolm.calibration import Pool, expected_of
from zerolm.cli.files import read_json
from zerolm.cli.flags import declared, parsed_options, with_flags
from zerolm.cli.older import cost_model
from zerolm.commands.costs import CONDITIONS
from zerolm.groundtruth.labels import as_labelled, load
from zerolm.report.phrases import cost_label, show_cost, show_expected, show_score
from zerolm.scores import SCORES, all_variants
from zerolm.spaces import shape_text
from zerolm.spaces.document import from_document
from zerolm.spaces.document import score as score_rows


def command(plugins: bool) -> Callable[..., None]:
    """Return ``score`` with flags for the options of all scores, and for how the network is run."""
    taken = {*inspect.signature(score).parameters, "score", *(s.name for s in CONDITIONS)}
    options = with_flags(score, declared(SCORES.entries(plugins), taken), repeated=True)
    return with_flags(options, CONDITIONS)


def score(
    path: Annotated[Path, typer.Argument(help="An architecture file, or a folder with config.json.")],
    name: Annotated[list[str] | None, typer.Option("--score", help="Repeat for several.")] = None,
    calibration: Annotated[
        Path | None, typer.Option(metavar="FILE", help="What `zerolm calibrate --out` wrote.")
    ] = None,
    json_output: Annotated[bool, typer.Option("--json", help="One JSON object.")] = False,
    **given: Any,
) -> None:
    """Scores and costs of one architecture, or of a Hugging Face configuration."""
    architecture = from_document(_document(path))
    calibrated = load(calibration) if calibration else None
    labelled = as_labelled(calibrated, architecture) if calibrated else architecture
    costs = cost_model({s.name: given.pop(s.name, None) for s in CONDITIONS})
    options = parsed_options(SCORES.entries(), given)
    rows = score_rows(architecture, name, options=options, costs=costs)
    if not name:
        say_left_out(options)
    values = costs.of(architecture)
    expected = None
    if calibrated:
        value = float(calibrated.rank(Pool.of([labelled]))[0])
        rows.append({"score": f"calibrated ({calibrated.method})", "alpha": None, "value": value})
        expected = next(iter(expected_of(calibrated, [labelled]) or []), None)
    if json_output:
        document: dict[str, Any] = {
            "space": architecture.space,
            "architecture": architecture.choices,
            "costs": values,
            "scores": rows,
        }
        if calibrated:
            document["expected"] = asdict(expected) if expected else None
        print(json.dumps(document))
        return
    print(f"{architecture.space}: {shape_text(architecture)}")
    for cost, value in values.items():
        print(f"  {cost_label(cost):<18} {show_cost(cost, value):>10}  ({value:,})")
    for row in rows:
        options = {**({} if row["alpha"] is None else {"alpha": row["alpha"]}), **row.get("options", {})}
        said = ", ".join(f"{option} {value}" for option, value in options.items())
        label = row["score"] + (f" ({said})" if said else "")
        print(f"  {label:<22} {show_score(row['value'])}")
    if calibrated and expected:
        print(f"  expected {calibrated.labels.metric}: {show_expected(expected)}")


def say_left_out(options: Mapping[str, Sequence[Any]]) -> None:
    """Say on stderr which scores are not shown, and why."""
    for name, reason in all_variants(options)[1].items():
        print(f"zerolm: {name} is left out: {reason}", file=sys.stderr)


def _document(path: Path) -> Any:
    if not path.is_dir():
        if not path.exists():
            raise ValueError(f"{str(path)!r} does not exist; give an architecture file or a folder")
        return read_json(path)
    for name in ("architecture.json", "config.json"):
        if (path / name).is_file():
            return read_json(path / name)
    raise ValueError(f"folder {str(path)!r} has neither config.json nor architecture.json")
