"""The ground truth ``llama_small``: ``python benchmarks/llama_small.py WORK`` trains what the plan lacks.

``--plan`` writes ``llama_small/plan.json``: llama-shaped networks of three body sizes in a designed cross,
with the seeds that each is trained from. Without it the plan is trained, the smallest size first and every
shape of a size from seed 0 before any from seed 1. A network that is finished is a line of
``llama_small/rows.jsonl`` and not trained again, with another WORK neither; one that was killed goes on from
its last checkpoint in WORK. ``--publish`` writes the benchmark of the finished rows that comes with the
package, ``--again 2`` trains two of them again. ``--blocks`` plans, trains and trains
again the plan of ``llama_small_blocks.py`` (``llama_small/blocks.json``, rows in ``blocks.jsonl``),
``--longer`` some of the llamas with three times as many tokens (``longer.json``, ``longer.jsonl``),
``--longer-batch``, ``--longer-small`` and ``--longer-large`` four depths of a size, for ``aspect.py``;
``--depth-rule RULE --rate RATE`` the base and the deepest of each size with branches and rates by depth;
these come with no package. ``--seeds 1`` trains the first seed alone. ``llama_small_page.py`` tries rates,
times steps and writes the page.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
from llama_small_blocks import planned_blocks
from llama_small_plan import SETTINGS, SIZES, Planned, planned, planned_depths, planned_ends, planned_longer
from small_text import texts
from timing import note, one_thread, processor, table

import zerolm
from zerolm.costs import CostModel
from zerolm.groundtruth.truth import check
from zerolm.io.files import replacing, write_json
from zerolm.settings.compute import TrainedOn
from zerolm.spaces import shape_text
from zerolm.statistics import noise_ceiling
from zerolm.training.labels import Label, LabelText, labels_as_trained, train_all
from zerolm.training.request import DEPTH_RULES, Execution, Schedule, TrainingRequest

FOLDER: Final = Path(__file__).with_suffix("")
SHIPPED: Final = Path(zerolm.__file__).parent / "groundtruth" / "shipped" / "llama_small.json"
TOKENS, BATCH, LENGTH = 3_000_000, 32, 128
RATE: Final = 0.004
REQUEST: Final = TrainingRequest(
    TOKENS, BATCH, LENGTH, Schedule(RATE), execution=Execution(TrainedOn(dtype="bfloat16"), compile=True),
    checkpoints=8, measured=4,
)  # fmt: skip


@dataclass(frozen=True)
class Plan:
    """What is trained: architectures of a space, a file of them and one of their rows.

    ``times`` as many tokens as those of ``REQUEST``, in steps of ``batches`` times as many, at its ``rate``.
    """

    name: str
    space: str
    planned: Callable[[], list[Planned]]
    file: str
    rows: str
    times: int = 1
    batches: int = 1
    rate: float | None = None
    depth_rule: str = "none"

    @property
    def request(self) -> TrainingRequest:
        tokens, schedule = self.times * REQUEST.tokens, REQUEST.schedule
        schedule = schedule if self.rate is None else replace(schedule, rate=self.rate)
        return replace(
            REQUEST,
            tokens=tokens,
            batch=self.batches * REQUEST.batch,
            schedule=schedule,
            depth_rule=self.depth_rule,
        )


LLAMA: Final = Plan("llama_small", "llama", planned, "plan.json", "rows.jsonl")
BLOCKS: Final = Plan("llama_small_blocks", "blocks", planned_blocks, "blocks.json", "blocks.jsonl")
LONGER: Final = Plan("llama_small_longer", "llama", planned_longer, "longer.json", "longer.jsonl", times=3)
LONGER_BATCH: Final = Plan(
    "llama_small_longer_batch", "llama", partial(planned_depths, ".3M"), "longer_batch.json",
    "longer_batch.jsonl", times=3, batches=3,
)  # fmt: skip
"""Three times the tokens in as many steps as the short runs."""
LONGER_SMALL: Final = Plan(
    "llama_small_longer_small", "llama", partial(planned_depths, ".1M"), "longer_small.json",
    "longer_small.jsonl", times=3,
)  # fmt: skip
LONGER_LARGE: Final = Plan(
    "llama_small_longer_large", "llama", partial(planned_depths, "1M"), "longer_large.json",
    "longer_large.jsonl", times=3,
)  # fmt: skip
RULED: Final = Plan(
    "llama_small_depth_rule", "llama", planned_ends, "depth_rule.json", "depth_rule.jsonl"
)  # fmt: skip
"""Trained with a rule of depth at several rates."""
PLANS: Final = {
    "blocks": BLOCKS, "longer": LONGER, "longer-batch": LONGER_BATCH, "longer-small": LONGER_SMALL,
    "longer-large": LONGER_LARGE,
}  # fmt: skip
"""What is trained beside the cross, by its flag."""


def plan_document(text: LabelText, plan: Plan = LLAMA) -> dict[str, Any]:
    """Return the plan in the format of benchmark files, so that ``bench train --rows`` takes it too."""
    return {
        "name": plan.name,
        "space": plan.space,
        "settings": SETTINGS,
        "task": "next token of Python and English text",
        "metric": None,
        "higher_is_better": None,
        "source": {"text_sha256": text.sha256, "rate": RATE, "tokens": tokens_of(plan.request),
                   **({} if plan.batches == 1 else {"batch": plan.request.batch})},
        "architectures": [
            {"id": one.id, "architecture": one.architecture.choices, "results": {}, "size": one.size,
             "line": one.line, "seeds": one.seeds, **({"against": one.against} if one.against else {})}
            for one in plan.planned()
        ],
    }  # fmt: skip


def tokens_of(request: TrainingRequest) -> int:
    """Return the tokens that are trained on, in whole steps."""
    return request.steps * request.step_tokens


def read_text(work: Path, plan: Plan = LLAMA) -> LabelText:
    trained, judged = texts(work)
    return LabelText.of(str(trained), "llama", SETTINGS, plan.request, note, str(judged))


def runs(sizes: Sequence[str], plan: Plan = LLAMA, seeds: int | None = None) -> list[tuple[Planned, int]]:
    """Return what is trained, of the first ``seeds``, in the order in which a part of it is of most use."""
    order = list(SIZES)
    pairs = [(one, seed) for one in plan.planned() if one.size in sizes for seed in range(one.seeds)[:seeds]]
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
        **({} if request.depth_rule == "none" else {"depth_rule": request.depth_rule}),
        "seconds": round(label.seconds, 1),
        "text": text.sha256,
        "processor": processor(),
        "versions": {"zerolm": zerolm.__version__, "torch": torch.__version__},
    }


def train_plan(
    work: Path, sizes: Sequence[str], workers: int, plan: Plan = LLAMA, seeds: int | None = None
) -> None:
    """Train what is not yet trained, and write a row of each as soon as it is."""
    text = read_text(work, plan)
    wanted = json.loads((FOLDER / plan.file).read_text(encoding="utf-8"))["source"]["text_sha256"]
    if text.sha256 != wanted:
        raise SystemExit(f"the text made here has SHA-256 {text.sha256}, that of the plan {wanted}")
    file = FOLDER / plan.rows
    rows = read_rows(file)
    write_rows(file, rows)
    way = (plan.request.schedule.rate, plan.depth_rule)
    written = {
        (told["id"], told["seed"]) for told in rows if (told["rate"], told.get("depth_rule", "none")) == way
    }
    pairs = [(one, seed) for one, seed in runs(sizes, plan, seeds) if (one.id, seed) not in written]
    asked = [(one.architecture, seed, f"{one.id} seed {seed}") for one, seed in pairs]
    for place, label in labels_as_trained(asked, text, plan.request, jobs=workers, progress=note):
        with file.open("a", encoding="utf-8") as opened:
            opened.write(json.dumps(row(*pairs[place], label, text, plan.request)) + "\n")


def read_rows(file: Path) -> list[dict[str, Any]]:
    """Return the rows of a file; a line that a kill cut off is none."""
    lines = file.read_text(encoding="utf-8").splitlines() if file.is_file() else []
    return [json.loads(told) for told in lines if told.endswith("}}")]


def write_rows(file: Path, rows: Sequence[dict[str, Any]]) -> None:
    with replacing(file) as out:
        out.writelines(f"{json.dumps(each)}\n".encode() for each in rows)


def finished(rows: Iterable[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    """Return the rows that have losses by their architectures, in the order of seeds."""
    by_id: dict[str, list[dict[str, Any]]] = {}
    for told in sorted(rows, key=lambda told: told["seed"]):
        if told["losses"]:
            by_id.setdefault(told["id"], []).append(told)
    return by_id


def publish() -> None:
    """Write the benchmark of the llamas so far that comes with the package."""
    write_json(SHIPPED, benchmark(read_rows(FOLDER / LLAMA.rows)))


def benchmark(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return rows in the format of benchmark files: the run of the first seed, the others as repeats.

    ``noise`` has for each size the ceiling of tau-b among its architectures, by the seeds.
    """
    by_id, entries = finished(rows), []
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
            "rate": known["rate"], **known["versions"], "tokens": tokens_of(REQUEST),
            "noise": {size: noise([e for e in entries if e["group"] == size]) for size in SIZES},
        },
        "fields": {
            "group": "about so many body parameters, within 1 %",
            "line": "what the architecture varies beside the base of its size",
            "loss after N tokens": "of the same run, whose rate falls over the last half of the tokens",
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


def check_again(work: Path, count: int, plan: Plan = LLAMA) -> None:
    """Train some of the finished networks again, from nothing, and print both losses."""
    told = [one for one in read_rows(FOLDER / plan.rows) if one["losses"]]
    drawn = np.random.default_rng(0).permutation(len(told))[:count].tolist()
    architectures = {one.id: one.architecture for one in plan.planned()}
    asked = [(architectures[told[i]["id"]], told[i]["seed"], told[i]["id"]) for i in drawn]
    text = read_text(work, plan)
    with tempfile.TemporaryDirectory() as cache:
        os.environ["ZEROLM_CACHE"] = cache
        labels = train_all(asked, text, plan.request, progress=note)
    rows: list[list[str | float]] = []
    for i, label in zip(drawn, labels, strict=True):
        first = results(told[i])["loss"]
        cells = [f"{first:.4f}", f"{label.loss:.4f}", f"{abs(first - label.loss):.1e}"]
        rows.append([f"{told[i]['id']} seed {told[i]['seed']}", *cells])
    table(["network", "loss", "again", "difference"], rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("work", type=Path, metavar="WORK")
    parser.add_argument("--size", nargs="+", choices=SIZES, default=list(SIZES))
    parser.add_argument("--workers", type=int, default=1)
    plans = parser.add_mutually_exclusive_group()
    plans.set_defaults(of=LLAMA)
    for name, of in PLANS.items():
        plans.add_argument(f"--{name}", action="store_const", dest="of", const=of, help=f"the plan {of.name}")
    plans.add_argument("--depth-rule", choices=DEPTH_RULES, help=f"the plan {RULED.name}, by this rule")
    parser.add_argument("--rate", type=float, default=RATE, help="at width 256, of --depth-rule")
    parser.add_argument("--seeds", type=int, help="train so many of the seeds of each, else all")
    parser.add_argument("--plan", action="store_true", help="write the plan and stop")
    parser.add_argument("--publish", action="store_true", help="write what is finished into the package")
    parser.add_argument("--again", type=int, metavar="COUNT", help="train so many finished ones again")
    given = parser.parse_args()
    plan: Plan = given.of
    if given.depth_rule:
        plan = replace(RULED, depth_rule=given.depth_rule, rate=given.rate)
    if given.publish and plan is not LLAMA:
        parser.error(f"--publish writes llama_small; {plan.name} comes with no package")
    one_thread()
    torch.set_num_threads(1)
    work = given.work.absolute()
    work.mkdir(parents=True, exist_ok=True)
    os.environ["ZEROLM_CACHE"] = str(work / "cache")
    if given.plan:
        FOLDER.mkdir(exist_ok=True)
        write_json(FOLDER / plan.file, plan_document(read_text(work, plan), plan))
    elif given.publish:
        publish()
    elif given.again:
        check_again(work, given.again, plan)
    else:
        train_plan(work, given.size, given.workers, plan, given.seeds)


if __name__ == "__main__":
    main()
