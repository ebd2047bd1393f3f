"""Jobs in processes of their own, one after another in turn, with their seconds and their memory."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from timing import note

SCRIPT: Final = Path(__file__).with_name("checkpoint_jobs.py")
PAUSE: Final = 0.005
"""Seconds between two looks at a process's memory."""


@dataclass(frozen=True)
class Ran:
    """One run of a job: seconds, and bytes above the imports at its peak, with mapped files and without."""

    seconds: float
    peak: int
    anonymous: int


def run(job: str, parent: Path, out: Path, cut: Path) -> Ran:
    """Run a job in a process of its own and look at its memory while it runs."""
    command = [sys.executable, str(SCRIPT), job, str(parent), str(out), str(cut)]
    shutil.rmtree(out, ignore_errors=True)
    os.sync()  # what one job left to be written is not to slow down the next
    said, most = watched(job, command)
    found = json.loads(said)
    return Ran(found["seconds"], found["peak"], max(0, most - found["before"]))


def watched(job: str, command: Sequence[str]) -> tuple[str, int]:
    """Run a job's command: what it printed, and the bytes at its peak beside mapped files."""
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        most = 0
        while process.poll() is None:
            most = max(most, anonymous_memory(process.pid))
            time.sleep(PAUSE)
        assert process.stdout is not None
        said = process.stdout.read()
    if process.returncode:
        raise RuntimeError(f"{job} failed")
    return said, most


def place(work: Path, job: str) -> Path:
    """Where a job writes."""
    return work / job.replace(" ", "_")


def anonymous_memory(process: int) -> int:
    """Bytes that a process holds beside mapped files; 0 when it has ended."""
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{process}/status").read_text().splitlines():
            if line.startswith("RssAnon:"):
                return 1024 * int(line.split()[1])
    return 0


def alternated(jobs: Sequence[str], repeats: int, parent: Path, work: Path, cut: Path) -> dict[str, Ran]:
    """Each job in turn, ``repeats`` times; of each the median seconds and the largest memory."""
    ran: dict[str, list[Ran]] = {job: [] for job in jobs}
    for turn in range(repeats):
        for job in jobs:
            ran[job].append(run(job, parent, place(work, job), cut))
            note(f"{job}, {turn + 1} of {repeats}: {ran[job][-1]}")
    return {
        job: Ran(
            statistics.median(each.seconds for each in all_),
            max(each.peak for each in all_),
            max(each.anonymous for each in all_),
        )
        for job, all_ in ran.items()
    }
