"""End-to-end searches, each a process of its own with all its imports."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from functools import partial
from typing import Any

from timing import note, number, stopwatch, table

REPEATS = 3
WALL = time.perf_counter
SEARCHES: dict[str, tuple[str, dict[str, Any], dict[str, int]]] = {
    "llama, 125 M parameters": ("llama", {}, {"max_params": 125_000_000}),
    "gpt2-uniform, 40 M parameters": ("gpt2-uniform", {}, {"max_params": 40_000_000}),
    "gpt2, 40 M parameters": ("gpt2", {}, {"max_params": 40_000_000}),
    "gpt2, 40 M parameters, 30 M MACs, 12 MB KV cache": (
        "gpt2", {}, {"max_params": 40_000_000, "max_macs": 30_000_000, "max_kv_bytes": 12_000_000},
    ),
    "llama a layer, 125 M parameters": ("llama", {"per_layer": True}, {"max_params": 125_000_000}),
    "llama a layer, 125 M parameters, 140 M MACs, 12 MB KV cache": (
        "llama", {"per_layer": True},
        {"max_params": 125_000_000, "max_macs": 140_000_000, "max_kv_bytes": 12_000_000},
    ),
}  # fmt: skip
SEARCH = """
import json, sys
from zerolm.solvers.search import search
from zerolm.spaces import make_space
name, settings, budgets = json.loads(sys.argv[1])
result = search(make_space(name, **settings), budgets=budgets)
proof = result.certificate
print(json.dumps([proof.method, proof.optimal, proof.seconds, len(result.front.points)]))
"""


def process(code: str, *arguments: str) -> str:
    """What a fresh interpreter prints."""
    command = [sys.executable, "-c", code, *arguments]
    return subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True).stdout


def main() -> None:
    note("searches: imports")
    unit, _ = stopwatch(partial(process, "import numpy"), 2 * REPEATS + 1, WALL)
    imports, _ = stopwatch(partial(process, "import zerolm.solvers.search"), 2 * REPEATS + 1, WALL)
    rows: list[list[str | float]] = [
        ["`import numpy`", "1x", unit, "", "", ""],
        ["`import zerolm.solvers.search`", f"{number(imports / unit)}x", imports, "", "", ""],
    ]
    for title, given in SEARCHES.items():
        note(f"searches: {title}")
        seconds, said = stopwatch(partial(process, SEARCH, json.dumps(given)), REPEATS, WALL)
        method, optimal, inner, front = json.loads(said)
        proof = f"{method}, {'proven' if optimal else 'not proven'}"
        rows.append([title, f"{number(seconds / unit)}x", seconds, proof, inner, f"{front:,}"])
    print("## Searches end to end\n")
    print(
        "Whole processes, imports included, with ten architectures, pick, ties, front, baselines and binding "
        "bounds; `answer` is the search's own time for all but the last two.\n"
    )
    table(["process", "against `import numpy`", "seconds", "method", "answer s", "front"], rows)


if __name__ == "__main__":
    main()
