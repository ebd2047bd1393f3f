"""The ground truth ``llama_small``: ``python benchmarks/llama_small.py WORK`` trains what the plan lacks.

``--plan`` writes ``llama_small/plan.json``: llama-shaped networks of three body sizes in a designed cross,
with the seeds that each is trained from. Without it the plan is trained, the smallest size first and every
shape of a size from seed 0 before any from seed 1. A network that is finished is a line of WORK/rows.jsonl,
never lost; one that was killed goes on from its last checkpoint. ``--publish`` copies the finished rows to
``llama_small/rows.jsonl`` and writes the benchmark that comes with the package, ``--again 2`` trains two of
them again, ``--rates`` measures which rate suits.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
from small_text import texts
from timing import note, one_thread, table

import zerolm
from zerolm.architecture import Architecture
from zerolm.costs import CostModel
from zerolm.groundtruth.truth import check
from zerolm.io.files import store, write_json
from zerolm.spaces import make_space, shape_text
from zerolm.statistics import noise_ceiling
from zerolm.training.labels import Label, LabelText, labels_as_trained, train_all
from zerolm.training.request import Execution, Schedule, TrainingRequest

FOLDER: Final = Path(__file__).with_suffix("")
PLAN: Final = FOLDER / "plan.json"
SHIPPED: Final = Path(zerolm.__file__).parent / "groundtruth" / "shipped" / "llama_small.json"
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
RATED: Final = ("1x80", "11x24")
TRIED: Final = 1_000_000
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
    rows = read_rows(file)
    write_rows(file, rows)
    written = {(told["id"], told["seed"]) for told in rows}
    asked = [(one.architecture, seed, f"{one.id} seed {seed}") for one, seed in pairs]
    for place, label in labels_as_trained(asked, text, REQUEST, jobs=workers, progress=note):
        one, seed = pairs[place]
        if (one.id, seed) not in written:
            with file.open("a", encoding="utf-8") as opened:
                opened.write(json.dumps(row(one, seed, label, text, REQUEST)) + "\n")


def read_rows(file: Path) -> list[dict[str, Any]]:
    """Return the rows of a file; a line that a kill cut off is none."""
    lines = file.read_text(encoding="utf-8").splitlines() if file.is_file() else []
    return [json.loads(told) for told in lines if told.endswith("}}")]


def write_rows(file: Path, rows: Sequence[dict[str, Any]]) -> None:
    store({file: "".join(f"{json.dumps(told)}\n" for told in rows)})


def publish(work: Path) -> None:
    """Copy the rows so far, and write the benchmark that comes with the package."""
    rows = read_rows(work / "rows.jsonl")
    FOLDER.mkdir(exist_ok=True)
    write_rows(FOLDER / "rows.jsonl", rows)
    write_json(SHIPPED, benchmark(rows))


def benchmark(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return rows in the format of benchmark files: the run of the first seed, the others as repeats.

    ``noise`` has for each size the ceiling of tau-b among its architectures, by the seeds.
    """
    by_id: dict[str, list[dict[str, Any]]] = {}
    for told in sorted(rows, key=lambda told: told["seed"]):
        if told["losses"]:
            by_id.setdefault(told["id"], []).append(told)
    entries = []
    for one in planned():
        first, *others = [results(told) for told in by_id.get(one.id, [])] or [{}]
        if first:
            repeats = {name: [other[name] for other in others] for name in first if others}
            entries.append(
                {"id": one.id, "group": one.size, "line": one.line, "architecture": one.architecture.choices,
                 "results": first, **({"repeats": repeats} if repeats else {})}
            )  # fmt: skip
    known = {key: rows[0][key] for key in ("text", "rate", "versions")}
    document = {
        "name": "llama_small",
        "space": "llama",
        "settings": SETTINGS,
        "task": "loss on unseen Python and English text after 3 million tokens, in nats a token",
        "metric": "loss",
        "higher_is_better": False,
        "source": {
            "made_by": "benchmarks/llama_small.py", "licence": "Apache-2.0", "text_sha256": known["text"],
            "rate": known["rate"], **known["versions"], "tokens": REQUEST.steps * REQUEST.step_tokens,
            "noise": {size: noise([e for e in entries if e["group"] == size]) for size in SIZES},
        },
        "fields": {
            "group": "about so many body parameters, within 1 %",
            "line": "what the architecture varies beside the base of its size",
            "loss after N tokens": "of the same run, before its rate decayed",
        },
        "count": len(entries),
        "architectures": entries,
    }  # fmt: skip
    check(document)
    return document


def results(told: dict[str, Any]) -> dict[str, float]:
    """Return the losses of a row by the names that ``bench train`` gives them."""
    *earlier, last = sorted(map(int, told["losses"]))
    after = {f"loss after {tokens} tokens": told["losses"][str(tokens)] for tokens in earlier}
    return {"loss": told["losses"][str(last)], **after}


def noise(entries: Sequence[dict[str, Any]]) -> dict[str, float | int] | None:
    """Return the ceiling of tau-b by repeated runs and their deviation; None without repeats."""
    runs = [
        (loss, place)
        for place, entry in enumerate(entries)
        for loss in (entry["results"]["loss"], *entry.get("repeats", {}).get("loss", ()))
    ]
    losses, places = (np.array(column) for column in zip(*runs, strict=True)) if runs else (np.zeros(0),) * 2
    ceiling = noise_ceiling(-losses, places.astype(np.int64)) if runs else None
    return None if ceiling is None else asdict(ceiling)


def check_again(work: Path, count: int) -> None:
    """Train some of the finished networks again, from nothing, and print both losses."""
    told = [one for one in read_rows(work / "rows.jsonl") if one["losses"]]
    drawn = np.random.default_rng(0).permutation(len(told))[:count].tolist()
    architectures = {one.id: one.architecture for one in planned()}
    asked = [(architectures[told[i]["id"]], told[i]["seed"], told[i]["id"]) for i in drawn]
    text = read_text(work)
    with tempfile.TemporaryDirectory() as cache:
        os.environ["ZEROLM_CACHE"] = cache
        labels = train_all(asked, text, REQUEST, progress=note)
    rows: list[list[str | float]] = []
    for i, label in zip(drawn, labels, strict=True):
        first = results(told[i])["loss"]
        cells = [f"{first:.4f}", f"{label.loss:.4f}", f"{abs(first - label.loss):.1e}"]
        rows.append([f"{told[i]['id']} seed {told[i]['seed']}", *cells])
    table(["network", "loss", "again", "difference"], rows)


def show_rates(work: Path, workers: int, batches: Sequence[int]) -> None:
    """Print the loss of the ends of the smallest size's line of depth by the rate."""
    shapes = [one for one in planned() if one.line == "depth" and one.id.split()[1] in RATED]
    text = read_text(work)
    rows: list[list[str | float]] = []
    for batch in batches:
        losses: dict[tuple[int, float], float] = {}
        for rate in RATES:
            request = replace(REQUEST, tokens=TRIED, batch=batch, schedule=Schedule(rate), measured=1)
            asked = [(one.architecture, 0, f"{one.id} at {rate:g}") for one in shapes]
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
    parser.add_argument("--publish", action="store_true", help="write what is finished into the package")
    parser.add_argument("--again", type=int, metavar="COUNT", help="train so many finished ones again")
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
    elif given.publish:
        publish(work)
    elif given.again:
        check_again(work, given.again)
    elif given.rates:
        show_rates(work, given.workers, given.rates)
    else:
        train_plan(work, given.size, given.workers)


if __name__ == "__main__":
    main()
