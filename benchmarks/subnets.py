"""Sub-networks of trained models as truth: ``python benchmarks/subnets.py --models DIR --work DIR``.

Writes ``subnets.md``. DIR holds ``pydec`` and ``pyenc``, which ``benchmarks/train_models.py`` makes. What was
measured stays in the work folder, and a run that is started again goes on; ``pyenc`` first learns to tell
libraries by their docstrings (``subnets_data.py``), and is attacked by ``examples/attack_texts.py``.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from pathlib import Path
from typing import Any, Final

from corpus import seen_files, seen_text, summaries, unseen_text
from parts import Parts
from subnets_attacks import attack_each
from subnets_data import rows, versions, write_rows
from subnets_page import page
from subnets_runs import SETS, foretold, proxies, seconds_alone, sliced
from timing import note, one_thread

from zerolm.lab.subnets.request import CutRequest, DrawRequest, JudgingRequest, Limits

sys.path.append(str(Path(__file__).parents[1] / "examples"))

PLACE: Final = Path(__file__).with_suffix(".md")
COUNT: Final = 300
SEQUENCES: Final = 8
BUDGETS: Final = {"pydec": ("0.6x", "0.9x"), "pyenc": ("0.4x", "0.8x")}
RUNS: Final = (
    ("pydec", "prefix", SETS),
    ("pyenc", "output_energy", SETS),
    ("pydec", "output_energy", SETS),
    ("pyenc", "prefix", SETS),
)
"""Model, criterion and judging sets, in the order in which they are measured."""
CLEAN, ATTACKED = 160, 60
"""Rows of each judging set, and those of them that are attacked."""


def classifier(encoder: Path, work: Path) -> Path:
    """Return ``pyenc`` with a head of classes, trained where it is not there yet."""
    out = work / "classifier"
    if not (out / "trained.json").exists():
        import classify_texts

        for name, some in rows().items():
            write_rows(work / f"{name}.csv", some if name == "trained" else some[:CLEAN])
        start = time.process_time()
        measured = classify_texts.main(encoder, work / "trained.csv", out, epochs=4, rate=2e-4)
        seconds = time.process_time() - start
        (out / "trained.json").write_text(json.dumps({**measured, "seconds": seconds, "of": versions()}))
    return out


def attack(model: Path, work: Path) -> dict[str, Any]:
    """Attack the two sets where that was not done yet, and return TextAttack's rates of each."""
    import attack_texts

    rates = {}
    for name in SETS:
        file = work / f"attacked-{name}.json"
        if not file.exists():
            measured = attack_texts.main(model, work / f"{name}.csv", work / f"attacked-{name}.csv", ATTACKED)
            file.write_text(json.dumps(measured))
        rates[name] = json.loads(file.read_text())
    return rates


def judging(model: str, models: Path, work: Path) -> tuple[Path, dict[str, JudgingRequest], Path]:
    """Return the parent, its two judging sets, and the calibration text; all files are there then."""
    calibration = work / f"calibration-{model}.txt"
    if model == "pydec":
        calibration.write_text(seen_text(), encoding="utf-8")
        text = unseen_text()
        halves = {"first": text[: len(text) // 2], "second": text[len(text) // 2 :]}
        for name, half in halves.items():
            (work / f"unseen-{name}.txt").write_text(half, encoding="utf-8")
        requests = {
            name: JudgingRequest(str(work / f"unseen-{name}.txt"), sequences=SEQUENCES) for name in SETS
        }
        return models / model, requests, calibration
    parent = classifier(models / model, work)
    (parent / "attacks.json").write_text(json.dumps(attack(parent, work)))
    calibration.write_text("\n".join(summaries(seen_files())), encoding="utf-8")
    tables = {name: (str(work / f"{name}.csv"), str(work / f"attacked-{name}.csv")) for name in SETS}
    requests = {
        name: JudgingRequest(None, *files, sequences=32 * SEQUENCES) for name, files in tables.items()
    }
    return parent, requests, calibration


def measure(models: Path, work: Path) -> None:
    """Measure what is not in the work folder yet."""
    for model, criterion, sets in RUNS:
        note(f"{model}, {criterion}")
        least, most = BUDGETS[model]
        draw = DrawRequest("heads-ffn", COUNT, Limits(min_macs=least, max_macs=most))
        parent, requests, calibration = judging(model, models, work)
        text = None if criterion == "prefix" else str(calibration)
        for name in sets:
            document = sliced(
                parent, draw, CutRequest(criterion, calibration=text), requests[name], work / model, name
            )
            how = CutRequest(criterion, calibration=str(calibration))
            foretold(parent, how, requests[name], document, work / model)
        file = work / model / "seconds.json"
        if not file.exists():
            file.write_text(json.dumps(seconds_alone(parent, "prefix", requests["first"])))
    for model, criterion, sets in RUNS[:2]:
        document = json.loads((work / model / f"{criterion}-{sets[0]}.json").read_text())
        proxies(document, work / model / f"{criterion}-proxies.json")
    model, criterion, (first, _) = RUNS[1]
    parent, requests, calibration = judging(model, models, work)
    document = json.loads((work / model / f"{criterion}-{first}.json").read_text())
    cutting, file = CutRequest(criterion, calibration=str(calibration)), f"{criterion}-attacks.jsonl"
    attack_each(parent, cutting, requests[first], document, Parts(work / model / file))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--models", type=Path, required=True, help="the folder of pydec and pyenc")
    parser.add_argument("--work", type=Path, required=True, help="what was measured, and is gone on with")
    parser.add_argument(
        "--page", action="store_true", help="write the page of what is there; measure nothing"
    )
    asked = parser.parse_args()
    one_thread()
    asked.work.mkdir(parents=True, exist_ok=True)
    os.environ["ZEROLM_CACHE"] = str(asked.work / "cache")
    if not asked.page:
        measure(asked.models, asked.work)
    PLACE.write_text(page(RUNS, asked.work), encoding="utf-8")
    note(f"wrote {PLACE}")


if __name__ == "__main__":
    main()
