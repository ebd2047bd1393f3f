"""Networks with the losses that they are trained by."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, Protocol

import torch
from torch import Tensor, nn

from zerolm.networks.pooling import TokenPooling
from zerolm.settings import check_known
from zerolm.text.line_corpus import without_padding
from zerolm.training.losses import (
    dist,
    forward_kl,
    labelled,
    next_token,
    relative_mse,
    reverse_kl,
    standardised,
    top_kl,
)

LOSSES: Final = {
    "next-token": "cross-entropy of the next token of the text",
    "kl": "KL(teacher || student) of the predictions",
    "reverse-kl": "KL(student || teacher) of the predictions",
    "dist": "Pearson correlations of the predictions, by row and by column (DIST)",
    "hidden": "standardised hidden states of every layer (PKD, ELM)",
    "mse": "squared difference of the hidden states of every layer",
    "embedding": "distance of the embeddings of sentences: 1 - cosine, where they are compared by it",
}
OF_STATES: Final = {"hidden": standardised, "mse": relative_mse}
EMBEDDING: Final = "embedding"
OF_TEACHER: Final = ("kl", "reverse-kl", "dist", *OF_STATES, EMBEDDING)
CACHEABLE: Final = ("next-token", "kl")
"""Losses that the teacher's likeliest tokens are enough for."""


@dataclass(frozen=True)
class Objective:
    """The losses by name with their weights, and the temperature of the teacher's predictions."""

    weights: Mapping[str, float]
    temperature: float = 1.0
    layers: tuple[tuple[int, int], ...] = field(default=())
    """Pairs of hidden states that are compared, student's and teacher's, for ``hidden``."""
    pooling: TokenPooling | None = None
    """How the last states of sentences become embeddings; None where what is read are no sentences."""
    every: int = 1
    """One position in ``every`` is predicted: a large vocabulary costs more than all layers."""

    def __post_init__(self) -> None:
        for name in self.weights or ("",):
            check_known("loss", name, LOSSES)

    @property
    def hidden(self) -> bool:
        return any(name in (*OF_STATES, EMBEDDING) for name in self.weights)

    def inputs(self, ids: Tensor) -> dict[str, Tensor]:
        """Return a model's inputs for sequences (b, t)."""
        if self.pooling is not None:
            return without_padding(ids)
        places = self._places(ids)
        return {"input_ids": ids} if places is None else {"input_ids": ids, "logits_to_keep": places}

    def _places(self, ids: Tensor) -> Tensor | None:
        """Return the positions (p,) that are predicted in sequences (b, t), None for all.

        The first of them differs between batches, but is the same for student and teacher. The last token is
        not predicted from.
        """
        count = (ids.shape[1] - 1) // self.every
        if self.every == 1 or count == 0:
            return None
        return torch.arange(count, device=ids.device) * self.every + ids.sum() % self.every


class Teacher(Protocol):
    """Gives what the losses need of a batch."""

    def signals(self, ids: Tensor, numbers: Tensor) -> dict[str, Any]:
        """Return further inputs of the student for sequences (b, t) with these numbers (b,)."""


class Student(nn.Module):
    """A causal language model or an encoder of transformers, with losses.

    ``widths`` are the hidden sizes of student and teacher; where they differ, one matrix (d_s, d_t) that is
    learned too stands between the hidden states.
    """

    def __init__(self, model: nn.Module, objective: Objective, widths: tuple[int, int] | None = None) -> None:
        super().__init__()
        self.model, self.objective = model, objective
        width, teacher_width = widths or (0, 0)
        self.fit = (
            nn.Linear(width, teacher_width, bias=False)
            if objective.hidden and width != teacher_width
            else None
        )
        if set(objective.weights) == {"hidden"}:
            _leave_head_alone(model)

    def forward(
        self,
        input_ids: Tensor,
        logits: Tensor | None = None,
        log_p: Tensor | None = None,
        ids: Tensor | None = None,
        hidden: Sequence[Tensor] | None = None,
    ) -> dict[str, Tensor]:
        """Return each loss of sequences (b, t), weighted.

        Of the teacher ``logits`` (b, t, v), or ``log_p`` and ``ids`` (b, t, k), and ``hidden`` states.
        """
        inputs = self.objective.inputs(input_ids)
        outputs: Any = self.model(**inputs, use_cache=False, output_hidden_states=self.objective.hidden)
        losses, mask, places = {}, inputs.get("attention_mask"), inputs.get("logits_to_keep")
        for name, weight in self.objective.weights.items():
            if name in OF_STATES:
                assert hidden is not None
                loss = OF_STATES[name](self._fitted(outputs.hidden_states), hidden, mask)
            elif name == EMBEDDING:
                assert hidden is not None
                loss = self._embedded(self._fitted(outputs.hidden_states)[-1], hidden[-1], mask)
            else:
                loss = self._predicted(name, outputs.logits, input_ids, logits, log_p, ids, places)
            losses[name] = weight * loss
        return losses

    @torch.no_grad()
    def balance(self, ids: Tensor, numbers: Tensor, teacher: Teacher) -> None:
        """Weight the losses so that on this batch (b, t) each is as large as the first.

        The matrix between hidden sizes begins with the least squares of the teacher's states on the child's.
        """
        signals = teacher.signals(ids, numbers)
        if self.fit is not None:
            inputs = self.objective.inputs(ids)
            outputs: Any = self.model(**inputs, use_cache=False, output_hidden_states=True)
            states = torch.cat(
                [outputs.hidden_states[place].flatten(0, 1) for place, _ in self.objective.layers]
            )
            teacher_states = torch.cat([state.flatten(0, 1) for state in signals["hidden"]])
            self.fit.weight.copy_(torch.linalg.lstsq(states.double(), teacher_states.double()).solution.T)
        losses = {name: float(loss) for name, loss in self(ids, **signals).items()}
        first = next(iter(losses.values()))
        weights = {
            name: weight * first / losses[name] if losses[name] > 0 else weight
            for name, weight in self.objective.weights.items()
        }
        self.objective = replace(self.objective, weights=weights)

    def _fitted(self, states: Sequence[Tensor]) -> list[Tensor]:
        compared = [states[place] for place, _ in self.objective.layers]
        return compared if self.fit is None else [self.fit(state) for state in compared]

    def _embedded(self, states: Tensor, teacher_states: Tensor, mask: Tensor | None) -> Tensor:
        pooling = self.objective.pooling
        assert pooling is not None
        assert mask is not None
        return pooling.distances(pooling(states, mask).float(), pooling(teacher_states, mask).float()).mean()

    def _predicted(
        self,
        name: str,
        student_logits: Tensor,
        input_ids: Tensor,
        logits: Tensor | None,
        log_p: Tensor | None,
        ids: Tensor | None,
        places: Tensor | None,
    ) -> Tensor:
        temperature = self.objective.temperature
        if name == "next-token" and places is not None:
            return labelled(student_logits, input_ids[:, places + 1])
        if name == "next-token":
            return next_token(student_logits, input_ids)
        if log_p is not None and ids is not None:
            kept = slice(None) if places is None else places
            return top_kl(student_logits, log_p[:, kept], ids[:, kept], temperature)
        assert logits is not None
        return {"kl": forward_kl, "reverse-kl": reverse_kl, "dist": dist}[name](
            student_logits, logits, temperature
        )


def _leave_head_alone(model: Any) -> None:
    """Train nothing behind the last hidden state: processes would wait for gradients that no loss gives."""
    shared = {id(parameter) for parameter in model.get_input_embeddings().parameters()}
    for part in (model.get_output_embeddings(), getattr(model, "pooler", None)):
        for parameter in () if part is None else part.parameters():
            if id(parameter) not in shared:
                parameter.requires_grad_(False)


class Labelled(nn.Module):
    """A network of a space, trained from scratch: ``module(inputs, classes)`` gives logits (b, t, v)."""

    def __init__(self, module: nn.Module, classes: int | None) -> None:
        super().__init__()
        self.module, self.classes = module, classes
        self._loss = labelled

    def forward(self, input_ids: Tensor, labels: Tensor) -> dict[str, Tensor]:
        """Return the cross-entropy of what is labelled in sequences (b, t)."""
        return {"cross-entropy": self._loss(self.module(input_ids, self.classes), labels)}

    def compile_parts(self) -> None:
        """Compile the layers and the loss in place: layers of one shape are compiled once.

        As a whole a deep network would take minutes. What another network left compiled is forgotten, for
        torch goes on without compiling after a few shapes.
        """
        torch.compiler.reset()
        stacks = [part for part in self.modules() if isinstance(part, nn.ModuleList)]
        for layer in (layer for stack in stacks for layer in stack):
            layer.compile(dynamic=False)
        self._loss = torch.compile(labelled, dynamic=False)


def total(losses: Mapping[str, Tensor]) -> Tensor:
    return torch.stack(list(losses.values())).sum()
