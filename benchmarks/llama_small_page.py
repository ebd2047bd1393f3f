"""The page of ``llama_small``: ``python benchmarks/llama_small_page.py WORK`` writes ``llama_small.md``.

``--rates`` first tries learning rates and ``--steps`` times steps; both are kept in ``llama_small/``.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Callable, Sequence
from contextlib import redirect_stdout
from dataclasses import replace
from io import StringIO
from pathlib import Path
from typing import Final

import torch
from llama_small import (
    BATCH,
    BLOCKS,
    FOLDER,
    LENGTH,
    LLAMA,
    RATE,
    REQUEST,
    finished,
    read_rows,
    read_text,
    results,
    tokens_of,
)
from llama_small_claims import show_blocks
from llama_small_findings import show_findings
from llama_small_law import RATIO, shape_numbers
from llama_small_plan import CROSS, SETTINGS, SIZES, Planned, planned
from small_text import ENGLISH
from timing import machine, note, one_thread, table

from zerolm.groundtruth.reader import read
from zerolm.io.files import write_json
from zerolm.networks.build import build
from zerolm.spaces import shape_text
from zerolm.training.labels import labels_as_trained
from zerolm.training.learner import Labelled, total
from zerolm.training.request import Schedule
from zerolm.training.scaling import scaled
from zerolm.training.teacher import half_precision

PLACE: Final = FOLDER.with_suffix(".md")
RATES: Final = (0.002, 0.004, 0.008)
RATED: Final = (".1M 1x80 s8", ".1M 11x24 s8")
TRIED: Final = 1_000_000
"""Tokens of a network whose rate is tried."""
TIMED: Final = (".1M 3x48 s8", ".3M 4x64 s16", "1M 6x96 s16", "1M 16x64 s16")
STEPS: Final = 7
"""Steps that are timed; the fastest counts, for other work on the machine slows all."""
WAYS: Final = {"float32": (False, False), "bfloat16": (True, False), "bfloat16, compiled": (True, True)}


def try_rates(work: Path, rates: Sequence[float], workers: int) -> None:
    """Keep the loss of the ends of the smallest size's line of depth by the rate."""
    file = FOLDER / "rates.json"
    losses: dict[str, dict[str, float]] = json.loads(file.read_text()) if file.is_file() else {}
    shapes = [one for one in planned() if one.id in RATED]
    text = read_text(work)
    for rate in rates:
        request = replace(REQUEST, tokens=TRIED, schedule=Schedule(rate), measured=1)
        asked = [(one.architecture, 0, f"{one.id} at {rate:g}") for one in shapes]
        for place, label in labels_as_trained(asked, text, request, jobs=workers, progress=note):
            losses.setdefault(shapes[place].id, {})[f"{rate:g}"] = (
                label.loss if label.losses else float("inf")
            )
            write_json(file, losses)


def time_steps() -> None:
    """Keep the seconds of the processor that a step takes, in each way."""
    seconds = {
        one.id: {way: step_seconds(one, *WAYS[way]) for way in WAYS} for one in planned() if one.id in TIMED
    }
    write_json(FOLDER / "steps.json", seconds)


def step_seconds(one: Planned, half: bool, compiled: bool) -> float:
    module, groups = scaled(build(one.architecture, 0), one.architecture.layers[-1].width, RATE)
    learner = Labelled(module, None)
    learner.train()
    if compiled:
        learner.compile_parts()
    optimiser = torch.optim.AdamW(groups)
    ids = torch.randint(SETTINGS["vocab"], (BATCH, LENGTH))
    labels = ids.roll(-1, 1)

    def step() -> float:
        begun = time.process_time()
        with half_precision(ids.device, half):
            loss = total(learner(ids, labels))
        loss.backward()
        optimiser.step()
        optimiser.zero_grad()
        return time.process_time() - begun

    step()
    return min(step() for _ in range(STEPS))


def show_plan() -> None:
    print("## The cross\n")
    counts = ", ".join(f"{len(shapes)} at {size}" for size, shapes in CROSS.items())
    print(
        f"{len(planned())} architectures, {counts} body parameters (within 1 %), vocabulary "
        f"{SETTINGS['vocab']}, tied. Around a base of each size one thing is varied at a time: depth, at a "
        "ratio of FFN to attention weights of about 3 (the width follows); the ratio at the depth of the "
        "base (the width follows) and at its width (the depth follows); heads a KV group (what they save "
        "goes to the FFN); the size of a head, at the same weights. Corners join extremes. Two seeds a "
        "shape, of weights and of order; the base and the deepest of each size's line of depth have five.\n"
    )
    print("## How they are trained\n")
    sources = ", ".join(f"{name} (`{folder}/{pattern}`)" for name, folder, pattern in ENGLISH)
    source = read(FOLDER / "plan.json").source
    print(
        f"{tokens_of(REQUEST):,} tokens each, all different, {REQUEST.steps} steps of "
        f"{BATCH} x {LENGTH}, by `bench train`'s AdamW, muP of the width, the rate {RATE:g} at width 256; "
        "warm-up over 5 %, a hold, a linear decay over the last half; bfloat16. The losses after a quarter "
        "and a half of the tokens are of the same run at its full rate, before the decay: they compare "
        "networks with each other, not with the losses at the end. The text is the standard library of "
        f"Python without the modules that `corpus.py` holds out, and English documentation: {sources}. "
        f"Judged on about 200,000 tokens of documents of both kinds that are never trained on. The SHA-256 "
        f"of the text is `{source['text_sha256']}`; where another is made the run refuses.\n"
    )


def show_rates() -> None:
    print("## The rate\n")
    losses = json.loads((FOLDER / "rates.json").read_text())
    print(
        f"Loss after {TRIED:,} tokens by the rate at width 256, of the shallowest and the deepest of the "
        "smallest size, on a first draw of the text.\n"
    )
    rates = [f"{rate:g}" for rate in RATES]
    shapes = {one.id: shape_text(one.architecture) for one in planned()}
    rows = [
        [shapes[id], *(f"{by_rate[rate]:.3f}" if rate in by_rate else "" for rate in rates)]
        for id, by_rate in losses.items()
    ]
    table(["", *rates], rows)


def show_steps() -> None:
    print("## What a step costs\n")
    seconds = json.loads((FOLDER / "steps.json").read_text())
    shapes = {one.id: shape_text(one.architecture) for one in planned()}
    print(
        f"Milliseconds of the processor for a step of {BATCH} x {LENGTH}, one thread, the fastest of {STEPS} "
        "beside other work. Layers are compiled one by one, so that a deep network compiles as soon as a "
        "shallow one.\n"
    )
    rows = [
        [shapes[id], *(f"{1000 * ways[way]:.0f}" for way in WAYS), f"{ways['float32'] / ways[fast]:.1f} x"]
        for fast in [list(WAYS)[-1]]
        for id, ways in seconds.items()
    ]
    table(["", *WAYS, "faster"], rows)


def show_rows() -> None:
    print("## Losses\n")
    rows = read_rows(FOLDER / LLAMA.rows)
    by_id = finished(rows)
    wanted = sum(one.seeds for one in planned())
    seconds = sum(told["seconds"] for told in rows)
    print(
        f"{len(rows)} of {wanted} runs of {len(by_id)} networks; {seconds / 3600:.1f} hours by the clock of "
        "one process each, beside other work. r is the ratio of FFN to attention weights, g heads a KV "
        "group.\n"
    )
    for size in SIZES:
        ids = [one for one in planned() if one.size == size and one.id in by_id]
        if not ids:
            continue
        cells = []
        for one in sorted(ids, key=lambda one: results(by_id[one.id][0])["loss"]):
            runs = [results(told) for told in by_id[one.id]]
            cells.append([
                shape_text(one.architecture), one.line,
                f"{shape_numbers(one.architecture)[RATIO]:.2f}",
                *(f"{loss:.3f}" for loss in list(runs[0].values())[1:]),
                " ".join(f"{run['loss']:.4f}" for run in runs),
            ])  # fmt: skip
        print(f"### {size}\n")
        tokens = [f"{int(t):,}" for t in sorted(map(int, rows[0]["losses"]))[:-1]]
        table(["architecture", "line", "r", *tokens, "loss by seed"], cells)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("work", type=Path, metavar="WORK")
    parser.add_argument("--rates", nargs="*", type=float, metavar="RATE", help="try these, else all three")
    parser.add_argument("--steps", action="store_true", help="time steps")
    parser.add_argument("--workers", type=int, default=1)
    given = parser.parse_args()
    one_thread()
    torch.set_num_threads(1)
    work = given.work.absolute()
    os.environ["ZEROLM_CACHE"] = str(work / "cache")
    if given.rates is not None:
        try_rates(work, given.rates or RATES, given.workers)
    if given.steps:
        time_steps()
    parts: list[tuple[str, Callable[[], None]]] = [
        ("rates.json", show_rates),
        ("steps.json", show_steps),
        (LLAMA.rows, show_findings),
        (LLAMA.rows, show_rows),
        (BLOCKS.rows, show_blocks),
    ]
    page = StringIO()
    with redirect_stdout(page):
        print("# `llama_small`: llama shapes at equal size\n")
        print(
            f"`python benchmarks/llama_small_page.py WORK`, written on {machine()}, torch "
            f"{torch.__version__}. Steps were timed, and all runs but some of those with more tokens made, "
            "on an AMD EPYC with 2 cores; each row says its processor.\n"
        )
        show_plan()
        for file, show in parts:
            if (FOLDER / file).is_file():
                show()
    PLACE.write_text(page.getvalue().rstrip() + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
