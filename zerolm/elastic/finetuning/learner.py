"""A model with the losses of a task, of its labels and of a teacher's predictions and hidden states."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from zerolm.elastic.distillation import OF_PREDICTIONS, FeatureDistillation, Features, Kind, compared
from zerolm.elastic.finetuning.classes import Classification
from zerolm.elastic.finetuning.examples import LABELS, Examples
from zerolm.elastic.finetuning.spans import Spans
from zerolm.training.teacher import half_precision

Task = Classification | Spans


class FineTuned(nn.Module):
    """A model of transformers with a head for a task, and its losses.

    With a ``kind`` of distillation and the teacher's hidden size, matrices that are learned too bring the
    hidden states to that size.
    """

    def __init__(self, model: PreTrainedModel, task: Task, kind: Kind | None = None, theirs: int = 0) -> None:
        super().__init__()
        self.model, self.task, self.kind = model, task, kind
        hidden = int(model.config.hidden_size), theirs
        self.distillation = FeatureDistillation(kind, hidden, {}) if kind else None

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor,
        hidden: Sequence[Tensor] | None = None,
        predictions: Sequence[Tensor] | None = None,
        **more: Tensor,
    ) -> dict[str, Tensor]:
        """Return the losses by name of a batch; ``hidden`` and ``predictions`` are the teacher's."""
        labels: dict[str, Tensor] = {name: more.pop(name) for name in LABELS if name in more}
        inputs = {"input_ids": input_ids, "attention_mask": attention_mask, **more}
        outputs: Any = self.model(**inputs, output_hidden_states=hidden is not None)
        logits = self.task.logits(outputs, attention_mask)
        losses = {"labels": self.task.loss(logits, labels)}
        if self.kind and predictions is not None:
            compare = OF_PREDICTIONS[self.kind]
            parts = [compare(own, other, 1.0) for own, other in zip(logits, predictions, strict=True)]
            losses["predictions"] = torch.stack(parts).mean()
        if self.distillation is not None and hidden is not None:
            ours, theirs = (Features(states[0], (), states[1:]) for states in (outputs.hidden_states, hidden))
            losses |= self.distillation(ours, theirs, (), attention_mask)
        return losses


class TaskTeacher:
    """A model that was fine-tuned for the task: its predictions and its hidden states."""

    def __init__(
        self, model: PreTrainedModel, task: Task, examples: Examples, depth: int, bfloat16: bool
    ) -> None:
        self.model, self.task, self.examples, self.bfloat16 = model, task, examples, bfloat16
        self.depth = depth
        model.train(False).requires_grad_(False)

    @torch.no_grad()
    def signals(self, ids: Tensor, numbers: Tensor) -> dict[str, Any]:
        """Return ``predictions`` and ``hidden`` states of the examples with these numbers."""
        if self.model.device != ids.device:
            self.model.to(ids.device)  # type: ignore[arg-type]
        inputs = {name: values.to(ids.device) for name, values in self.examples.inputs(numbers.cpu()).items()}
        with half_precision(ids.device, self.bfloat16):
            outputs: Any = self.model(**inputs, output_hidden_states=True)
        first, *layers = outputs.hidden_states
        hidden = [first, *(layers[i] for i in compared(self.depth, len(layers)))]
        return {"hidden": hidden, "predictions": self.task.logits(outputs, inputs["attention_mask"])}
