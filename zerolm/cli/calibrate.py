"""``zerolm calibrate``."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated

import typer

from zerolm.calibration import METHODS, Calibration, Judgement, judge
from zerolm.calibration import calibrate as fit
from zerolm.cli.files import check_new_file, write_new_file
from zerolm.cli.progress import patient
from zerolm.groundtruth.labels import read_labels, to_document


def calibrate(
    labels: Annotated[
        Path, typer.Option(metavar="FILE", help="Trained architectures with their results, CSV or JSON.")
    ],
    method: Annotated[str, typer.Option(help=f"{', '.join(METHODS)}.")] = "auto",
    metric: Annotated[
        str | None, typer.Option(help="A result of the file; else its own, or its only one.")
    ] = None,
    seed: Annotated[int, typer.Option(metavar="N", min=0, help="Of the folds and splits.")] = 0,
    out: Annotated[Path | None, typer.Option(metavar="FILE", help="Where to save the calibration.")] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace the file if it exists.")] = False,
    json_output: Annotated[bool, typer.Option("--json", help="One JSON object.")] = False,
) -> None:
    """A better ranking of a space from a few trained architectures, judged on those it did not see.

    The labels are a benchmark file, or a CSV file with the columns space, architecture (JSON, or one
    column architecture.NAME a choice) and a result. `zerolm search --calibration FILE` and
    `zerolm score --calibration FILE` use what --out saves.
    """
    if out is not None:
        if out.resolve() == labels.resolve():
            raise ValueError(f"output {str(out)!r} is the file of the labels; name another")
        check_new_file(out, force)
    progress = patient()
    trained = read_labels(labels, metric=metric)
    calibration = fit(trained, method, seed=seed)
    judgement = judge(trained, method, seed=seed, progress=progress)
    document = to_document(calibration, judgement)
    for warning in document["warnings"]:
        print(f"zerolm: warning: {warning}", file=sys.stderr)
    if out is not None:
        write_new_file(out, json.dumps(document, indent=1) + "\n", force)
    if json_output:
        print(json.dumps(document))
    else:
        show(calibration, judgement)
    if out is not None:
        print(f"wrote {out}", file=sys.stderr)


def show(calibration: Calibration, judgement: Judgement) -> None:
    """Show what was chosen, how it does on hidden labels, and what it consists of."""
    labels = calibration.labels
    better = "higher is better" if labels.higher_is_better else "lower is better"
    print(f"{len(labels)} labels of {labels.space}: {labels.metric} ({better})")
    chosen = f", chosen by {calibration.requested}" if calibration.requested != calibration.method else ""
    print(f"method {calibration.method}{chosen}")
    if calibration.alpha:
        print(f"  alpha {calibration.alpha.alpha:g}")
    if calibration.dictionary and calibration.method != "gp":
        for entry in calibration.dictionary.entries:
            print(f"  {entry}")
    if calibration.predictor and calibration.method in ("gp", "blend"):
        shares = calibration.predictor.shares().items()
        print("  " + ", ".join(f"{name} {share:.0%}" for name, share in shares if share >= 0.005))
    others = ", ".join(f"{name} {_tau(tau)}" for name, tau in judgement.baselines.items())
    if judgement.tau is None:
        print("too few labels, or too alike, to judge it on hidden ones")
        return
    deviation = f" +- {judgement.deviation:.3f} a fold" if judgement.deviation is not None else ""
    print(f"tau-b on hidden labels ({judgement.folds} folds): {judgement.tau:.3f}{deviation}; {others}")
    if judgement.coverage is not None and judgement.width is not None:
        print(
            f"90 % intervals hold {judgement.coverage:.0%} of hidden results, mean width "
            f"{judgement.width:.3g} (from the labels alone: {judgement.label_width:.3g})"
        )


def _tau(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"
