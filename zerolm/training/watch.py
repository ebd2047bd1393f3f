"""Reports of a run: measures on held-out text, a log of JSON lines, TensorBoard, and progress."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from torch import nn
from transformers import TrainerCallback

from zerolm.progress import Progress, silent
from zerolm.training.request import TrainingRequest

LOG: Final = "log.jsonl"
EVENTS: Final = "tensorboard"
Judge = Callable[[], Mapping[str, float]]
"""Measures the network as it stands on text that it is not trained on."""


@dataclass(frozen=True, eq=False)
class TrainingRun:
    """Where a run keeps its checkpoints and its log, and who is told of it."""

    folder: Path
    judge: Judge | None = None
    progress: Progress = silent


class TrainingWatch(TrainerCallback):
    """Measures, logs as JSON lines and to TensorBoard, and says how far it is."""

    def __init__(self, learner: nn.Module, request: TrainingRequest, run: TrainingRun) -> None:
        self.learner, self.request, self.run = learner, request, run
        self.parts: Mapping[str, float] = {}
        """The losses of the last batch by name."""
        self.rows: list[dict[str, int | float]] = []
        self._every = max(1, request.steps // request.measured)
        self._loss = math.nan
        self._events: Any = None

    def on_train_begin(self, args: Any, state: Any, control: Any, **more: Any) -> None:
        if not state.is_world_process_zero:
            return
        self._events = _events_in(self.run.folder, state.global_step)
        file = self.run.folder / LOG
        if file.is_file():
            lines = file.read_text(encoding="utf-8").splitlines()
            rows = [json.loads(line) for line in lines if line.endswith("}")]
            self.rows = [row for row in rows if row["step"] <= state.global_step]
        file.write_text("".join(f"{json.dumps(row)}\n" for row in self.rows), encoding="utf-8")
        if not self.rows:
            self._measure(state)

    def on_step_end(self, args: Any, state: Any, control: Any, **more: Any) -> None:
        step = state.global_step
        parts = self.parts
        loss = sum(parts.values())
        self._loss = loss if math.isnan(self._loss) else 0.9 * self._loss + 0.1 * loss
        if step % self._every == 0 or step == self.request.steps:
            self._measure(state, parts)
        self.run.progress(f"training, loss {self._loss:.3f}{self._told()}", step, self.request.steps)

    def _told(self) -> str:
        last = self.rows[-1] if self.rows else {}
        name = next((name for name in ("kl", "cosine", "perplexity") if name in last), None)
        return f", {name} {last[name]:.3g} on text held out" if name else ""

    def _measure(self, state: Any, parts: Mapping[str, float] | None = None) -> None:
        """Log a row, with what the judge says; the others wait for the first process."""
        if not state.is_world_process_zero:
            return
        step = state.global_step
        row: dict[str, int | float] = {"step": step, "tokens": step * self.request.step_tokens}
        row |= {f"loss_{name}": value for name, value in (parts or {}).items()}
        if self.run.judge is not None:
            self.learner.train(False)
            row |= self.run.judge()
            self.learner.train()
        self.rows.append(row)
        with (self.run.folder / LOG).open("a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")
        if self._events is not None:
            for name, value in row.items():
                self._events.add_scalar(name, value, step)
            self._events.flush()


def _events_in(folder: Path, step: int) -> Any:
    """Return a writer of TensorBoard's events from a step on; None where that is not installed."""
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ModuleNotFoundError:
        return None
    return SummaryWriter(str(folder / EVENTS), purge_step=step)
