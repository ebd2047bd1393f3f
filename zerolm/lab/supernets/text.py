"""A text as supernets and their paths are trained on it, and the loss of a network on what is held out."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from torch import Tensor
from transformers import PreTrainedTokenizerBase

from zerolm.lab.spaces.elastic import Elastic
from zerolm.lab.supernets.request import SupernetSource
from zerolm.networks.network import Task
from zerolm.networks.opener import stock_tokenizer
from zerolm.progress import Progress, silent
from zerolm.spaces.choices import integer
from zerolm.text.corpus import Corpus
from zerolm.text.encoding import tokenizer_of
from zerolm.text.predictions import PredictedText
from zerolm.training.losses import labelled, mean_loss
from zerolm.training.request import TrainingRequest

SUPERNET_VOCABULARY: Final = 8192


@dataclass(frozen=True, eq=False)
class ElasticText(PredictedText):
    """A text by a tokenizer, of which the next token is predicted, or masked ones (80/10/10, BERT)."""

    tokenizer: PreTrainedTokenizerBase
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
        vocabulary: int = SUPERNET_VOCABULARY,
        progress: Progress = silent,
    ) -> ElasticText:
        """Return ``most`` tokens of a text in sequences of ``length``.

        By the tokenizer of a folder, or by one of that size that is trained on the text.
        ``ValueError`` where the text is too short for one batch and what is held out, or nothing can mask.
        """
        if tokenizer is None:
            progress("training a tokenizer")
        reader = tokenizer_of(source, vocabulary) if tokenizer is None else stock_tokenizer(tokenizer)
        if task == "masked" and reader.mask_token_id is None:
            raise ValueError("the tokenizer has no mask token, and encoders are trained on masked ones")
        corpus = Corpus.of(source, reader, length, most, progress, with_edges=True)
        ((train, _),) = corpus.counts
        if train < batch:
            has = f"has {train} sequences of {length} tokens to train on"
            raise ValueError(
                f"the text {source!r} {has}, a batch {batch}: give more text, or --batch {train} at most"
            )
        mask = reader.mask_token_id if isinstance(reader.mask_token_id, int) else 0
        return cls(corpus, task, mask, len(reader), reader, most)

    @property
    def source(self) -> SupernetSource:
        """Return where the text is from and how it is cut."""
        (text,) = self.corpus.texts
        return SupernetSource(text.source, text.sha256, self.most, self.corpus.length)

    def loss(self, network: Callable[[Tensor], Tensor], device: Any = "cpu") -> float:
        """Return the mean cross-entropy, in nats, of what is predicted on text that is held out."""
        return network_loss(network, *self.held_out, device)


def network_loss(
    network: Callable[[Tensor], Tensor], inputs: Tensor, labels: Tensor, device: Any = "cpu"
) -> float:
    """Return the mean cross-entropy, in nats, of what is labelled in sequences (n, t)."""
    return mean_loss(lambda ids, wanted: labelled(network(ids), wanted), inputs, labels, device)


def supernet_text(
    folder: Path,
    space: Elastic,
    facts: Mapping[str, Any],
    source: str | None = None,
    run: TrainingRequest | None = None,
    progress: Progress = silent,
) -> ElasticText:
    """Return the text that the supernet in a folder was trained on, or another ``source``, by its tokenizer.

    In sequences as that training had them, or a further ``run`` has; what was held out of it is held out
    again. ``ValueError`` where the text is gone, too short, or another than it was.
    """
    before = facts["text"]
    most = integer("most", before.get("most"), 1, 1 << 60)
    length = run.length if run else integer("length", before.get("length"))
    if length > space.positions:
        raise ValueError(f"sequences of {length} are longer than the {space.positions} positions")
    try:
        text = ElasticText.of(
            source or str(before.get("source")),
            space.task,
            length=length,
            batch=run.batch if run else 1,
            most=run.tokens_read if run and source else most,
            tokenizer=folder,
            progress=progress,
        )
    except ValueError as error:
        if source:
            raise
        raise ValueError(f"{error}; it trained the supernet: give one by --text") from None
    if source is None and text.sha256 != before.get("sha256"):
        raise ValueError(f"the text {before.get('source')!r} is not the one that the supernet was trained on")
    return text
