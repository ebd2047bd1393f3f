"""Run every benchmark and write performance.md beside this file: python benchmarks/run.py"""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

from timing import machine, note

HERE = Path(__file__).parent
SCRIPTS = ("scoring.py", "flexibert.py", "front.py", "search.py")


def main() -> None:
    start = time.perf_counter()
    parts = [
        "# Performance\n\n"
        "Written by `python benchmarks/run.py`. Ratios compare things measured in one run and are what to "
        "read; seconds stand beside them and belong to the machine. They are processor seconds of one "
        "thread, but for whole processes, which are timed by the clock on the wall.\n\n"
        f"Machine: {machine()}.\n"
    ]
    for script in SCRIPTS:
        note(f"== {script}")
        command = [sys.executable, str(HERE / script)]
        said = subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True).stdout
        parts.append(said.strip() + "\n")
    parts.append(f"All of it took {(time.perf_counter() - start) / 60:.1f} minutes.\n")
    unfinished = HERE / "performance.md.part"
    unfinished.write_text("\n".join(parts))
    unfinished.replace(HERE / "performance.md")


if __name__ == "__main__":
    main()
