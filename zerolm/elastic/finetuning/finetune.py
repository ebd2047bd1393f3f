"""From a model and rows of a task to the fine-tuned model on the disk."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import asdict
from functools import cached_property
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
from transformers import PreTrainedModel

import zerolm
from zerolm.elastic.finetuning.classes import Classification
from zerolm.elastic.finetuning.examples import Examples, Rounds
from zerolm.elastic.finetuning.learner import FineTuned, Task, TaskTeacher
from zerolm.elastic.finetuning.opened import digest, model_to_train, teacher_of, tokenizer_in
from zerolm.elastic.finetuning.request import HELD_OUT, Finetuned, FinetuneRequest
from zerolm.elastic.finetuning.rows import Row, read_rows
from zerolm.elastic.finetuning.spans import Spans
from zerolm.io.files import write_json
from zerolm.io.folders import check_new, new_folder, work_folder
from zerolm.networks.opener import quiet
from zerolm.progress import Progress, silent
from zerolm.training.randomness import seeded
from zerolm.training.request import Schedule, TrainingRequest
from zerolm.training.train import Trained, train
from zerolm.training.watch import TrainingRun

BATCH: Final = 32
WARMUP: Final = 0.1
TOLD: Final = "finetuning.json"
Finish = Callable[[Path, Finetuned], None]
"""Writes further files into the folder of a fine-tuned model."""
WEIGHT_DECAY: Final = 0.01
CARD: Final = """---
library_name: transformers
tags: [zerolm, {task}]
---

# {model}, fine-tuned

Fine-tuned by zerolm for {task} ({teacher}): {epochs} epochs of {train} rows in batches of {batch}, rate \
{rate:g}, seed {seed}.

{measures}

`finetuning.json` has all of it.
"""


def finetune(
    model: str | Path,
    request: FinetuneRequest,
    out: str | Path,
    *,
    teacher: str | Path | None = None,
    force: bool = False,
    finish: Finish | None = None,
    progress: Progress = silent,
) -> Finetuned:
    """Train an encoder or a decoder of transformers for a task, with a head, and write it.

    ``teacher`` is a folder with a model that was fine-tuned for the same task and has the same tokens. A run
    that was killed goes on to the same weights when it is started again. Raises ``ValueError``, in one line,
    for what cannot be done, and ``TrainingFailed`` where the loss is not finite.
    """
    quiet()
    check_new(Path(out), force)
    tuning = _Finetuning(Path(model), request, None if teacher is None else Path(teacher), progress)
    with work_folder(Path(out), tuning.identity, force) as work:
        tuned = tuning.tuned(work)
        with new_folder(Path(out), force) as folder:
            if finish:
                finish(folder, tuned)
            tuning.write(tuned, folder)
    return tuned


class _Finetuning:
    """One fine-tuning: its rows, its networks, and what is measured."""

    def __init__(
        self, folder: Path, request: FinetuneRequest, teacher: Path | None, progress: Progress
    ) -> None:
        self.folder, self.request, self.teacher, self.progress = folder, request, teacher, progress
        self.tokenizer = tokenizer_in(folder)

    @cached_property
    def rows(self) -> tuple[list[Row], list[Row]]:
        """The rows to train and to validate on."""
        data = self.request.data
        self.progress("reading the rows")
        optional = ["answer_start"] if data.task == "spans" else []
        rows = read_rows(data.train, data.named, optional)
        if data.validation is not None:
            return rows, read_rows(data.validation, data.named, optional)
        held = max(1, round(HELD_OUT * len(rows)))
        if held >= len(rows):
            raise ValueError(f"the data set {data.train!r} has {len(rows)} row; two are the least")
        drawn = np.random.default_rng(self.request.seed).permutation(len(rows)).tolist()
        return [rows[i] for i in sorted(drawn[held:])], [rows[i] for i in sorted(drawn[:held])]

    @cached_property
    def task(self) -> Task:
        """The task, with the classes of its rows."""
        data = self.request.data
        if data.task == "spans":
            return Spans.of(self.rows[0], *data.named)
        text, *pair, label = data.named
        return Classification.of(self.rows[0], text, pair[0] if pair else None, label)

    @cached_property
    def model(self) -> PreTrainedModel:
        """The model that is trained, in memory."""
        self.progress("opening the model")
        return model_to_train(self.folder, self.task, self.tokenizer, self.request.seed)

    @cached_property
    def examples(self) -> tuple[Examples, Examples]:
        """The rows as tensors; ``ValueError`` where there are fewer than a batch."""
        length = min(self.request.length, int(getattr(self.model.config, "max_position_embeddings", 1 << 30)))
        train, validation = (self.task.encode(rows, self.tokenizer, length) for rows in self.rows)
        if len(train) < self.request.batch:
            raise ValueError(
                f"there are {len(train)} rows to train on, fewer than a batch of {self.request.batch}: give "
                f"more rows, or a smaller --batch"
            )
        return train, validation

    @property
    def plan(self) -> TrainingRequest:
        """Return how long and how fast to train."""
        request, examples = self.request, self.examples[0]
        length = examples.tensors["input_ids"].shape[1]
        steps = max(1, request.epochs * len(examples) // request.batch)
        schedule = Schedule(request.rate, WARMUP, 1 - WARMUP, WEIGHT_DECAY)
        tokens = steps * request.batch * length
        return TrainingRequest(tokens, request.batch, length, schedule, request.seed, request.execution)

    @property
    def identity(self) -> dict[str, Any]:
        """Return what makes the run what it is: one with another does not go on with its checkpoints."""
        own = asdict(self.request)
        del own["data"]["train"], own["data"]["validation"]
        content = json.dumps(self.rows, sort_keys=True, default=str).encode()
        own |= {"rows": hashlib.sha256(content).hexdigest(), "model": digest(self.folder)}
        own |= {"steps": self.plan.steps, "zerolm": zerolm.__version__}
        return own | {"teacher": None if self.teacher is None else digest(self.teacher)}

    def tuned(self, work: Path) -> Finetuned:
        """Train the model in place."""
        model, plan, (train_on, validation) = self.model, self.plan, self.examples
        measures = {"before": self.measured(model), "baseline": self.task.baseline(self.rows[1])}
        teacher, kind, width = None, None, 0
        if self.teacher is not None:
            theirs = teacher_of(self.teacher, self.task, self.tokenizer)
            measures["teacher"] = self.measured(theirs)
            depth, bfloat16 = int(model.config.num_hidden_layers), self.request.execution.bfloat16
            teacher = TaskTeacher(theirs, self.task, train_on, depth, bfloat16)
            kind, width = self.request.distillation, int(theirs.config.hidden_size)
        with seeded(self.request.seed):
            learner = FineTuned(model, self.task, kind, width)
        data = Rounds(train_on, plan.sequences, plan.seed)
        run = TrainingRun(work, lambda: self.measured(model), self.progress)
        trained = train(learner, data, plan, run, teacher=teacher)
        model.cpu()
        measures["after"] = self.measured(model)
        return self._result(plan, trained, measures, len(validation))

    @torch.no_grad()
    def measured(self, model: PreTrainedModel) -> dict[str, float]:
        """Return the loss and the measures of the task on the rows to validate on."""
        examples, rows = self.examples[1], self.rows[1]
        was_training = model.training
        model.train(False)
        parts = []
        for first in range(0, len(examples), BATCH):
            inputs = {
                name: values.to(model.device)
                for name, values in examples.inputs(slice(first, first + BATCH)).items()
            }
            logits = self.task.logits(model(**inputs), inputs["attention_mask"])
            parts.append([part.cpu() for part in logits])
        model.train(was_training)
        every = [torch.cat(part) for part in zip(*parts, strict=True)]
        loss = float(self.task.loss(every, examples.tensors))
        return {"loss": loss, **self.task.measure(every, examples, rows, self.tokenizer)}

    def _result(
        self, plan: TrainingRequest, trained: Trained, measures: dict[str, dict[str, float]], held: int
    ) -> Finetuned:
        request = self.request
        return Finetuned(
            names={
                "task": request.data.task,
                "model": str(self.folder),
                "teacher": "" if self.teacher is None else str(self.teacher),
            },
            rows={"train": len(self.examples[0]), "validation": held},
            training={
                "epochs": request.epochs,
                "steps": plan.steps,
                "batch": request.batch,
                "length": plan.length,
                "rate": request.rate,
                "seed": request.seed,
                "distillation": request.distillation if self.teacher else None,
                "classes": getattr(self.task, "names", None),
                "seconds": round(trained.seconds, 1),
                "versions": {name: version(name) for name in ("torch", "transformers")},
            },
            measures=measures,
            curve=trained.rows,
        )

    def write(self, tuned: Finetuned, folder: Path) -> None:
        """Write the model, its tokenizer, its card and the result into an empty folder."""
        self.model.save_pretrained(folder)
        self.tokenizer.save_pretrained(folder)
        (folder / "README.md").write_text(_card(tuned), encoding="utf-8")
        document = {"format": "zerolm-finetuned", **tuned.to_json()}
        files = sorted([TOLD, *(file.name for file in folder.iterdir())])
        write_json(folder / TOLD, {**document, "files": files})


def _card(tuned: Finetuned) -> str:
    """Return the model card."""
    rows: Sequence[str] = [
        f"- {when}: " + ", ".join(f"{name} {value:.4g}" for name, value in values.items())
        for when, values in tuned.measures.items()
    ]
    teacher, how = Path(tuned.names["teacher"]).name, tuned.training["distillation"]
    return CARD.format(
        task=tuned.names["task"],
        model=Path(tuned.names["model"]).name,
        teacher=f"{how} distillation from {teacher}" if teacher else "without a teacher",
        train=tuned.rows["train"],
        measures=f"On {tuned.rows['validation']} rows that were not trained on:\n\n" + "\n".join(rows),
        **{name: tuned.training[name] for name in ("epochs", "batch", "rate", "seed")},
    )
