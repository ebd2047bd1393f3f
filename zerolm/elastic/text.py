"""A text as supernets and their paths are trained on it, and the loss of a network on what is held out."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Final

import torch
from torch import Tensor
from transformers import PreTrainedTokenizerBase

from zerolm.networks.network import Task
from zerolm.networks.opener import stock_tokenizer
from zerolm.progress import Progress, silent
from zerolm.spaces.choices import integer
from zerolm.spaces.elastic import Elastic
from zerolm.text.corpus import HELD, Corpus, edges, token_file
from zerolm.text.predictions import Predictions, predicted, tokenizer_of
from zerolm.training.losses import labelled
from zerolm.training.request import TrainingRequest

BATCH: Final = 16
"""Sequences that are held out are measured so many at a time."""
VOCABULARY: Final = 8192


@dataclass(frozen=True, eq=False)
class ElasticText:
    """A text by a tokenizer, and what is predicted of it: the next token, or masked ones (80/10/10, BERT)."""

    corpus: Corpus
    tokenizer: PreTrainedTokenizerBase
    task: Task
    most: int

    @classmethod
    def of(
        cls,
        source: str,
        task: Task,
        *,
        length: int,
        batch: int,
        most: int,
        tokenizer: Path | None = None,
        vocabulary: int = VOCABULARY,
        progress: Progress = silent,
    ) -> ElasticText:
        """Return ``most`` tokens of a text in sequences of ``length``.

        By the tokenizer of a folder, or by one of so many tokens that is trained on the text.
        ``ValueError`` where the text is too short for one batch and what is held out, or nothing can mask.
        """
        if tokenizer is None:
            progress("training a tokenizer")
        read = tokenizer_of(source, vocabulary) if tokenizer is None else stock_tokenizer(tokenizer)
        if task == "masked" and read.mask_token_id is None:
            raise ValueError(
                "the tokenizer has no mask token, and an encoder is trained to predict masked ones"
            )
        start, end = edges(read)
        corpus = Corpus((token_file(source, read, most, progress),), length, start, end)
        ((train, _),) = corpus.counts
        if train < batch:
            raise ValueError(
                f"the text {source!r} has {train} sequences of {length} tokens to train on, a batch {batch}: "
                f"give more text, or --batch {train} at most"
            )
        return cls(corpus, read, task, most)

    @property
    def told(self) -> dict[str, Any]:
        """Return where the text is from and how it is cut, so that what is held out stays so: plain JSON."""
        (text,) = self.corpus.texts
        return {"source": text.source, "sha256": text.sha256, "most": self.most, "length": self.corpus.length}

    @property
    def sha256(self) -> str:
        return self.corpus.texts[0].sha256

    @property
    def mask(self) -> int:
        mask = self.tokenizer.mask_token_id
        return mask if isinstance(mask, int) else 0

    def data(self, request: TrainingRequest) -> Predictions:
        """Return the sequences of a run, in order, with their labels."""
        vocabulary = len(self.tokenizer)
        return Predictions(self.corpus, request.sequences, request.seed, self.task, self.mask, vocabulary)

    @cached_property
    def held_out(self) -> tuple[Tensor, Tensor]:
        """Return inputs and labels (n, t) that are never trained on; all that is predicted is masked."""
        own = (len(self.corpus.start), len(self.corpus.end))
        return predicted(self.corpus.held_out().ids, self.task, self.mask, edges=own)

    def loss(self, network: Callable[[Tensor], Tensor], device: Any = "cpu") -> float:
        """Return the mean cross-entropy, in nats, of what is predicted on text that is held out."""
        return mean_loss(network, *self.held_out, device)


@torch.no_grad()
def mean_loss(
    network: Callable[[Tensor], Tensor], inputs: Tensor, labels: Tensor, device: Any = "cpu"
) -> float:
    """Return the mean cross-entropy, in nats, of what is labelled in sequences (n, t)."""
    total, count = 0.0, 0
    for first in range(0, len(inputs), BATCH):
        part = slice(first, first + BATCH)
        predictions = int((labels[part] >= 0).sum())
        if predictions:
            loss = labelled(network(inputs[part].to(device)), labels[part].to(device))
            total, count = total + float(loss) * predictions, count + predictions
    return total / count


def tokens_read(request: TrainingRequest) -> int:
    """Return how many tokens of a text a run reads: what it trains on, and what is held out."""
    return (request.sequences + 2 * HELD) * request.length


def supernet_text(
    folder: Path,
    space: Elastic,
    told: Mapping[str, Any],
    source: str | None = None,
    run: TrainingRequest | None = None,
    progress: Progress = silent,
) -> ElasticText:
    """Return the text that the supernet in a folder was trained on, or another ``source``, by its tokenizer.

    In sequences as that training had them, or a further ``run`` has; what was held out of it is held out
    again. ``ValueError`` where the text is gone, too short, or another than it was.
    """
    before = told["text"]
    most = integer("most", before.get("most"), 1, 1 << 60)
    length = run.length if run else integer("length", before.get("length"))
    if length > space.positions:
        raise ValueError(f"sequences of {length} are longer than the {space.positions} positions")
    text = ElasticText.of(
        source or str(before.get("source")),
        space.task,
        length=length,
        batch=run.batch if run else 1,
        most=tokens_read(run) if run and source else most,
        tokenizer=folder,
        progress=progress,
    )
    if source is None and text.sha256 != before.get("sha256"):
        raise ValueError(f"the text {before.get('source')!r} is not the one that the supernet was trained on")
    return text
