"""The ground truth ``llama_small``: ``python benchmarks/llama_small.py WORK`` trains what the plan lacks.

``--plan`` writes ``llama_small/plan.json``: llama-shaped networks of three body sizes in a designed cross,
with the seeds that each is trained from. Without it the plan is trained, the smallest size first and every
shape of a size from seed 0 before any from seed 1. A network that is finished is a line of WORK/rows.jsonl,
never lost; one that was killed goes on from its last checkpoint. ``--rates`` measures which rate suits.
"""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import torch
from small_text import texts
from timing import note, one_thread, table

import zerolm
from zerolm.architecture import Architecture
from zerolm.costs import CostModel
from zerolm.io.files import write_json
from zerolm.spaces import make_space, shape_text
from zerolm.training.labels import Label, LabelText, labels_as_trained
from zerolm.training.request import Execution, Schedule, TrainingRequest

FOLDER: Final = Path(__file__).with_suffix("")
PLAN: Final = FOLDER / "plan.json"
SETTINGS: Final = {"vocab": 1024, "tied": True}
SIZES: Final = {".1M": 100_000, ".3M": 300_000, "1M": 1_000_000}
"""Body parameters, which every shape meets within 1 %."""
TOKENS, BATCH, LENGTH = 3_000_000, 32, 128
RATE: Final = 0.004
REQUEST: Final = TrainingRequest(
    TOKENS, BATCH, LENGTH, Schedule(RATE), execution=Execution("bfloat16", compile=True),
    checkpoints=8, measured=4,
)  # fmt: skip
RATES: Final = (0.002, 0.004, 0.008, 0.016)
RATED: Final = ("depth 1x80", "base 3x48", "depth 11x24")
TRIED: Final = 1_500_000
"""Tokens of a network whose rate is tried."""


@dataclass(frozen=True)
class Shape:
    """A shape of the cross: the FFN takes what the body has left. ``line`` is what it varies."""

    line: str
    depth: int
    hidden: int
    head_size: int
    heads_per_kv: int = 1
    seeds: int = 2

    def choices(self, body: int) -> dict[str, int]:
        """Return the choices whose body parameters come nearest, with an even FFN width."""
        d, heads = self.hidden, self.hidden // self.head_size
        kv_heads = heads // self.heads_per_kv
        attention = 2 * d * d + 2 * d * kv_heads * self.head_size
        rest = body - d - self.depth * (attention + 2 * d)
        ffn = 2 * round(rest / (6 * d * self.depth))
        return {"depth": self.depth, "hidden": d, "head_size": self.head_size, "heads": heads,
                "kv_heads": kv_heads, "ffn": ffn}  # fmt: skip


def line(name: str, head_size: int, *sizes: tuple[int, int], **more: int) -> list[Shape]:
    return [Shape(name, depth, hidden, head_size, **more) for depth, hidden in sizes]


CROSS: Final = {
    ".1M": [
        *line("base", 8, (3, 48), seeds=5),
        *line("depth", 8, (1, 80), (2, 56), (4, 40), (6, 32)),
        *line("depth", 8, (11, 24), seeds=5),
        *line("ratio at depth", 8, (3, 32), (3, 40), (3, 56), (3, 64), (3, 72)),
        *line("ratio at hidden", 8, (2, 48), (4, 48), (5, 48), (8, 48)),
        *(Shape("groups", 3, 48, 8, groups) for groups in (2, 3, 6)),
        *(Shape("head size", 3, 48, size) for size in (16, 48)),
        *line("corner", 8, (1, 56), (1, 112), (6, 24), (8, 40)),
        Shape("corner", 1, 80, 8, 10),
        Shape("corner", 6, 32, 8, 4),
    ],
    ".3M": [
        *line("base", 16, (4, 64), seeds=5),
        *line("depth", 16, (1, 144), (2, 96), (3, 80), (8, 48)),
        *line("depth", 16, (16, 32), seeds=5),
        *line("ratio at depth", 16, (4, 48), (4, 80), (4, 96), (4, 112)),
        *line("ratio at hidden", 16, (3, 64), (6, 64), (8, 64), (11, 64)),
        *(Shape("groups", 4, 64, 16, groups) for groups in (2, 4)),
        *(Shape("head size", 4, 64, size) for size in (8, 32)),
        *line("corner", 16, (1, 96), (1, 192), (11, 32), (16, 48)),
        Shape("corner", 2, 96, 16, 6),
        Shape("corner", 8, 48, 16, 3),
    ],
    "1M": [
        *line("base", 16, (6, 96), seeds=5),
        *line("depth", 16, (2, 176), (3, 144), (10, 80)),
        *line("depth", 16, (16, 64), seeds=5),
        *line("ratio at depth", 16, (6, 80), (6, 128), (6, 144)),
        *line("ratio at hidden", 16, (4, 96), (11, 96)),
        *(Shape("groups", 6, 96, 16, groups) for groups in (2, 6)),
        Shape("head size", 6, 96, 32),
        *line("corner", 16, (2, 128), (2, 256), (16, 48)),
    ],
}  # fmt: skip


@dataclass(frozen=True)
class Planned:
    """One architecture of the plan."""

    id: str
    size: str
    line: str
    architecture: Architecture
    seeds: int


def planned() -> list[Planned]:
    """Return the architectures of the plan, in its order."""
    space = make_space("llama", **SETTINGS)
    plan = []
    for size, shapes in CROSS.items():
        for shape in shapes:
            groups = f" g{shape.heads_per_kv}" if shape.heads_per_kv > 1 else ""
            name = f"{size} {shape.depth}x{shape.hidden} s{shape.head_size}{groups}"
            architecture = space.read(shape.choices(SIZES[size]))
            plan.append(Planned(name, size, shape.line, architecture, shape.seeds))
    return plan


def plan_document(text: LabelText) -> dict[str, Any]:
    """Return the plan in the format of benchmark files, so that ``bench train --rows`` takes it too."""
    return {
        "name": "llama_small",
        "space": "llama",
        "settings": SETTINGS,
        "task": "next token of Python and English text",
        "metric": None,
        "higher_is_better": None,
        "source": {"text_sha256": text.sha256, "rate": RATE, "tokens": REQUEST.steps * REQUEST.step_tokens},
        "architectures": [
            {"id": one.id, "architecture": one.architecture.choices, "results": {}, "size": one.size,
             "line": one.line, "seeds": one.seeds}
            for one in planned()
        ],
    }  # fmt: skip


def read_text(work: Path, request: TrainingRequest = REQUEST) -> LabelText:
    trained, judged = texts(work)
    return LabelText.of(str(trained), "llama", SETTINGS, request, note, str(judged))


def runs(sizes: Sequence[str]) -> list[tuple[Planned, int]]:
    """Return what is trained, in the order in which a part of it is of most use."""
    order = list(SIZES)
    pairs = [(one, seed) for one in planned() if one.size in sizes for seed in range(one.seeds)]
    return sorted(pairs, key=lambda pair: (order.index(pair[0].size), pair[1]))


def row(one: Planned, seed: int, label: Label, text: LabelText, request: TrainingRequest) -> dict[str, Any]:
    return {
        "id": one.id,
        "size": one.size,
        "line": one.line,
        "seed": seed,
        "architecture": one.architecture.choices,
        "shape": shape_text(one.architecture),
        "costs": CostModel(context=LENGTH).of(one.architecture),
        "losses": {str(tokens): loss for tokens, loss in sorted(label.losses.items())},
        "failure": label.failure,
        "rate": request.schedule.rate,
        "seconds": round(label.seconds, 1),
        "text": text.sha256,
        "versions": {"zerolm": zerolm.__version__, "torch": torch.__version__},
    }


def train_plan(work: Path, sizes: Sequence[str], workers: int) -> None:
    """Train what is not yet trained, and write a row of each as soon as it is."""
    text = read_text(work)
    wanted = json.loads(PLAN.read_text(encoding="utf-8"))["source"]["text_sha256"]
    if text.sha256 != wanted:
        raise SystemExit(f"the text made here has SHA-256 {text.sha256}, that of the plan {wanted}")
    pairs = runs(sizes)
    file = work / "rows.jsonl"
    written = {(told["id"], told["seed"]) for told in read_rows(file)}
    asked = [(one.architecture, seed, f"{one.id} seed {seed}") for one, seed in pairs]
    for place, label in labels_as_trained(asked, text, REQUEST, jobs=workers, progress=note):
        one, seed = pairs[place]
        if (one.id, seed) not in written:
            with file.open("a", encoding="utf-8") as opened:
                opened.write(json.dumps(row(one, seed, label, text, REQUEST)) + "\n")


def read_rows(file: Path) -> Iterator[dict[str, Any]]:
    """Yield the rows of a file; a line that a kill cut off is none."""
    for told in file.read_text(encoding="utf-8").splitlines() if file.is_file() else ():
        if told.endswith("}}"):
            yield json.loads(told)


def show_rates(work: Path, workers: int, batches: Sequence[int]) -> None:
    """Print the loss of three shapes by the rate."""
    shapes = [one for one in planned() if one.size == ".1M" and f"{one.line} {one.id.split()[1]}" in RATED]
    rows: list[list[str | float]] = []
    for batch in batches:
        losses: dict[tuple[int, float], float] = {}
        for rate in RATES:
            request = replace(REQUEST, tokens=TRIED, batch=batch, schedule=Schedule(rate))
            asked = [(one.architecture, 0, f"{one.id} at {rate:g}") for one in shapes]
            text = read_text(work, replace(request, tokens=TOKENS))
            for place, label in labels_as_trained(asked, text, request, jobs=workers, progress=note):
                losses[place, rate] = label.loss if label.losses else float("inf")
        for place, one in enumerate(shapes):
            cells = [f"{losses[place, rate]:.3f}" for rate in RATES]
            rows.append([f"{shape_text(one.architecture)}, {batch} x {LENGTH} a step", *cells])
    table(["", *(f"{rate:g}" for rate in RATES)], rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("work", type=Path, metavar="WORK")
    parser.add_argument("--size", nargs="+", choices=SIZES, default=list(SIZES))
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--plan", action="store_true", help="write the plan and stop")
    parser.add_argument("--rates", nargs="+", type=int, metavar="BATCH", help="try rates at these batches")
    given = parser.parse_args()
    one_thread()
    torch.set_num_threads(1)
    work = given.work.absolute()
    work.mkdir(parents=True, exist_ok=True)
    os.environ["ZEROLM_CACHE"] = str(work / "cache")
    if given.plan:
        FOLDER.mkdir(exist_ok=True)
        write_json(PLAN, plan_document(read_text(work)))
    elif given.rates:
        show_rates(work, given.workers, given.rates)
    else:
        train_plan(work, given.size, given.workers)


if __name__ == "__main__":
    main()
