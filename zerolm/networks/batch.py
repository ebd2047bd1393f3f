"""Batches of samples and labels, and the loss of a network on them."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Final

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

NOTHING: Final = -100
"""The label of a position where nothing is predicted."""
IMAGE: Final = (3, 224, 224)
"""Channels, height and width of an image."""


@dataclass(frozen=True, eq=False)
class Batch:
    """Samples and what is to be predicted of them.

    ``inputs`` are token ids (n, t) or images (n, 3, h, w); ``labels`` (n, t), ``NOTHING`` where nothing is
    predicted, or (n,) for images. The softmax runs over the first ``classes``, None for all. ``source``
    says in words where the samples come from.
    """

    inputs: Tensor
    labels: Tensor
    classes: int | None
    source: str

    def __len__(self) -> int:
        return len(self.inputs)

    def micro(self, parts: int) -> list[Batch]:
        """Equal consecutive parts; ``ValueError`` unless ``parts`` divides the batch."""
        if parts < 1 or len(self) % parts:
            possible = ", ".join(str(k) for k in range(1, len(self) + 1) if len(self) % k == 0)
            raise ValueError(
                f"a batch of {len(self)} does not fall into {parts} equal micro-batches; {possible} do"
            )
        pairs = zip(self.inputs.chunk(parts), self.labels.chunk(parts), strict=True)
        return [Batch(inputs, labels, self.classes, self.source) for inputs, labels in pairs]

    def to(self, device: torch.device | str) -> Batch:
        return Batch(self.inputs.to(device), self.labels.to(device), self.classes, self.source)

    def digest(self) -> str:
        content = b"".join(
            repr((tuple(x.shape), str(x.dtype))).encode() + x.cpu().contiguous().numpy().tobytes()
            for x in (self.inputs, self.labels)
        )
        return hashlib.sha256(content + repr(self.classes).encode()).hexdigest()


def loss(logits: Tensor, batch: Batch) -> Tensor:
    """Mean cross-entropy, in nats, over what is predicted: logits (n, t, v) or (n, v)."""
    return cross_entropy(logits.flatten(0, -2), batch.labels.flatten(), ignore_index=NOTHING)
