"""The stream's width against its rivals: ``python benchmarks/width.py --model pydec``.

Writes ``width.md``. The model is a folder that ``benchmarks/train_models.py`` makes, a llama with a tied
head. Rivals are functions written from their papers; they are measured here and are no part of the package.
Sizes and tables are measured side by side, one thread each.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

import torch
from carved.bench import Bench
from carved.equal_sizes import SIZES, Result, Size, measured_table, results, tables
from carved.judging import Quality
from carved.parent import LENGTH, Parent, Scale
from carved.same_widths import one_basis, own_bases
from carved.writing import Line
from carving import texts
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
    BENCHES.append((Bench(Parent(folder, texts(folder, work), scale), tried), work))


def stored(name: str, make: Callable[[Bench], Any]) -> Any:
    """Return plain JSON that was measured before, or is now."""
    ((bench, work),) = BENCHES
    file = work / f"{name}.json"
    if not file.exists():
        unfinished = file.with_suffix(".part")
        unfinished.write_text(json.dumps(make(bench)), encoding="utf-8")
        unfinished.replace(file)
    return json.loads(file.read_text(encoding="utf-8"))


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


def size_results(bench: Bench, size: Size) -> list[dict[str, Any]]:
    return [asdict(result) for result in results(bench, size, measured_table(bench))]


def as_result(row: dict[str, Any]) -> Result:
    return Result(**{**row, "quality": Quality(**row["quality"])})


def own(bench: Bench) -> list[Line]:
    return list(own_bases(bench))


def one(bench: Bench) -> list[Line]:
    return list(one_basis(bench))


def document(pool: ProcessPoolExecutor) -> Iterator[Line]:
    """The lines of the file."""
    first, apart = (pool.submit(stored, name, part) for name, part in (("first", introduction), ("own", own)))
    sizes = {
        size: pool.submit(stored, f"{size.cost} {size.share}", partial(size_results, size=size))
        for size in SIZES
    }
    bases = pool.submit(stored, "bases", one)
    yield "# The width of the stream and its rivals"
    yield ""
    yield (
        f"Written by `python benchmarks/width.py`. Machine: {machine()}, torch {version('torch')}, "
        f"transformers {version('transformers')}."
    )
    yield ""
    yield from first.result()
    yield ""
    yield from tables({size: list(map(as_result, rows.result())) for size, rows in sizes.items()})
    for part in (apart, bases):
        yield ""
        yield from part.result()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--model", type=Path, required=True, help="a folder")
    parser.add_argument("--work", type=Path, help="folder of what is measured: a run that was killed goes on")
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
        with ProcessPoolExecutor(
            os.cpu_count(),
            multiprocessing.get_context("spawn"),
            initializer=prepare,
            initargs=(asked.model, scale, tried, work),
        ) as pool:
            text = "\n".join(document(pool)).rstrip() + "\n"
    if asked.quick:
        print(text)
        return
    unfinished = PLACE.with_suffix(".md.part")
    unfinished.write_text(text, encoding="utf-8")
    unfinished.replace(PLACE)
    note(f"wrote {PLACE}")


if __name__ == "__main__":
    main()
