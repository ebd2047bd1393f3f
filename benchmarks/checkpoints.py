"""A large checkpoint summed up, cut and planned for: ``python benchmarks/checkpoints.py``.

Writes ``checkpoints.md`` beside this file. Makes a llama-shaped checkpoint of 5 GB in a temporary folder
(below ``--folder``), for which it needs 15 GB of disk, and as much memory to keep all that in the cache of
pages.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import os
import shutil
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
from planning import measure_planning
from processes import PAUSE, Ran, alternated, place
from safetensors import safe_open
from synthetic import DEPTH, synthetic
from timing import machine, number, table

from zerolm.checkpoints import Checkpoint, ledger_of
from zerolm.units.importance.criteria import criterion_of
from zerolm.units.kept_units import dimensions

HERE: Final = Path(__file__).parent
NEEDED: Final = 15_000_000_000
KEEP: Final = 0.75


def report(ran: dict[str, Ran]) -> None:
    """A table of runs, with their seconds beside those of the first."""
    first = next(iter(ran.values()))
    rows: list[tuple[str | float, ...]] = []
    for job, each in ran.items():
        memory = (f"{size / 1e6:,.0f} MB" for size in (each.anonymous, each.peak))
        rows.append((job, f"{number(each.seconds / first.seconds)}x", each.seconds, *memory))
    table(["job", f"against {next(iter(ran))}", "seconds", "memory", "with mapped files"], rows)


def write_cut(checkpoint: Checkpoint, name: str, file: Path) -> None:
    """What a criterion keeps at the same size of every layer."""
    parent, chosen = dimensions(checkpoint), criterion_of(name, checkpoint, ledger_of(checkpoint))
    counts = {"groups": round(KEEP * parent.kv_heads), "ffn": round(KEEP * parent.ffn)}
    groups, ffn = (
        np.array([chosen.choose(layer, kind, count) for layer in range(parent.depth)])
        for kind, count in counts.items()
    )
    np.savez(file, groups=groups, ffn=ffn)


def same_tensors(ours: Path, theirs: Path) -> int:
    """How many tensors two folders hold; ``ValueError`` where they are not the same ones, bit by bit."""
    with contextlib.ExitStack() as stack:

        def tensors(folder: Path) -> dict[str, Any]:
            files = [stack.enter_context(safe_open(file, "pt")) for file in folder.glob("*.safetensors")]
            return {name: file for file in files for name in file.keys()}  # noqa: SIM118

        mine, others = tensors(ours), tensors(theirs)
        if mine.keys() != others.keys():
            raise ValueError("the two children do not hold the same tensors")
        for name, file in mine.items():
            if not torch.equal(file.get_tensor(name), others[name].get_tensor(name)):
                raise ValueError(f"{name} differs")
    return len(mine)


LEDGER: Final = """## The ledger

One pass for the sums and extremes of every row and column (nothing is cached; with numba, and without),
against `safetensors.torch.load_file` shard by shard and one tensor at a time to double: nothing done with
it, or its squares summed along both axes.
"""
WRITING: Final = """## Writing a child

Three quarters of the KV groups and of the FFN, in all layers alike: the first of them (`prefix`), or any
(`capacity`). Against loading a shard, slicing its tensors, saving them, and the next shard. Both wait until
every file is on the disk (fsync), or neither waits at all.
"""


def measure_ledger(parent: Path, work: Path, repeats: int) -> None:
    print(LEDGER)
    jobs = ("ledger", "ledger in numpy", "load + double", "load + double + sums")
    report(alternated(jobs, repeats, parent, work, work / "none"))


def measure_writing(checkpoint: Checkpoint, work: Path, repeats: int) -> None:
    print(WRITING)
    ours, theirs = jobs = ("child", "load + slice + save")
    for name in ("prefix", "capacity"):
        cut = work / f"{name}.npz"
        write_cut(checkpoint, name, cut)
        ran = alternated(jobs, repeats, checkpoint.folder, work, cut)
        count = same_tensors(*(place(work, job) for job in jobs))
        more = number(ran[theirs].anonymous / max(ran[ours].peak, 1))
        print(
            f"`{name}`: {count} tensors, all identical; {more} times the memory, our mapped files counted:\n"
        )
        unsynced = alternated([f"{job}, no fsync" for job in jobs], repeats, checkpoint.folder, work, cut)
        report(ran)
        report(unsynced)


PAGE: Final = """# Large checkpoints

Written by `python benchmarks/checkpoints.py`. Each job runs in a process of its own, in turn with the
others, all pages of the parent in the cache: median seconds on the wall after all imports, and the largest
memory above that of the imports: what is anonymous, looked at every {pause:.0f} ms, and the kernel's own
peak, which counts mapped files too.

Machine: {machine}; {packages}; torch on {threads} threads.

Checkpoint: llama-shaped, {layers} layers, bfloat16, {size:.2f} GB in {shards} shards; {repeats} repeats.
"""


def measure(checkpoint: Checkpoint, work: Path, repeats: int) -> str:
    """The whole page."""
    page = io.StringIO()
    with contextlib.redirect_stdout(page):
        print(
            PAGE.format(
                pause=1000 * PAUSE,
                machine=machine(),
                packages=", ".join(f"{name} {version(name)}" for name in ("torch", "safetensors", "numba")),
                threads=torch.get_num_threads(),
                layers=checkpoint.layout.depth,
                size=sum(shard.size for shard in checkpoint.shards) / 1e9,
                shards=len(checkpoint.shards),
                repeats=repeats,
            )
        )
        measure_ledger(checkpoint.folder, work, repeats)
        measure_writing(checkpoint, work, repeats)
        measure_planning(checkpoint)
    return page.getvalue().rstrip() + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--folder", type=Path, help="where the temporary folder is made")
    parser.add_argument("--layers", type=int, default=DEPTH)
    parser.add_argument("--repeats", type=int, default=3)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="zerolm-checkpoints-", dir=asked.folder) as name:
        work = Path(name)
        if shutil.disk_usage(work).free < NEEDED:
            sys.exit(f"{work} has less than {NEEDED / 1e9:.0f} GB left: name another place with --folder")
        os.environ["ZEROLM_CACHE"] = str(work / "cache")
        page = measure(synthetic(work / "parent", asked.layers), work, asked.repeats)
    unfinished = HERE / "checkpoints.md.part"
    unfinished.write_text(page)
    unfinished.replace(HERE / "checkpoints.md")


if __name__ == "__main__":
    main()
