"""The stream's width against its rivals: ``python benchmarks/width.py --model pydec``.

Writes ``width.md``. The model is a folder that ``benchmarks/train_models.py`` makes, a llama with a tied
head. Rivals are functions written from their papers; they are measured here and are no part of the package.
Sizes and tables are measured side by side, one thread each.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import tempfile
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

import torch
from carved.bench import Bench
from carved.equal_sizes import SIZES, Result, Size, methods, tables
from carved.judging import Quality
from carved.parent import LENGTH, Parent, Scale
from carved.same_widths import one_basis, own_bases
from carved.writing import Line
from carving import texts
from parts import Parts
from timing import machine, note, one_thread

PLACE: Final = Path(__file__).with_suffix(".md")
FULL: Final = (Scale(calibration=192, judged=250), 12)
QUICK: Final = (Scale(calibration=16, judged=4), 4)
"""How much is calibrated and judged on, and how many sequences shapes are tried with."""
BENCHES: Final[list[tuple[Bench, Path]]] = []
"""The one of this process, and the folder of what is measured."""


def prepare(folder: Path, scale: Scale, tried: int, work: Path) -> None:
    """Open the parent in a process that measures."""
    torch.set_num_threads(1)
    torch.set_grad_enabled(False)
    os.environ["ZEROLM_CACHE"] = str(work / "cache")  # nothing is known from a run with another folder
    BENCHES.append(
        (Bench(Parent(folder, texts(folder, work), scale, Parts(work / "trials.jsonl")), tried), work)
    )


def stored(name: str) -> None:
    """Measure a part of the page and store it, if it is not there yet."""
    ((bench, work),) = BENCHES
    measured_in(work).measured(name, partial(PARTS[name], bench))


def measured_in(work: Path) -> Parts:
    return Parts(work / "parts.jsonl")


def introduction(bench: Bench) -> list[Line]:
    """Check that all methods can keep everything, and say what is measured."""
    apart, scale = bench.check(), bench.parent.scale
    note(f"all that keep everything are the parent: KL at most {apart:.1e}")
    return [
        f"{bench.parent.folder.resolve().name} has {bench.network.size:,} parameters, "
        f"{bench.network.body:,} of them in its layers. All methods are calibrated on the same "
        f"{scale.calibration} sequences of {LENGTH} tokens that it has seen and judged on {scale.judged} "
        "that it has not: KL to the parent in nats a token, and perplexity (the parent's is "
        f"{bench.parent.own.perplexity:.2f}). Everything that a method stores counts: SliceGPT's matrices on "
        "the residual path and its untied head, FLAP's biases. Where a method's grid does not hit a size it "
        "is the nearest below. Shapes are hidden width x FFN x KV groups; where several are possible, that "
        f"with the least KL on calibration text, tried with {bench.tried} sequences. A method that keeps "
        f"everything is the parent: KL at most {apart:.0e}, over all of them."
    ]


def row_of(bench: Bench, make: Callable[[Bench], Result]) -> dict[str, Any]:
    return asdict(make(bench))


def as_result(row: dict[str, Any]) -> Result:
    return Result(**{**row, "quality": Quality(**row["quality"])})


def own(bench: Bench) -> list[Line]:
    return list(own_bases(bench))


def one(bench: Bench) -> list[Line]:
    return list(one_basis(bench))


def parts_of(sizes: Sequence[Size]) -> dict[str, Callable[[Bench], Any]]:
    """Return what makes each part of the page: every method at all sizes, method by method."""
    rows = {size: methods(size) for size in sizes}
    names = dict.fromkeys(name for of_size in rows.values() for name in of_size)
    return {
        "introduction": introduction,
        **{
            f"{size}: {name}": partial(row_of, make=rows[size][name])
            for name in names
            for size in sizes
            if name in rows[size]
        },
        "own bases": own,
        "which basis": one,
    }


PARTS: Final = parts_of(SIZES)


def document(parts: dict[str, Any]) -> Iterator[Line]:
    """The lines of the file, of what was measured."""
    yield "# The width of the stream and its rivals"
    yield ""
    yield (
        f"Written by `python benchmarks/width.py`. Machine: {machine()}, torch {version('torch')}, "
        f"transformers {version('transformers')}."
    )
    yield ""
    missing = [name for name in PARTS if name not in parts]
    if missing:
        yield (
            f"Not measured so far: {len(missing)} of {len(PARTS)} parts of this page. `--work` with the same "
            "folder goes on; what stands below is complete in itself."
        )
        yield ""
    yield from parts.get("introduction", [])
    yield ""
    known = {size: [f"{size}: {name}" for name in methods(size)] for size in SIZES}
    rows = {size: [as_result(parts[name]) for name in known[size] if name in parts] for size in SIZES}
    yield from tables({size: results for size, results in rows.items() if results})
    for name in ("own bases", "which basis"):
        yield ""
        yield from parts.get(name, [])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--model", type=Path, required=True, help="a folder")
    parser.add_argument("--work", type=Path, help="folder of what is measured: a run that was killed goes on")
    parser.add_argument(
        "--stored", action="store_true", help="write the page from what is in that folder, measure nothing"
    )
    parser.add_argument(
        "--quick", action="store_true", help="few sequences, printed and not written: a trial"
    )
    asked = parser.parse_args()
    one_thread()
    scale, tried = QUICK if asked.quick else FULL
    with tempfile.TemporaryDirectory() as scratch:
        work = asked.work or Path(scratch)
        work.mkdir(exist_ok=True)
        texts(asked.model, work)  # written once, before there are several processes
        if not asked.stored:
            with ProcessPoolExecutor(
                os.cpu_count(),
                multiprocessing.get_context("spawn"),
                initializer=prepare,
                initargs=(asked.model, scale, tried, work),
            ) as pool:
                for _ in pool.map(stored, PARTS):
                    pass
        text = "\n".join(document(measured_in(work).every())).rstrip() + "\n"
    if asked.quick:
        print(text)
        return
    unfinished = PLACE.with_suffix(".md.part")
    unfinished.write_text(text, encoding="utf-8")
    unfinished.replace(PLACE)
    note(f"wrote {PLACE}")


if __name__ == "__main__":
    main()
