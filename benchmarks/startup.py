"""How long the first answers take: python benchmarks/startup.py > benchmarks/startup.md

Seconds of the processor, user and system, of the whole process, the median of several; other work on the
machine raises them less than it does the clock on the wall, and `python -c pass` as much as the others.
"""

from __future__ import annotations

import resource
import statistics
import subprocess
import sys
from collections.abc import Sequence

from timing import machine, note

from zerolm.verbs import commands

REPEATS = 7
MAIN = "import sys; from zerolm.cli import main; sys.exit(main())"


def seconds(code: str, *arguments: str) -> float:
    """The median processor seconds of a Python process with this code."""
    taken = []
    for _ in range(REPEATS):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([sys.executable, "-c", code, *arguments], check=True, stdout=subprocess.DEVNULL)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        taken.append(after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime)
    return statistics.median(taken)


def measured() -> list[tuple[str, float]]:
    """Each call and its seconds, Python alone first."""
    calls: list[tuple[str, Sequence[str]]] = [
        ("python -c pass", ("pass",)),
        ("import zerolm", ("import zerolm",)),
        ("zerolm --version", (MAIN, "--version")),
        ("zerolm --help", (MAIN, "--help")),
        *((f"zerolm {name} --help", (MAIN, *name.split(), "--help")) for name in commands()),
        ("zerolm search llama --help", (MAIN, "search", "llama", "--help")),
        ("zerolm spaces", (MAIN, "spaces")),
    ]
    rows = []
    for name, call in calls:
        note(name)
        rows.append((name, seconds(*call)))
    return rows


def main() -> None:
    rows = measured()
    alone = rows[0][1]
    print("# Start-up\n")
    print(f"Written by `python benchmarks/startup.py`. Median of {REPEATS}. Machine: {machine()}.\n")
    print("| call | processor seconds | times `python -c pass` |")
    print("|---|---:|---:|")
    for name, taken in rows:
        print(f"| `{name}` | {taken:.3f} | {taken / alone:.1f} |")


if __name__ == "__main__":
    main()
