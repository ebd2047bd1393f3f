"""What ``zerolm`` makes of real models by its own commands, each in its own process, then judged."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from parts import Parts
from real_judging import identity, is_of, judged, written
from real_models import Parent, Sizes, text_file
from timing import note

import zerolm
from zerolm.checkpoints import Checkpoint

OURS: Final[Mapping[str, str]] = {
    "ours none": "zerolm, nothing refitted",
    "ours": "zerolm, refitted",
    "ours healed": "zerolm, refitted and healed for 30 minutes",
    "of params ours": "zerolm, which may prune all that it can",
}
"""``of params ours`` has a budget of all parameters, tokens among them; the others have the peers' width."""
WORK: Final = Path(tempfile.gettempdir()) / "zerolm_real"


def ours_row(parent: Parent, share: float, method: str, texts: Sequence[str], store: Parts) -> None:
    """Make a child unless it was made, and judge it on texts that it was not judged on."""
    child = WORK / parent.name / f"{share} {method}".replace(" ", "_")
    by = parent.calibrated
    every = store.every()
    names = {text: f"{share} {method} by {by} on {text}" for text in texts}
    missing = [text for text in texts if not is_of(every.get(names[text]), parent.unseen(text))]
    if not missing:
        return
    if not child.exists():
        if method == "ours healed":
            ours_row(parent, share, "ours", texts, store)
        figures = ran(command(parent, share, method, child))
        store.measured(f"{share} {method} made {time.strftime('%Y-%m-%d %H:%M')}", lambda: figures)
    made = [value for name, value in store.every().items() if name.startswith(f"{share} {method} made ")][-1]
    checkpoint = Checkpoint.open(child)
    sizes = sizes_of(parent, checkpoint)
    same = checkpoint.layout.vocab == parent.checkpoint.layout.vocab
    for text in missing:
        if same:
            (figures,) = judged(parent, parent.unseen(text), [written(parent, checkpoint)])
        else:
            figures = by_bytes(parent, child, text)
        result = {**figures, "params": sizes.params, "body": sizes.body, "dtype": parent.dtype, **made}
        store.add(names[text], result)


def sizes_of(parent: Parent, child: Checkpoint) -> Sizes:
    """Return the parameters of a child of a parent."""
    small = Parent(parent.name, parent.dtype)
    small.__dict__["checkpoint"] = child
    return Sizes.of(small)


def command(parent: Parent, share: float, method: str, child: Path) -> list[str]:
    """Return the command that makes a child, as a user would type it."""
    text = str(text_file(parent.calibrated, "cal"))
    if method == "ours healed":
        made = WORK / parent.name / f"{share} ours".replace(" ", "_")
        more = ["heal", str(made), "--parent", str(parent.folder), "--for", "30m"]
    elif method == "of params ours":
        more = ["carve", str(parent.folder), "--max-params", f"{share}x"]
    else:
        sizes = Sizes.of(parent)
        width = sizes.width(parent, (1.0 - share) * sizes.body)
        more = [
            "carve",
            str(parent.folder),
            "--keep-ffn",
            repr(width / parent.sizes.ffn),
            "--multiple-of",
            "1",
        ]
        more += ["--repair", "none"] if method == "ours none" else []
    return [*more, "--text", text, "--dtype", "bfloat16", "--out", str(child)]


def ran(arguments: Sequence[str]) -> dict[str, Any]:
    """Run a command of zerolm; return its minutes, those of the processor, and gigabytes at its peak."""
    note("zerolm " + " ".join(arguments))
    Path(arguments[-1]).parent.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", "zerolm", *arguments]
    start = time.monotonic()
    with (
        tempfile.TemporaryFile("w+") as notes,
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=notes, text=True) as process,
    ):
        assert process.stdout is not None
        printed = process.stdout.read()
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        notes.seek(0)
        said = notes.read()
    if process.returncode:
        raise SystemExit(f"zerolm {' '.join(arguments)} failed: {said[-500:]}")
    losses = [line for line in printed.splitlines() if re.search(r"\bloss|KL|\bkl|cosine", line)]
    return {
        "minutes": round((time.monotonic() - start) / 60, 2),
        "processor_minutes": round((usage.ru_utime + usage.ru_stime) / 60, 2),
        "predicted_minutes": predicted_minutes(said),
        "peak_gb": round(usage.ru_maxrss / 2**20, 2),
        "printed": losses[:12],
        "version": zerolm.__version__,
    }


def predicted_minutes(said: str) -> float | None:
    """Return the minutes that a command predicted, comparisons of units among them; None where few."""
    parts = re.findall(r"about (\d+) (s|min|h)(?:: | to compare)", said)
    minutes = sum(int(number) * {"s": 1 / 60, "min": 1, "h": 60}[unit] for number, unit in parts)
    return round(minutes, 2) if parts else None


def by_bytes(parent: Parent, child: Path, text: str) -> dict[str, Any]:
    """Return what ``zerolm eval`` says of a child that has other tokens than its parent."""
    evaluated = zerolm.eval(
        child, parent=parent.folder, text=str(text_file(text, "unseen")), sequences=16, length=512
    )
    return {"eval": evaluated.to_json(), "text": identity(parent.unseen(text))}
