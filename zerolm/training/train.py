"""One function that trains: ``transformers.Trainer`` with a fixed order and checkpoints that resume."""

from __future__ import annotations

import json
import math
import shutil
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import safetensors.torch
import torch
from accelerate.utils import broadcast
from safetensors import SafetensorError
from torch import Tensor, nn
from torch.utils.data import Dataset, default_collate
from transformers import PreTrainedModel, PrinterCallback, Trainer, TrainingArguments

from zerolm.io.full_disk import free, is_full, reason
from zerolm.networks.opener import quiet
from zerolm.progress import TrainingFailed as TrainingFailed
from zerolm.text.corpus import Sequences
from zerolm.training.learner import Teacher, total
from zerolm.training.processes import WAIT, check_whole, device_for, processes
from zerolm.training.randomness import seeded
from zerolm.training.request import Execution, TrainingRequest, micro_batch
from zerolm.training.teacher import half_precision
from zerolm.training.watch import TrainingRun, TrainingWatch

STATE: Final = "trainer_state.json"
WEIGHTS: Final = "model.safetensors"
CLIP: Final = 1.0
BETAS: Final = (0.9, 0.95)
TRIALS: Final = 5
"""Batches that are tried; the first is not timed: it allocates what the others use again."""
Groups = Sequence[Mapping[str, Any]]
"""Groups of parameters with their learning rates, as torch's optimisers take them."""


@dataclass(frozen=True)
class Trained:
    """The outcome of a run: ``rows`` of its log (``step``, ``tokens``, losses, measures), steps, and seconds.

    ``seconds`` are those of this process: one that resumed has fewer.
    """

    seconds: float
    steps: int
    rows: list[dict[str, int | float]] = field(default_factory=list)


def train(
    learner: nn.Module,
    data: Dataset[dict[str, Tensor]],
    request: TrainingRequest,
    run: TrainingRun,
    *,
    teacher: Teacher | None = None,
    groups: Groups | None = None,
) -> Trained:
    """Train a network in place by AdamW and return its outcome.

    ``learner(**batch)`` gives its losses by name. A run that was killed goes on from the last checkpoint in
    the folder, to the same weights. Under ``accelerate launch`` every process takes its part of each batch.
    Raises ``TrainingFailed`` where the loss is not finite: the weights are then those of the last checkpoint.
    """
    quiet()
    check_whole()
    begun = time.monotonic()
    with seeded(request.seed):
        watch = TrainingWatch(learner, request, run)
        trainer = _Trainer(learner, data, _arguments(request, run.folder), teacher, groups, watch)
        trainer.add_callback(watch)
        last = last_checkpoint(run.folder)
        try:
            trainer.train(resume_from_checkpoint=None if last is None else str(last))
        except TrainingFailed:
            good = last_checkpoint(run.folder)
            if good is not None:
                safetensors.torch.load_model(learner, good / WEIGHTS)
            raise
    return Trained(time.monotonic() - begun, trainer.state.global_step, watch.rows)


def step_seconds(
    learner: nn.Module, batches: Sequences, teacher: Teacher | None, execution: Execution
) -> float:
    """Return the seconds of forward and backward passes over a batch, the mean of ``TRIALS`` - 1.

    ``batches`` are ``TRIALS`` of the same number of sequences. No weight is changed.
    """
    device = device_for(execution)
    learner.to(device)
    size, begun = len(batches) // TRIALS, 0.0
    for trial in range(TRIALS):
        batch = default_collate([batches[trial * size + place] for place in range(size)])
        ids = batch["input_ids"].to(device)
        signals = teacher.signals(ids, batch["number"]) if teacher else {}
        with half_precision(device, execution.bfloat16):
            loss = total(learner(ids, **signals))
        loss.backward()  # type: ignore[no-untyped-call]
        float(loss.detach())
        learner.zero_grad(set_to_none=True)
        begun = begun or time.perf_counter()
    return (time.perf_counter() - begun) / (TRIALS - 1)


def recompute_activations(model: PreTrainedModel) -> None:
    """Have the backward pass compute activations within layers again, so that they take no memory."""
    enable = getattr(model, "activation_checkpointing_enable", None)  # its name since transformers 5.23
    (enable or model.gradient_checkpointing_enable)({"use_reentrant": False})


def last_checkpoint(folder: Path) -> Path | None:
    """Return the newest complete checkpoint of a run, if any; incomplete ones are removed."""
    complete: dict[int, Path] = {}
    for place in folder.glob("checkpoint-*"):
        number = place.name.removeprefix("checkpoint-")
        if number.isdecimal() and _is_complete(place):
            complete[int(number)] = place
        elif number.isdecimal():
            shutil.rmtree(place, ignore_errors=True)
    return complete[max(complete)] if complete else None


def _is_complete(checkpoint: Path) -> bool:
    """Return whether the state, which is written last, is there and whole."""
    try:
        json.loads((checkpoint / STATE).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    return (checkpoint / WEIGHTS).is_file()


def _arguments(request: TrainingRequest, folder: Path) -> TrainingArguments:
    execution, schedule, steps = request.execution, request.schedule, request.most_steps
    sequences = micro_batch(request.batch, processes().num_processes, execution.accumulate)
    device = device_for(execution)
    arguments = TrainingArguments(
        output_dir=str(folder),
        max_steps=steps,
        per_device_train_batch_size=sequences,
        gradient_accumulation_steps=execution.accumulate,
        learning_rate=schedule.rate,
        lr_scheduler_type="warmup_stable_decay",
        lr_scheduler_kwargs={
            "num_decay_steps": max(1, round(schedule.decay * steps)),
            "decay_type": "linear",
        },
        warmup_steps=max(1, round(schedule.warmup * steps)),
        weight_decay=schedule.weight_decay,
        adam_beta1=BETAS[0],
        adam_beta2=BETAS[1],
        max_grad_norm=CLIP,
        bf16=execution.bfloat16,
        use_cpu=device.type == "cpu",
        torch_compile=execution.compile,
        save_strategy="steps" if request.seconds is None else "no",  # by time the watch has it saved
        save_steps=max(1, steps // request.checkpoints),
        save_total_limit=2,
        logging_strategy="steps",
        logging_steps=max(1, steps // 100),
        seed=request.seed,
        train_sampling_strategy="sequential",
        remove_unused_columns=False,
        dataloader_pin_memory=device.type == "cuda",
        disable_tqdm=True,
        report_to=[],
        ddp_find_unused_parameters=False,
        ddp_timeout=int(WAIT.total_seconds()),
    )
    arguments._n_gpu = min(1, arguments._n_gpu)  # else one process would share a batch among all devices
    if processes().num_processes == 1:  # by themselves transformers and accelerate take the first GPU
        arguments.__dict__["_setup_devices"] = device
        arguments.distributed_state.device = device
        if device.type == "cuda":
            torch.cuda.set_device(device)
    return arguments


class _Trainer(Trainer):
    """The stock trainer, whose losses come by name and whose teacher, if any, is asked for each batch."""

    def __init__(
        self,
        learner: nn.Module,
        data: Dataset[dict[str, Tensor]],
        arguments: TrainingArguments,
        teacher: Teacher | None,
        groups: Groups | None,
        watch: TrainingWatch,
    ) -> None:
        self.teacher, self.groups, self.watch = teacher, groups, watch
        self.learner = learner
        super().__init__(learner, arguments, train_dataset=data)
        self.remove_callback(PrinterCallback)

    def create_optimizer(self, model: Any = None) -> torch.optim.Optimizer:
        """Return AdamW over the groups that were given, else over all parameters."""
        schedule = self.watch.request.schedule
        trained = [parameter for parameter in self.learner.parameters() if parameter.requires_grad]
        self.optimizer = torch.optim.AdamW(
            [dict(group) for group in self.groups] if self.groups else trained,
            lr=schedule.rate,
            betas=BETAS,
            weight_decay=schedule.weight_decay,
            fused=True,
        )
        return self.optimizer

    def create_scheduler(self, num_training_steps: int, optimizer: Any = None) -> Any:
        """Return the schedule of steps, or, of a run by time, that of the time."""
        if self.watch.request.seconds is None:
            return super().create_scheduler(num_training_steps, optimizer)
        schedule = self.watch.request.schedule
        assert self.optimizer is not None
        self.lr_scheduler = torch.optim.lr_scheduler.LambdaLR(
            self.optimizer, lambda _: schedule.factor(self.watch.share)
        )
        return self.lr_scheduler

    def compute_loss(
        self,
        model: nn.Module,
        inputs: dict[str, Any],
        return_outputs: bool = False,
        num_items_in_batch: Tensor | int | None = None,
    ) -> Any:
        numbers = inputs.pop("number", None)
        signals = self.teacher.signals(inputs["input_ids"], numbers) if self.teacher else {}
        losses = model(**inputs, **signals)
        loss = total(losses)
        parts = torch.stack([part.detach() for part in losses.values()])
        spent = parts.new_tensor(self.watch.time_spent())
        if self.accelerator.num_processes > 1:  # all stop where one has to, and have one rate
            parts, spent = self.accelerator.reduce(parts, "mean"), broadcast(spent)
        self.watch.parts, self.watch.spent = dict(zip(losses, parts.tolist(), strict=True)), float(spent)
        if not math.isfinite(sum(self.watch.parts.values())):
            raise TrainingFailed(
                f"the loss is {sum(self.watch.parts.values())} at step {self.state.global_step + 1}"
            )
        return loss

    def _save_checkpoint(self, *arguments: Any, **more: Any) -> None:
        try:
            super()._save_checkpoint(*arguments, **more)
        except TrainingFailed:
            raise
        except (OSError, RuntimeError, SafetensorError) as error:  # torch and safetensors have their own
            folder, step = Path(str(self.args.output_dir)), self.state.global_step
            shutil.rmtree(folder / f"checkpoint-{step}", ignore_errors=True)
            words = " ".join(str(error).split())[:300]
            moments = 2  # of weights that are trained
            needed = sum(p.nbytes * (1 + moments * p.requires_grad) for p in self.learner.parameters())
            if is_full(error) or needed > free(folder):
                words = reason(folder, needed)
            raise OSError(
                f"the checkpoint of step {step} cannot be written: {words}; those before it are left: make "
                f"room for {str(folder)!r} and start again"
            ) from None

    def _save(self, output_dir: str | None = None, state_dict: dict[str, Any] | None = None) -> None:
        if not self.args.should_save:
            return
        folder = Path(output_dir or str(self.args.output_dir))
        if not all(bool(torch.isfinite(parameter).all()) for parameter in self.learner.parameters()):
            raise TrainingFailed(f"the weights are not finite at step {self.state.global_step}")
        folder.mkdir(parents=True, exist_ok=True)
        safetensors.torch.save_model(self.learner, str(folder / WEIGHTS))

    def _load_from_checkpoint(self, resume_from_checkpoint: str, model: Any = None) -> None:
        safetensors.torch.load_model(self.learner, str(Path(resume_from_checkpoint) / WEIGHTS), strict=False)
