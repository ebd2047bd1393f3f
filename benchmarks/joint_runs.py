"""Children by ``zerolm carve``, each in a process of its own, with its time, memory and what it gave up."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from joint_models import Model
from joint_plans import SEQUENCES, TIMED, Plan
from timing import note


def carved(model: Model, plan: Plan, share: float) -> dict[str, Any]:
    """Return the child of a plan within bytes: its ``folder`` and its figures; or why it was ``refused``.

    At the share ``TIMED`` each plan of a small model has an empty cache, but for those of one kind of cuts.
    All others share one, so that their seconds are fewer.
    """
    budget = int(share * model.bytes)
    name = plan.name.replace(" ", "-")
    folder = model.work / "children" / model.name / f"{budget}-{name}"
    is_timed = share == TIMED and not plan.is_kind and not model.is_real
    cache = model.work / "caches" / (f"{model.name}-{name}" if is_timed else model.name)
    if is_timed:
        shutil.rmtree(cache, ignore_errors=True)
    shutil.rmtree(folder, ignore_errors=True)
    folder.parent.mkdir(parents=True, exist_ok=True)
    command = [
        *(sys.executable, "-m", "zerolm", "carve", str(model.parent), "--format", "gguf", "--json"),
        *("--max-weight-bytes", str(budget), "--text", str(model.texts[0])),
        *("--sequences", str(SEQUENCES[model.name]), "--out", str(folder), *plan.flags),
    ]
    note(" ".join(command[1:]))
    started = time.monotonic()
    log = folder.with_suffix(".log")
    with log.open("w", encoding="utf-8") as errors:
        process = subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            env=os.environ | {"ZEROLM_CACHE": str(cache)},
        )
        assert process.stdout is not None
        printed = process.stdout.read()
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    seconds = {
        "seconds": round(usage.ru_utime + usage.ru_stime, 1),
        "clock": round(time.monotonic() - started, 1),
        "gb": round(usage.ru_maxrss / 2**20, 2),
        "from_nothing": is_timed,
    }
    if process.returncode:
        refused = _error(log)
        if process.returncode != 2 or not ("budgets" in refused or "would have to be" in refused):
            raise SystemExit(f"{' '.join(command)} failed: {refused}")
        return {"refused": refused, **seconds}
    document = json.loads(printed)
    return {
        "folder": str(folder),
        **seconds,
        "units": {row["unit"]: [row["before"], row["after"]] for row in document["units"]},
        "experts": document["experts"] and _experts(document["experts"]),
        "types": _counted(document["types"]),
        "losses": document["losses"],
        "tried": (document["vocabulary"] or {}).get("sizes", []),
        "notes": document["notes"],
    }


def _error(log: Path) -> str:
    """Return the error at the end of what a command printed, in one line."""
    lines = [line for line in log.read_text("utf-8").splitlines() if not line.endswith(" ...")]
    return " ".join(" ".join(lines[-4:]).split()).removeprefix("zerolm: ").removeprefix("error: ")


def _counted(types: list[dict[str, Any]]) -> dict[str, int]:
    """Return the number of matrices of each type."""
    counts: dict[str, int] = {}
    for row in types:
        counts[row["type"]] = counts.get(row["type"], 0) + 1
    return counts


def _experts(document: dict[str, Any]) -> dict[str, Any]:
    """Return the numbers of a report on experts."""
    return {name: value for name, value in document.items() if isinstance(value, int | float | str)}
