"""Classes of sequences, or of pairs of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional
from transformers import AutoModelForSequenceClassification, PreTrainedTokenizerBase

from zerolm.elastic.finetuning.examples import Examples, between, padded
from zerolm.elastic.finetuning.rows import Row


@dataclass(frozen=True)
class Classification:
    """The task of telling the class of a text: columns of the ``text``, of a second one (or none), and of the
    ``label``, and the names of the classes."""

    names: tuple[str, ...]
    text: str = "text"
    pair: str | None = None
    label: str = "label"
    maker = AutoModelForSequenceClassification
    metric = "accuracy"

    @classmethod
    def of(cls, rows: Sequence[Row], text: str, pair: str | None, label: str) -> Classification:
        """Return the task with the classes of these rows, in the order of their names."""
        names = sorted({str(row[label]) for row in rows})
        if len(names) < 2:
            raise ValueError(
                f"all labels in the column {label!r} are {names[0]!r}; there must be two classes"
            )
        return cls(tuple(names), text, pair, label)

    @property
    def config(self) -> dict[str, Any]:
        """Return what the model's configuration says of the task."""
        numbers = dict(enumerate(self.names))
        return {
            "num_labels": len(self.names),
            "id2label": numbers,
            "label2id": {name: number for number, name in numbers.items()},
            "problem_type": "single_label_classification",
        }

    def encode(self, rows: Sequence[Row], tokenizer: PreTrainedTokenizerBase, length: int) -> Examples:
        """Return rows as tensors, cut to ``length``; ``ValueError`` for a class that is not known."""
        numbers = {name: number for number, name in enumerate(self.names)}
        unknown = next((str(row[self.label]) for row in rows if str(row[self.label]) not in numbers), None)
        if unknown is not None:
            raise ValueError(f"label {unknown!r} is none of those to train on, {', '.join(self.names)}")
        first = [str(row[self.text]) for row in rows]
        texts = (
            [first] if self.pair is None else [between(tokenizer, first), [str(r[self.pair]) for r in rows]]
        )
        encoded = tokenizer(*texts, truncation=True, max_length=length)
        labels = torch.tensor([numbers[str(row[self.label])] for row in rows])
        return Examples(padded(encoded, tokenizer) | {"labels": labels})

    def logits(self, outputs: Any, padding: Tensor) -> tuple[Tensor, ...]:
        """Return the logits (b, classes) of a model's outputs."""
        return (outputs.logits.float(),)

    def loss(self, logits: Sequence[Tensor], labels: Mapping[str, Tensor]) -> Tensor:
        """Return the mean cross-entropy in nats."""
        return functional.cross_entropy(logits[0], labels["labels"])

    def measure(
        self,
        logits: Sequence[Tensor],
        examples: Examples,
        rows: Sequence[Row],
        tokenizer: PreTrainedTokenizerBase,
    ) -> dict[str, float]:
        """Return the share of right classes."""
        right = logits[0].argmax(-1) == examples.tensors["labels"]
        return {"accuracy": float(right.double().mean())}

    def baseline(self, rows: Sequence[Row]) -> dict[str, float]:
        """Return what the commonest class reaches."""
        counts = Counter(str(row[self.label]) for row in rows)
        return {"accuracy": max(counts.values()) / len(rows)}
