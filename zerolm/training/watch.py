"""Reports of a run: measures on held-out text, a log of JSON lines, TensorBoard, and progress."""

from __future__ import annotations

import json
import math
import time
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
    """Where a run keeps its checkpoints and its log, and its receiver of progress."""

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
        self.spent = 0.0
        """Seconds of training so far, as all processes have it."""
        self._begun = self._before = 0.0
        self._every = max(1, request.steps // request.measured)
        self._loss = math.nan
        self._events: Any = None
        self._part = 0
        """How many parts of the time are behind: a run by time is measured and kept behind each."""

    @property
    def share(self) -> float:
        """The share of a run by time that is behind at the end of a step."""
        return min(1.0, self.spent / (self.request.seconds or math.inf) + 1 / self.request.steps)

    def time_spent(self) -> float:
        """Return the seconds of this process in training, those before it was killed included."""
        return self._before + time.monotonic() - self._begun

    def on_train_begin(self, args: Any, state: Any, control: Any, **more: Any) -> None:
        self._begun = time.monotonic()
        if not state.is_world_process_zero:
            return
        self._events = _events_in(self.run.folder, state.global_step)
        file = self.run.folder / LOG
        if file.is_file():
            lines = file.read_text(encoding="utf-8").splitlines()
            rows = [json.loads(line) for line in lines if line.endswith("}")]
            self.rows = [row for row in rows if row["step"] <= state.global_step]
            self._before = self.rows[-1].get("seconds", 0.0) if self.rows else 0.0
        file.write_text("".join(f"{json.dumps(row)}\n" for row in self.rows), encoding="utf-8")
        if not self.rows:
            self._measure(state)

    def on_step_end(self, args: Any, state: Any, control: Any, **more: Any) -> None:
        step = state.global_step
        parts = self.parts
        loss = sum(parts.values())
        self._loss = loss if math.isnan(self._loss) else 0.9 * self._loss + 0.1 * loss
        due, is_last, done, of = self._due(step)
        if self.request.seconds is not None:
            control.should_training_stop = control.should_training_stop or is_last
            control.should_save = control.should_save or due
        if due or is_last:
            self._measure(state, parts)
        self.run.progress(f"training, loss {self._loss:.3f}{self._measured_text()}", done, of)

    def _due(self, step: int) -> tuple[bool, bool, int, int]:
        """Return whether to measure behind a step, whether it is the last, and what is done of how much."""
        request, is_last = self.request, step == self.request.most_steps
        if request.seconds is None:
            return step % self._every == 0, is_last, step, request.steps
        share = min(1.0, self.spent / request.seconds)
        part = math.floor(share * request.measured)
        due, self._part = part > self._part, part
        return due, is_last or share >= 1, round(self.spent * 1000), round(request.seconds * 1000)

    def _measured_text(self) -> str:
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
        if self.request.seconds is not None:
            row["seconds"] = round(self.spent, 3)
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
