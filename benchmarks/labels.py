"""Labels from training: ``python benchmarks/labels.py WORK`` measures in parts and writes ``labels.md``.

Every part is kept in WORK once it is measured, so a run that was stopped goes on. The text is the standard
library without the modules that ``corpus.py`` holds out. One process, one thread.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import redirect_stdout
from dataclasses import replace
from io import StringIO
from pathlib import Path
from typing import Any, Final
from unittest.mock import patch

import torch
from corpus import library, seen_files
from parts import Parts
from timing import machine, note, one_thread, stopwatch, table
from transformers import PrinterCallback, Trainer, TrainingArguments

import zerolm.training.labels as labels_module
from zerolm.architecture import Architecture
from zerolm.networks.build import build
from zerolm.networks.network import Network
from zerolm.text.predictions import Predictions
from zerolm.training.labels import LabelRun, LabelText, LabelTraining
from zerolm.training.learner import Labelled, total
from zerolm.training.request import Schedule, TrainingRequest
from zerolm.training.scaling import Groups, ScaledLogits

PLACE: Final = Path(__file__).with_suffix(".md")
RATES: Final = (0.001, 0.002, 0.004, 0.008)
WIDTHS: Final = (48, 96, 192)
DEPTHS: Final = (2, 8)
KINDS: Final = ("muP", "one rate")
VOCAB: Final = 512
REQUEST: Final = TrainingRequest(65_536, 8, 64, Schedule(0.002), checkpoints=1, measured=1)
SPACE: Final = {
    "depth": "2:6", "hidden": "48:128:16", "head_size": "16", "ffn": "96:512:16", "heads_per_kv": "1,2",
    "hidden_per_depth": "8:64", "ffn_per_hidden": "1:5",
}  # fmt: skip
WITHIN: Final = {"min_body_params": "200k", "max_body_params": "400k"}
TOKENS, COUNT, SEEDS, REPEATED = 100_000, 24, 3, 6
KILLED_AFTER: Final = (3, 11)
"""How many architectures are finished when the command is killed, the first time and the second."""
SINGLE: Final = 3


def one_rate(network: Network, width: int, rate: float) -> tuple[ScaledLogits, Groups]:
    """Return a network as it is drawn, all of it at one rate."""
    return ScaledLogits(network.module, 1.0), [{"params": list(network.module.parameters()), "lr": rate}]


def text_folder(work: Path) -> Path:
    """Return a folder of the modules to train on."""
    folder = work / "text"
    if not folder.exists():
        folder.mkdir(parents=True)
        for file in seen_files():
            name = file.relative_to(library()).as_posix().replace("/", "_")
            (folder / name).write_text(file.read_text("utf-8", errors="replace"), encoding="utf-8")
    return folder


def label_text(work: Path) -> LabelText:
    settings = {
        "head_size": [16],
        "hidden": list(WIDTHS),
        "heads_per_kv": [1],
        "depth": [1],
        "ffn": [128],
    } | {"vocab": VOCAB}
    wide = {"hidden_per_depth": (1, 1000), "ffn_per_hidden": (0.5, 10)}
    return LabelText.of(str(text_folder(work)), "llama", settings | wide, REQUEST, note)


def llama(text: LabelText, depth: int, hidden: int) -> Architecture:
    heads = hidden // 16
    ffn = 8 * hidden // 3
    sizes = {"depth": depth, "hidden": hidden, "head_size": 16, "heads": heads, "kv_heads": heads, "ffn": ffn}
    return text.space.read(sizes)


def parts(work: Path) -> Parts:
    return Parts(work / "parts.jsonl")


def loss(text: LabelText, architecture: Architecture, rate: float, kind: str) -> float:
    """Return the loss on text held out after training at a rate."""
    training = LabelTraining(text, replace(REQUEST, schedule=Schedule(rate)))
    with tempfile.TemporaryDirectory() as folder:
        run = LabelRun(architecture, 0, Path(folder), "one")
        if kind == "muP":
            label = training(run)
        else:
            with patch.object(labels_module, "scaled", one_rate):
                label = training(run)
    return label.loss if label.losses else float("inf")


def sweep(work: Path, shapes: Sequence[tuple[int, int]], kind: str) -> list[list[str | float]]:
    """Return rows of losses by rate, one a shape of depth and width."""
    text = label_text(work)
    rows: list[list[str | float]] = []
    for depth, hidden in shapes:
        losses = []
        for rate in RATES:
            part = f"rate-{kind.replace(' ', '-')}-{depth}-{hidden}-{rate:g}"
            shape = llama(text, depth, hidden)
            losses.append(parts(work).measured(part, lambda s=shape, r=rate: loss(text, s, r, kind)))
        best = RATES[losses.index(min(losses))]
        cells = [f"**{value:.3f}**" if value == min(losses) else f"{value:.3f}" for value in losses]
        rows.append([f"{kind}, {depth} x {hidden}", *cells, f"{best:g}"])
    return rows


def sweeps(work: Path) -> None:
    print("## The rate by width\n")
    print(
        f"Llamas with heads of 16, FFN 8/3 of the width, {REQUEST.tokens:,} tokens in steps of "
        f"{REQUEST.batch} x {REQUEST.length}, vocabulary {VOCAB}, one seed: loss on text held out by the "
        "rate. muP is what `bench train` does: rates are for width 256. One rate is what it would be "
        "without: deviations of .02 and the same rate for all parameters, whatever the width.\n"
    )
    shapes = [(3, width) for width in WIDTHS]
    rows = [row for kind in KINDS for row in sweep(work, shapes, kind)]
    table(["", *(f"{rate:g}" for rate in RATES), "best"], rows)
    print("By depth, which muP of the width says nothing of:\n")
    table(["", *(f"{rate:g}" for rate in RATES), "best"], sweep(work, [(d, 64) for d in DEPTHS], "muP"))


class _Plain(torch.nn.Module):
    """A learner as the stock trainer takes it."""

    def __init__(self, learner: Labelled) -> None:
        super().__init__()
        self.learner = learner

    def forward(self, input_ids: torch.Tensor, labels: torch.Tensor) -> dict[str, torch.Tensor]:
        return {"loss": total(self.learner(input_ids, labels))}


def stock_trainer(text: LabelText, architecture: Architecture) -> None:
    """Train as ``transformers.Trainer`` does by itself: the same network, steps and batches."""
    learner = Labelled(one_rate(build(architecture, 0), 0, 0.002)[0], text.classes)
    data = Predictions(text.corpus, REQUEST.sequences, 0, text.task, text.mask)
    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(
            output_dir=folder, max_steps=REQUEST.steps, per_device_train_batch_size=REQUEST.batch,
            bf16=REQUEST.execution.bfloat16,
            learning_rate=0.002, use_cpu=True, save_strategy="no", report_to=[], disable_tqdm=True,
            logging_strategy="no", remove_unused_columns=False,
        )  # fmt: skip
        trainer = Trainer(_Plain(learner), arguments, train_dataset=data)
        trainer.remove_callback(PrinterCallback)
        trainer.train()


def trainers(work: Path) -> None:
    text = label_text(work)
    shape = llama(text, 4, 80)

    def compare() -> dict[str, float]:
        training = LabelTraining(text, REQUEST)
        own, stock = [], []
        for _ in range(SINGLE):
            with tempfile.TemporaryDirectory() as folder:
                run = LabelRun(shape, 0, Path(folder), "one")
                own.append(stopwatch(lambda run=run: training(run))[0])
            stock.append(stopwatch(lambda: stock_trainer(text, shape))[0])
        return {"own": sorted(own)[SINGLE // 2], "stock": sorted(stock)[SINGLE // 2]}

    seconds = parts(work).measured("trainers", compare)
    print("## One architecture against the stock trainer\n")
    print(
        f"A llama of 4 x 80, {REQUEST.steps} steps of {REQUEST.batch} x {REQUEST.length} tokens: "
        f"median of {SINGLE} runs in turn, seconds of the processor. `bench train` has measured the loss on "
        "text held out before and after, and written a checkpoint; the stock trainer only trains.\n"
    )
    rows = [["bench train", f"{seconds['own']:.1f}"], ["transformers.Trainer", f"{seconds['stock']:.1f}"]]
    table(["", "seconds"], rows)


def command(*words: str) -> list[str]:
    return [sys.executable, "-m", "zerolm", *words]


def labels_file(work: Path) -> dict[str, Any]:
    """Train the architectures, killed twice on the way, and return what the command prints."""
    out = work / "mine.json"
    flags = [f"--{name.replace('_', '-')}={value}" for name, value in (SPACE | WITHIN).items()]
    flags += [
        f"--count={COUNT}",
        f"--tokens={TOKENS}",
        f"--batch={REQUEST.batch}",
        f"--length={REQUEST.length}",
        f"--vocab={VOCAB}",
    ]
    flags += [f"--seeds={SEEDS}", f"--repeated={REPEATED}", f"--text={text_folder(work)}", f"--out={out}"]
    words = command("bench", "train", "llama", *flags, "--json")
    cache = work / "cache"
    environment = os.environ | {"ZEROLM_CACHE": str(cache)}
    done = lambda: len(list((cache / "labels").glob("*/*.json")))  # noqa: E731
    for finished in KILLED_AFTER:
        with subprocess.Popen(words, env=environment, stdout=subprocess.DEVNULL) as process:
            while done() < finished and process.poll() is None:
                time.sleep(0.1)
            process.send_signal(signal.SIGKILL)
    ran = subprocess.run(words, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(ran.stdout)


def use(work: Path, *words: str) -> str:
    environment = os.environ | {"COLUMNS": "100"}
    ran = subprocess.run(command(*words), env=environment, stdout=subprocess.PIPE, text=True, check=True)
    return ran.stdout


def show(work: Path) -> None:
    document = parts(work).measured("labels", lambda: labels_file(work))
    rows, noise, source = document["rows"], document["noise"], document["benchmark"]["source"]
    sizes = [row["body_params"] for row in rows]
    print("## Twenty-four llamas\n")
    print(
        f"{len(rows)} architectures of `llama` drawn with {min(sizes):,} to {max(sizes):,} body parameters, "
        f"{source['tokens']:,} tokens each in steps of {REQUEST.batch} x {REQUEST.length}, vocabulary "
        f"{source['vocabulary']}, {source['precision']}, {noise['networks']} of them from {SEEDS} seeds; "
        f"the command was killed after {KILLED_AFTER[0]} and after {KILLED_AFTER[1]} architectures and "
        f"started again. {sum(row['seconds'] for row in rows):,.0f} seconds of training, beside other work. "
        f"Losses from {min(row['loss'] for row in rows):.4f} to {max(row['loss'] for row in rows):.4f}.\n"
    )
    deviation, between = noise["deviation"], noise["tau_between_seeds"]
    print(
        f"Noise: a deviation of {deviation:.4f} between seeds; a perfect score would reach a tau-b of "
        f"{noise['tau']:.3f}; two seeds order the repeated ones with a tau-b of {between:.3f}.\n"
    )
    table(["score", "tau-b with the losses"], [[n, f"{t:.3f}"] for n, t in document["agreement"].items()])
    ordered = sorted(rows, key=lambda row: row["loss"])
    cells = [[row["shape"], f"{row['body_params']:,}", f"{row['loss']:.4f}"] for row in ordered]
    table(["architecture", "body", "loss"], cells)
    file = str(work / "mine.json")
    print("`zerolm calibrate --labels mine.json`:\n")
    calibrated = parts(work).measured("calibrate", lambda: use(work, "calibrate", "--labels", file))
    print(f"```text\n{calibrated}```\n")
    flags = [f"--{name.replace('_', '-')}={value}" for name, value in SPACE.items()]
    words = ("search", "llama", *flags, f"--vocab={VOCAB}", "--max-body-params=300k", "--labels", file)
    shown = parts(work).measured("search", lambda: use(work, *words)).splitlines()[:4]
    print("`zerolm search llama --labels mine.json --max-body-params 300k` with the same ranges:\n")
    print("```text\n" + "\n".join(shown) + "\n```\n")


def main() -> None:
    one_thread()
    torch.set_num_threads(1)
    work = Path(sys.argv[1]).absolute()
    work.mkdir(parents=True, exist_ok=True)
    parts = {"sweeps": sweeps, "trainers": trainers, "show": show}
    chosen = sys.argv[2:] or list(parts)
    os.environ["ZEROLM_CACHE"] = str(work / "cache")
    page = StringIO()
    with redirect_stdout(page):
        print("# Labels from training\n")
        print(f"`python benchmarks/labels.py WORK`; {machine()}, torch {torch.__version__}.\n")
        for part in chosen:
            parts[part](work)
    print(page.getvalue(), end="")
    if len(chosen) == len(parts):
        PLACE.write_text(page.getvalue().rstrip() + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
