"""Tasks of lm-evaluation-harness, on a child and on its parent (``zerolm[tasks]``)."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass
from difflib import get_close_matches
from importlib import import_module
from pathlib import Path
from typing import Any, Final

from transformers import AutoTokenizer

from zerolm.checkpoints import Checkpoint
from zerolm.evaluation.comparable import opened
from zerolm.evaluation.evaluated import TaskRow
from zerolm.networks.compute import Compute, as_noted, compute, put_on
from zerolm.networks.opener import is_decoder, open_model
from zerolm.progress import Progress, silent
from zerolm.settings.compute import USUALLY, RunningRequest

TASK_BATCH: Final = 8
TaskValue = tuple[float, float | None, int]
"""The value that one network reached, its standard error if there is one, and the number of samples."""


@dataclass(frozen=True)
class Tasks:
    """Tasks that the harness knows, and the child and the parent to run them on.

    A task is one that the harness knows by name, whose data it fetches from the hub, or a YAML file of its
    kind. Such a file may name code that the harness then runs: give none that you do not trust. Code of a
    hub is never run.
    """

    names: tuple[str, ...]
    child: Checkpoint
    parent: Checkpoint
    harness: Any
    manager: Any
    compute: Compute

    @classmethod
    def of(
        cls, names: Sequence[str], child: str | Path, parent: str | Path, request: RunningRequest = USUALLY
    ) -> Tasks:
        """``ValueError`` for what is not known or not comparable, ``ModuleNotFoundError`` without harness."""
        running = compute(request)
        both = opened(child, parent)
        if not is_decoder(both[1]):
            raise ValueError(f"tasks need a decoder, not a {both[1].family.name}: give --text FILE alone")
        harness = _harness()
        return cls(tuple(dict.fromkeys(names)), *both, harness, _manager(harness, names), running)

    def compared(self, *, limit: int | None = None, progress: Progress = silent) -> list[TaskRow]:
        """Return all metrics on at most ``limit`` samples of a task, one network in memory at a time."""
        progress("running the tasks on the child")
        child_values = self._values(self.child, limit)
        progress("running the tasks on the parent")
        parent_values = self._values(self.parent, limit)
        return [
            TaskRow(task, metric, mine[2], *mine[:2], *whole[:2])
            for (task, metric), mine in child_values.items()
            if (whole := parent_values.get((task, metric)))
        ]

    def _values(self, checkpoint: Checkpoint, limit: int | None) -> dict[tuple[str, str], TaskValue]:
        model = put_on(open_model(checkpoint), self.compute)
        try:
            with _quiet(), as_noted(model):
                tokenizer = AutoTokenizer.from_pretrained(
                    self.parent.folder, local_files_only=True, trust_remote_code=False
                )
                wrapped = self.harness.models.huggingface.HFLM(
                    model, "causal", tokenizer=tokenizer, batch_size=TASK_BATCH, trust_remote_code=False
                )
                results = self.harness.simple_evaluate(
                    wrapped, tasks=list(self.names), task_manager=self.manager, limit=limit, log_samples=False
                )
        except Exception as error:  # tasks and their data fail in every way that there is
            reason = " ".join(str(error).split())[:300] or type(error).__name__
            raise ValueError(f"lm-evaluation-harness cannot run {', '.join(self.names)}: {reason}") from None
        return {
            (task, metric): value
            for task, metrics in results["results"].items()
            for metric, value in _metrics(metrics, results["n-samples"].get(task, {}))
        }


def _harness() -> Any:
    try:
        import_module("lm_eval.models.huggingface")
        import_module("lm_eval.tasks")
        harness = import_module("lm_eval")
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            f"tasks need lm-evaluation-harness (there is no {error.name}): pip install 'zerolm[tasks]'"
        ) from None
    return harness


@contextmanager
def _quiet() -> Iterator[None]:
    """Nothing is logged, and what is printed goes to stderr, as the harness's progress does."""
    before = logging.root.manager.disable
    import_module("datasets").disable_progress_bars()
    logging.disable(logging.CRITICAL)
    try:
        with redirect_stdout(sys.stderr):
            yield
    finally:
        logging.disable(before)


def _manager(harness: Any, tasks: Sequence[str]) -> Any:
    """Return the finder of tasks; ``ValueError`` names the first that is not known."""
    files = [task for task in tasks if task.endswith((".yaml", ".yml"))]
    with _quiet():
        manager = harness.tasks.TaskManager(include_defaults=len(files) < len(tasks))
    for task in tasks:
        if task in files and not Path(task).is_file():
            raise ValueError(f"task file {task!r} does not exist")
        if task not in files and task not in manager.all_tasks:
            near = get_close_matches(task, manager.all_tasks, n=3)
            raise ValueError(
                f"task {task!r} is not known to lm-evaluation-harness"
                + (f"; near it are {', '.join(near)}" if near else "; a file's name ends in .yaml")
            )
    return manager


def _metrics(results: Mapping[str, Any], samples: Mapping[str, int]) -> Iterator[tuple[str, TaskValue]]:
    """Return the metrics of a task: numbers named ``acc,none``, with ``acc_stderr,none``."""
    for key, value in results.items():
        metric, comma, rule = key.partition(",")
        if not comma or metric.endswith("_stderr") or not isinstance(value, int | float):
            continue
        stderr = results.get(f"{metric}_stderr,{rule}")
        name = metric if rule == "none" else f"{metric} ({rule})"
        error = float(stderr) if isinstance(stderr, int | float) else None
        yield name, (float(value), error, int(samples.get("effective", 0)))
